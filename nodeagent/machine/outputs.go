package machine

import (
	"context"

	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/runtime/readas"
)

// OutputReader reads what jobs write, as their users.
type OutputReader struct{ Files *readas.Reader }

// Read implements daemon.Outputs.
func (r OutputReader) Read(
	ctx context.Context, request daemon.OutputAsk,
) (daemon.OutputPart, error) {
	part, err := r.Files.Read(ctx, readas.Ask{
		Path:   request.Path,
		UID:    request.UID,
		GID:    request.GID,
		Groups: request.Groups,
		From:   request.From,
		Most:   int(min(request.Most, readas.MaxBytes)),
	})
	return daemon.OutputPart{Data: part.Data, From: part.From, Size: part.Size}, err
}
