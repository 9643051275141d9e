package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/cli/slurmapi"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// mountSlurm serves Slurm's REST API beside the gateway's own, from the services
// that are registered there.
func (s *server) mountSlurm(gateway *rest.Gateway) {
	api := slurmapi.New(slurmapi.Host{
		Version: version, Cluster: s.cluster.ClusterName, Call: gateway.Ask, Body: gateway.Body, Now: time.Now, Log: s.log,
		Stream: func(ctx context.Context, method string, req proto.Message) (tool.Receiver, error) {
			return gateway.Stream(ctx, method, req)
		},
		Convert: func(err error) (*rpcstatus.Error, int) {
			e := gateway.Convert(err)
			return e, rest.StatusOf(e)
		},
		Changed: func() int64 {
			if known := s.knownState(); known != nil {
				return int64(known.At)
			}
			return 0
		},
		Caller: func(ctx context.Context) (string, uint32) {
			id := identity.From(ctx)
			return authz.UserName(id), id.UID
		},
	})
	for _, prefix := range [...]string{"/slurm/", "/slurmdb/", "/util/"} {
		gateway.Mount(prefix, api, false)
	}
	gateway.Mount("/openapi", slurmapi.Description{API: api}, true)
}
