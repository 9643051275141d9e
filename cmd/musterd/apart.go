package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/accounting/role"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// runApart is `musterd --role accounting`: the ledger comes from a controller
// in another process. Either may die and come back: what is stored has its
// position beside it, and the controller keeps the history behind it.
func (s *server) runApart(ctx context.Context) error {
	source, conn, err := s.dialController()
	if err != nil {
		return err
	}
	defer conn.Close()
	ledger := &feed.Remote{
		Ledger:   service.NewLedgerClient(conn),
		Cluster:  service.NewClusterClient(conn),
		Name:     s.cluster.ClusterName,
		Log:      s.log,
		Hide:     s.cluster.Private,
		Identify: host.NewCallerFunc(uint32(os.Getuid())),
	}
	s.apart = ledger
	s.acct, err = role.Open(s.accountingOptions(ledger))
	if err != nil {
		return err
	}
	defer s.acct.Close()
	group := parts.New(ctx)
	defer group.Stop()
	s.keepCertificate(group, source)
	endpoint, err := s.newEndpoint(source)
	if err != nil {
		return err
	}
	service.RegisterAccountingServer(endpoint, s.acct.Service)
	pages := exporting.AccountingApart{
		Cluster: s.cluster.ClusterName,
		Version: version,
		Private: s.privacy(),
		Of:      s.acct,
		Head:    ledger.Head,
		Ready:   s.acct.CheckStores,
	}
	if err := s.accountingDoors(pages).ServeAll(group, endpoint); err != nil {
		return err
	}
	group.Spawn("accounting", func(ctx context.Context) error {
		if err := ledger.AwaitController(ctx); err != nil {
			return err
		}
		s.log.Info(
			"accounting reads the ledger",
			"cluster",
			ledger.Name,
			"controller",
			s.controllerName(),
		)
		group.Spawn(
			"report to the controller",
			func(ctx context.Context) error { return ledger.ReportProgress(ctx, s.acct.Status) },
		)
		return s.acct.Run(ctx)
	})
	s.log.Info(
		"accounting is ready",
		"socket",
		s.cfg.AccountingSocket,
		"api",
		s.cfg.Listen.AccountingAPI,
		"metrics",
		s.cfg.Listen.AccountingMetrics,
	)
	select {
	case err := <-group.Failed():
		return err
	case <-ctx.Done():
		s.log.Info("shutting down; the ledger keeps what is not stored")
		return nil
	}
}

// controllerName says where the controller is.
func (s *server) controllerName() string {
	if s.cfg.Accounting.Controller != "" {
		return s.cfg.Accounting.Controller
	}
	return s.cfg.Socket
}

// dialController makes a client of the controller; it connects when it is used.
func (s *server) dialController() (*pki.Source, *grpc.ClientConn, error) {
	source, err := pki.LoadSource(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		return nil, nil, fmt.Errorf("this host's certificate in %s: %w", s.cfg.TLS.Dir, err)
	}
	address := s.controllerName()
	if strings.Contains(address, "/") {
		conn, err := grpcx.DialUnix(address)
		return source, conn, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, fmt.Errorf("accounting.controller: %w", err)
	}
	conn, err := grpcx.DialTLS(
		address,
		func() *tls.Config { return source.Client(host, identity.Controller, channel.ALPNGRPC) },
	)
	return source, conn, err
}

// accountingDoors are those of an accounting that has its process for itself.
func (s *server) accountingDoors(pages exporting.AccountingApart) doors.Doors {
	return doors.Doors{
		Socket: s.cfg.AccountingSocket,
		API:    doors.Address{Key: "listen.accounting_api", At: s.cfg.Listen.AccountingAPI},
		Metrics: doors.Metrics{
			Address: doors.Address{
				Key: "listen.accounting_metrics",
				At:  s.cfg.Listen.AccountingMetrics,
			},
			Pages:   pages.Pages(),
			Readers: s.webOptions(),
			Log:     s.log,
		},
	}
}
