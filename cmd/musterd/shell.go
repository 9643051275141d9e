package main

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// shellService runs sbatch for the small program that carries what was typed.
// Who submits is known from the connection, as with every other call.
type shellService struct {
	service.UnimplementedShellServer
	zone string // submit.ZoneSetting of the controller
	// filtered tells whether the site has a cli_filter.lua.
	filtered func() bool
	submit   func(ctx context.Context, request *apiv1.SubmitRequest) (*apiv1.SubmitReply, error)
}

// Sbatch implements service.ShellServer.
func (s shellService) Sbatch(
	ctx context.Context,
	in *apiv1.TypedCommand,
) (*apiv1.TypedAnswer, error) {
	return submit.Typed(
		ctx,
		in,
		submit.TypedHost{
			Version:  version,
			Zone:     s.zone,
			Filtered: s.filtered(),
			Submit: func(ctx context.Context, req *apiv1.SubmitRequest) (*apiv1.SubmitReply, error) {
				reply, err := s.submit(ctx, req)
				if err != nil {
					return nil, rpcstatus.Convert(grpcx.FromStatus(err), rpcstatus.Numbers())
				}
				return reply, nil
			},
		},
	), nil
}
