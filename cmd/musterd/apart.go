package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/kpi"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/mtls"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// reportEvery is how often accounting says how it is, also when nothing new is
// stored; three times that without a word and the controller calls it down.
const reportEvery = 2 * time.Second

// runApart is `musterd --role accounting`: the ledger comes from a controller
// in another process. Either may die and come back: what is stored has its
// position beside it, and the controller keeps the history behind it.
func (s *server) runApart(ctx context.Context) error {
	source, conn, err := s.dialController()
	if err != nil {
		return err
	}
	defer conn.Close()
	ledger := &remoteLedger{
		ledger:  service.NewLedgerClient(conn),
		cluster: service.NewClusterClient(conn),
		name:    s.cluster.ClusterName,
		log:     s.log,
		hide:    s.cluster.Private,
		who:     newCallerFunc(uint32(os.Getuid())),
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
		if err := ledger.awaitController(ctx); err != nil {
			return err
		}
		s.log.Info(
			"accounting reads the ledger",
			"cluster",
			ledger.name,
			"controller",
			s.controllerName(),
		)
		g.spawnPart(
			"report to the controller",
			func(ctx context.Context) error { return ledger.reportProgress(ctx, s.acct.daemon.Status) },
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
func (s *server) dialController() (*mtls.Source, *grpc.ClientConn, error) {
	source, err := mtls.Load(pki.Dir(s.cfg.TLS.Dir))
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
func (s *server) accountingPages(ledger *remoteLedger) *http.ServeMux {
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

// remoteLedger is the ledger of a controller in another process: a source of
// accounting, and the way back for what it has stored.
type remoteLedger struct {
	ledger  service.LedgerClient
	cluster service.ClusterClient
	name    string // ClusterName that the configuration says
	log     *slog.Logger
	hide    []string // PrivateData
	who     func(context.Context) daemon.Caller

	mu       sync.Mutex
	uuid     [16]byte
	head     uint64
	headAt   spec.Instant
	progress acctd.Progress
	budgets  *apiv1.BudgetsLeft // nil = not known yet
	changed  chan struct{}
	revoked  map[string]bool // serial numbers
}

// errOtherLedger tells that the controller serves another ledger than it did.
var errOtherLedger = errors.New(
	"the controller serves another ledger: start accounting again if that is meant",
)

// pingController asks the controller who it is and how far.
func (l *remoteLedger) pingController(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rep, err := l.cluster.Ping(ctx, &apiv1.PingRequest{})
	if err != nil {
		return err
	}
	if rep.GetSeq() == 0 || len(rep.GetClusterUuid()) != 16 {
		return errors.New("the controller has no cluster yet")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := [16]byte(rep.GetClusterUuid())
	switch {
	case rep.GetCluster() != l.name:
		return fmt.Errorf(
			"%w: of cluster %q, slurm.conf says %q",
			errOtherLedger,
			rep.GetCluster(),
			l.name,
		)
	case l.uuid != [16]byte{} && l.uuid != id:
		return errOtherLedger
	}
	l.uuid, l.head, l.headAt = id, rep.GetSeq(), spec.Instant(rep.GetNow())
	return nil
}

// awaitController waits for the controller.
func (l *remoteLedger) awaitController(ctx context.Context) error {
	said := ""
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := l.pingController(ctx)
		if err == nil || errors.Is(err, errOtherLedger) {
			return err
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			l.log.Warn("accounting waits for the controller", "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// identity tells which ledger it is, after await.
func (l *remoteLedger) identity() ([16]byte, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uuid, l.name
}

// Head implements the source of accounting.
func (l *remoteLedger) Head() (uint64, spec.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head, l.headAt
}

// Epochs implements the source of accounting.
func (l *remoteLedger) Epochs(ctx context.Context) ([]state.Epoch, uint64, error) {
	rep, err := l.ledger.Confirm(ctx, &apiv1.ConfirmRequest{Epochs: true})
	if err != nil {
		return nil, 0, err
	}
	var epochs []state.Epoch
	for _, e := range rep.GetEpochs() {
		epochs = append(epochs, state.Epoch{Value: e.GetValue(), Seq: e.GetSeq()})
	}
	return epochs, rep.GetHeadSeq(), nil
}

// lost tells the controller of a position that its ledger does not hold.
func (l *remoteLedger) lost(ctx context.Context, seen event.Position) error {
	_, err := l.ledger.Confirm(
		ctx,
		&apiv1.ConfirmRequest{Lost: &apiv1.LedgerPosition{Epoch: seen.Epoch, Seq: seen.Seq,
			NextJobUid: uint64(seen.NextUID), NextJobId: uint32(seen.NextID)}},
	)
	return err
}

// noteHead notes a newer head.
func (l *remoteLedger) noteHead(seq uint64, at spec.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq > l.head {
		l.head = seq
		if at != 0 {
			l.headAt = at
		}
	}
}

// Open implements the source of accounting.
func (l *remoteLedger) Open(ctx context.Context, seq uint64) (acctd.Cursor, error) {
	if err := l.pingController(ctx); err != nil {
		return nil, err
	}
	stream, err := l.ledger.Subscribe(
		ctx,
		&apiv1.SubscribeRequest{FromSeq: max(seq, 1), Follow: true},
	)
	if err != nil {
		return nil, err
	}
	return remoteCursor{l, stream}, nil
}

type remoteCursor struct {
	l      *remoteLedger
	stream service.Ledger_SubscribeClient
}

// Next implements a cursor of accounting. The stream ends with the context it
// was opened with, or with the controller.
func (c remoteCursor) Next(context.Context) (acctd.Entry, error) {
	for {
		batch, err := c.stream.Recv()
		if err != nil {
			return acctd.Entry{}, fmt.Errorf("the controller's stream: %w", err)
		}
		c.l.noteHead(max(batch.GetHeadSeq(), batch.GetLastSeq()), 0)
		if batch.GetLastSeq() >= batch.GetFirstSeq() {
			return acctd.Entry{
				First:  batch.GetFirstSeq(),
				Last:   batch.GetLastSeq(),
				Events: batch.GetEvents(),
			}, nil
		}
	}
}

// revokedAre notes which certificates the controller lets in no more.
func (l *remoteLedger) revokedAre(serials []string) {
	set := make(map[string]bool, len(serials))
	for _, s := range serials {
		set[s] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revoked = set
}

// sentAway tells whether the controller lets a certificate in no more.
func (l *remoteLedger) sentAway(serial string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revoked[serial]
}

// private is PrivateData for a caller. The owner of the cluster and root see
// everything; who else is an operator, the store tells.
func (l *remoteLedger) private(ctx context.Context) []string {
	if who := l.who(ctx); who.Admin || (who.UID == 0 && who.User != "") {
		return nil
	}
	return l.hide
}

// content fetches a script or an environment.
func (l *remoteLedger) content(ctx context.Context, h spec.Hash) ([]byte, error) {
	rep, err := l.ledger.Content(ctx, &apiv1.ContentRequest{Hash: h[:]})
	return rep.GetData(), err
}

// confirm notes what is stored; report sends it.
func (l *remoteLedger) confirm(progress acctd.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = progress
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// enforce notes how the budgets stand; report sends it.
func (l *remoteLedger) enforce(rates *kpi.Rates) func(context.Context, []kpi.Spent) {
	return func(_ context.Context, list []kpi.Spent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.budgets = wireBudgets(list, rates)
	}
}

// reportProgress tells the controller how far and how well accounting is: when there
// is something new, and every few seconds. A controller that is away is told
// when it is back.
func (l *remoteLedger) reportProgress(ctx context.Context, status func() acctd.Status) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		l.mu.Lock()
		progress := l.progress
		budgets := l.budgets
		changed := make(chan struct{})
		l.changed = changed
		l.mu.Unlock()
		st := status()
		req := &apiv1.ConfirmRequest{
			Seq:     progress.Seq,
			Keep:    progress.Keep,
			Up:      st.Up,
			Budgets: budgets,
		}
		if st.Error != nil {
			req.Error = st.Error.Error()
		}
		call, cancel := context.WithTimeout(ctx, reportEvery)
		if rep, err := l.ledger.Confirm(call, req); err == nil {
			l.noteHead(rep.GetHeadSeq(), spec.Instant(rep.GetHeadAt()))
			l.revokedAre(rep.GetRevoked())
			tick.Reset(reportEvery)
		} else {
			changed = nil // not sooner than the next tick
		}
		cancel()
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// absentAccounting answers for the accounting that another process does.
type absentAccounting struct {
	service.UnimplementedAccountingServer
	socket string
}

func (a absentAccounting) away() error {
	where := "start it with musterd --role accounting"
	if _, err := os.Stat(a.socket); err == nil {
		where = "ask it at " + a.socket
	}
	return spec.Refuse(spec.CodeDatabaseUnreachable, "accounting runs in a process of its own: "+
		where)
}

// Jobs refuses.
func (a absentAccounting) Jobs(context.Context, *apiv1.AcctQuery) (*apiv1.AcctReply, error) {
	return nil, a.away()
}

// Report refuses.
func (a absentAccounting) Report(context.Context, *apiv1.ReportQuery) (*apiv1.ReportReply, error) {
	return nil, a.away()
}

// JobRows refuses.
func (a absentAccounting) JobRows(*apiv1.AcctQuery, service.Accounting_JobRowsServer) error {
	return a.away()
}

// Scripts refuses.
func (a absentAccounting) Scripts(
	context.Context,
	*apiv1.AcctScriptQuery,
) (*apiv1.AcctScriptReply, error) {
	return nil, a.away()
}

// Sql refuses.
func (a absentAccounting) Sql(
	*apiv1.SqlQuery,
	service.Accounting_SqlServer,
) error {
	return a.away()
}

// JobReport refuses.
func (a absentAccounting) JobReport(
	context.Context,
	*apiv1.JobReportQuery,
) (*apiv1.JobReportReply, error) {
	return nil, a.away()
}

// Advise refuses.
func (a absentAccounting) Advise(context.Context, *apiv1.AdviceQuery) (*apiv1.AdviceReply, error) {
	return nil, a.away()
}

// Reasons refuses.
func (a absentAccounting) Reasons(
	context.Context,
	*apiv1.ReasonsQuery,
) (*apiv1.ReasonsReply, error) {
	return nil, a.away()
}

// PutGpuSamples refuses.
func (a absentAccounting) PutGpuSamples(
	context.Context,
	*apiv1.PutGpuSamplesRequest,
) (*apiv1.PutGpuSamplesReply, error) {
	return nil, spec.Refuse(
		spec.CodeDatabaseUnreachable,
		"accounting runs in a process of its own: name it in telemetry.samples_to of the agents' muster.yaml",
	)
}

// GpuHistory refuses.
func (a absentAccounting) GpuHistory(
	context.Context,
	*apiv1.GpuHistoryQuery,
) (*apiv1.GpuHistoryReply, error) {
	return nil, a.away()
}

// Status refuses.
func (a absentAccounting) Status(
	context.Context,
	*apiv1.AccountingStatusRequest,
) (*apiv1.AccountingStatusReply, error) {
	return nil, a.away()
}
