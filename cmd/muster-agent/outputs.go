package main

import (
	"context"

	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/runtime/readas"
)

// outputReader reads what jobs write, as their users.
type outputReader struct{ files *readas.Reader }

// Read implements daemon.Outputs.
func (r outputReader) Read(ctx context.Context, ask daemon.OutputAsk) (daemon.OutputPart, error) {
	part, err := r.files.Read(ctx, readas.Ask{
		Path:   ask.Path,
		UID:    ask.UID,
		GID:    ask.GID,
		Groups: ask.Groups,
		From:   ask.From,
		Most:   int(min(ask.Most, readas.MaxBytes)),
	})
	return daemon.OutputPart{Data: part.Data, From: part.From, Size: part.Size}, err
}
