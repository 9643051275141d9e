package main

import (
	"context"
	"net"
	_ "time/tzdata"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/accounting/role"
	"github.com/musterhpc/muster/controller/founding"
)

// accountingOptions say what this process accounts for, and from where.
func (s *server) accountingOptions(from feed.Access) role.Options {
	return role.Options{
		Config:    s.cfg,
		Path:      s.config,
		Cluster:   s.cluster,
		Source:    from,
		Operators: !s.hasRole("controller"),
		Log:       s.log,
	}
}

// founding keeps this controller from founding a cluster where there is one.
func (s *server) founding() *founding.Guard {
	_, port, err := net.SplitHostPort(string(s.cfg.Listen.AgentGRPC))
	if err != nil {
		port = "" // agents listen nowhere
	}
	return &founding.Guard{
		StateDir: s.cfg.StateDir,
		Cluster:  s.cluster,
		Anew:     s.anew,
		Blobs:    func() int { return s.disk.Blobs.Disk.Stats().Blobs },
		AskStore: func(ctx context.Context, cluster string) ([]clickhouse.KnownLedger, error) {
			return role.AskStore(ctx, s.cfg, cluster)
		},
		AgentPort: port,
		Log:       s.log,
	}
}
