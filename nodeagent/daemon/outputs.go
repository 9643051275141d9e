package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// Outputs reads files that jobs write, with the rights of their users. The error is
// for the user of the job.
type Outputs interface {
	Read(ctx context.Context, request OutputAsk) (OutputPart, error)
}

// OutputAsk is a part of a file of a user.
type OutputAsk struct {
	Path   string
	UID    uint32
	GID    uint32
	Groups []uint32
	From   int64 // first byte; negative: the last Most bytes
	Most   int64
}

// OutputPart is what was read.
type OutputPart struct {
	Data []byte
	From int64
	Size int64 // of the file
}

// readFor answers a question about a file while others go on. Who may ask is for
// the controller to decide; the reader refuses what is not a file of that user.
func (a *Agent) readFor(ctx context.Context, s *session, request *apiv1.ReadFile) {
	answer := func(read *apiv1.FileRead) {
		read.Ask = request.GetAsk()
		a.inbox.putItems(func() {
			s.sendMessage(&apiv1.AgentMessage{Kind: &apiv1.AgentMessage_FileRead{FileRead: read}})
		})
	}
	if a.deps.Outputs == nil {
		answer(&apiv1.FileRead{Problem: "the agent of this node reads no files"})
		return
	}
	a.wg.Go(func() {
		part, err := a.deps.Outputs.Read(ctx, OutputAsk{
			Path:   request.GetPath(),
			UID:    request.GetUserId(),
			GID:    request.GetGroupId(),
			Groups: request.GetGroups(),
			From:   request.GetFrom(),
			Most:   request.GetMost(),
		})
		if err != nil {
			answer(&apiv1.FileRead{Problem: err.Error()})
			return
		}
		answer(&apiv1.FileRead{Data: part.Data, From: part.From, Size: part.Size})
	})
}
