package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
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
	s.acct, err = s.openAccounting(ledger)
	if err != nil {
		return err
	}
	defer s.acct.close()
	ctx, cancel := context.WithCancel(ctx)
	g := &group{ctx: ctx, errs: make(chan error, 16)}
	defer g.wg.Wait()
	defer cancel()
	s.keepCertificate(g, source)
	endpoint, err := s.newEndpoint(source)
	if err != nil {
		return err
	}
	service.RegisterAccountingServer(endpoint, s.acct.service)
	if err := (doors{socket: s.cfg.AccountingSocket, apiKey: "listen.accounting_api", api: s.cfg.Listen.AccountingAPI,
		metricsKey: "listen.accounting_metrics", metrics: s.cfg.Listen.AccountingMetrics,
		web: s.webOptions(), log: s.log}).serveAll(g, endpoint, s.accountingPages(ledger)); err != nil {
		return err
	}
	g.spawnPart("accounting", func(ctx context.Context) error {
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
		g.spawnPart(
			"report to the controller",
			func(ctx context.Context) error { return ledger.ReportProgress(ctx, s.acct.daemon.Status) },
		)
		return s.acct.run(ctx)
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
	case err := <-g.errs:
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

// accountingPages are the pages of an accounting of its own: the KPIs, and
// whether it stores.
func (s *server) accountingPages(ledger *feed.Remote) *http.ServeMux {
	return s.kpiPages(
		collector.Source{
			Now:     clock.NewSystem().Now,
			Version: version,
			KPIs:    s.acct.currentKPIs,
			Private: s.hidesUsers(),
			View: func() *view.View {
				head, at := ledger.Head()
				if head == 0 {
					return nil
				}
				st := state.New()
				st.Seq, st.At, st.ClusterName = head, at, s.cluster.ClusterName
				return &view.View{State: st}
			},
		},
	)
}

// kpiPages are /metrics with the KPIs, and whether the store takes rows.
func (s *server) kpiPages(src collector.Source) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", collector.AccountingHandler(src))
	mux.HandleFunc(
		"GET /livez",
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") },
	)
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if st := s.acct.daemon.Status(); !st.Up {
			http.Error(
				w,
				fmt.Sprintf("the store takes no rows: %v", st.Error),
				http.StatusServiceUnavailable,
			)
			return
		}
		fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /healthz", ready)
	mux.HandleFunc("GET /readyz", ready)
	return mux
}
