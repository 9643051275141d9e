package sending

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracesrpc "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/otlp"
)

// collector is a receiver of OTLP by gRPC and by HTTP, which keeps what it takes.
type collector struct {
	tracesrpc.UnimplementedTraceServiceServer
	mu     sync.Mutex
	jobs   []string // of the root spans, in the order in which they came
	spans  map[string]int
	tokens []string
	tries  int
	away   bool
	hates  string // a job whose trace is refused for good
}

func newCollector() *collector { return &collector{spans: map[string]int{}} }

// take judges a request; never says that it would be refused again.
func (c *collector) take(m *tracesrpc.ExportTraceServiceRequest, token string) (away, never bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries++
	if c.away {
		return true, false
	}
	if c.hates != "" && strings.Contains(m.String(), `string_value:"`+c.hates+`"`) {
		return false, true
	}
	c.tokens = append(c.tokens, token)
	for _, rs := range m.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				c.spans[fmt.Sprintf("%x/%x", span.GetTraceId(), span.GetSpanId())]++
				for _, a := range span.GetAttributes() {
					if a.GetKey() == "muster.job" {
						c.jobs = append(c.jobs, a.GetValue().GetStringValue())
					}
				}
			}
		}
	}
	return false, false
}

func (c *collector) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *collector) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.jobs)
}

// Export implements OTLP by gRPC.
func (c *collector) Export(ctx context.Context, m *tracesrpc.ExportTraceServiceRequest) (*tracesrpc.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	switch away, never := c.take(m, strings.Join(md.Get("authorization"), "")); {
	case away:
		return nil, status.Error(codes.Unavailable, "away")
	case never:
		return nil, status.Error(codes.InvalidArgument, "not this one")
	}
	return &tracesrpc.ExportTraceServiceResponse{}, nil
}

// ServeHTTP implements OTLP by HTTP.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	zip, err := gzip.NewReader(r.Body)
	if err != nil || r.URL.Path != "/otlp/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "what is this", http.StatusNotFound)
		return
	}
	data, err := io.ReadAll(zip)
	m := &tracesrpc.ExportTraceServiceRequest{}
	if err != nil || proto.Unmarshal(data, m) != nil {
		http.Error(w, "torn", http.StatusBadRequest)
		return
	}
	switch away, never := c.take(m, r.Header.Get("Authorization")); {
	case away:
		http.Error(w, "away", http.StatusServiceUnavailable)
	case never:
		http.Error(w, "not this one", http.StatusBadRequest)
	}
}

// serve opens the collector's ports and gives an address for each protocol.
func (c *collector) serve(t *testing.T) map[string]*url.URL {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	tracesrpc.RegisterTraceServiceServer(rpc, c)
	go func() { _ = rpc.Serve(l) }() // Stop ends it
	t.Cleanup(rpc.Stop)
	web := httptest.NewServer(c)
	t.Cleanup(web.Close)
	at, err := url.Parse(web.URL + "/otlp")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*url.URL{"grpc": {Scheme: "grpc", Host: l.Addr().String()}, "http": at}
}

// ledger is a source in memory, of jobs that are submitted and end.
type ledger struct {
	mu     sync.Mutex
	events []*apiv1.EventInfo
	grown  chan struct{}
}

func newLedger() *ledger { return &ledger{grown: make(chan struct{})} }

func (l *ledger) add(kind, job string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.events) + 1
	l.events = append(l.events, &apiv1.EventInfo{Seq: uint64(n), At: int64(n) * 1_000_000_000, Kind: kind, Job: job, User: "ali\xffce", ActorKind: "user"})
	close(l.grown)
	l.grown = make(chan struct{})
}

// lives adds jobs that were submitted and cancelled.
func (l *ledger) lives(jobs ...string) {
	for _, job := range jobs {
		l.add("JobSubmitted", job)
		l.add("JobEnded", job)
	}
}

func (l *ledger) Head() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.events))
}

func (l *ledger) Now() audit.Position { return audit.Position{Epoch: 9, Seq: l.Head()} }

func (l *ledger) Resume(p audit.Position) (uint64, string, error) { return p.Seq + 1, "", nil }

// FollowLives reads from the beginning, as a source may.
func (l *ledger) FollowLives(ctx context.Context, _ uint64, take func(*apiv1.EventsReply) error) error {
	from := 0
	for {
		l.mu.Lock()
		rest, grown := l.events[from:], l.grown
		l.mu.Unlock()
		if len(rest) > 0 {
			from += len(rest)
			if err := take(&apiv1.EventsReply{Events: rest, Seq: uint64(from), Epoch: 9}); err != nil {
				return err
			}
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil
		}
	}
}

// sending runs a Sender until stop is called.
func sending(t *testing.T, l *ledger, at *url.URL, position, token string) (s *Sender, stop func()) {
	t.Helper()
	to, err := otlp.New(otlp.Config{At: at, TokenFile: token, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s, err = New(Config{
		Source: l, To: to, Resource: Resource{Cluster: "lab", Controller: "ctl1", Version: "1"}, Position: position,
		Pause: func(ctx context.Context, _ time.Duration) { pause(ctx, time.Millisecond) }, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		if t.Context().Err() != nil {
			t.Fatal(what)
		}
		time.Sleep(time.Millisecond) //muster:sleep what it waits for is written by other goroutines
	}
}

// TestSentAtLeastOnce: a collector that is away misses nothing, also if the sender ends
// meanwhile; one trace is sent once when nothing fails; and the past before the first
// start is not sent.
func TestSentAtLeastOnce(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			dir := t.TempDir()
			position, token := filepath.Join(dir, "traces.json"), filepath.Join(dir, "token")
			if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			l, to := newLedger(), newCollector()
			at := to.serve(t)[protocol]
			l.lives("1", "2")
			l.add("JobSubmitted", "3")
			s, stop := sending(t, l, at, position, token)
			l.add("JobEnded", "3")
			l.lives("4")
			until(t, "two traces", func() bool { return len(to.got()) == 2 })
			until(t, "the position", func() bool { return s.Status().Seq == l.Head() })
			to.set(func() { to.away = true })
			l.lives("5")
			l.add("JobSubmitted", "6")
			until(t, "tries that fail", func() bool { return s.Status().Failures > 2 })
			if st := s.Status(); st.Seconds <= 0 || st.Seq >= l.Head() {
				t.Errorf("while the collector is away: %+v", st)
			}
			stop()
			l.add("JobEnded", "6")
			to.set(func() { to.away = false })
			s, _ = sending(t, l, at, position, token)
			until(t, "the rest", func() bool { return len(to.got()) == 4 })
			until(t, "the position", func() bool { return s.Status().Seq == l.Head() })
			if st := s.Status(); st.Seconds != 0 || st.Traces != 2 || st.Spans != 4 {
				t.Errorf("at the end: %+v", st)
			}
			if got := to.got(); !slices.Equal(got, []string{"3", "4", "5", "6"}) {
				t.Errorf("the collector has the traces of jobs %s", got)
			}
			for id, n := range to.spans {
				if n != 1 {
					t.Errorf("span %s came %d times though nothing failed", id, n)
				}
			}
			for _, token := range to.tokens {
				if token != "Bearer secret" {
					t.Errorf("the collector was shown %q", token)
				}
			}
		})
	}
}

// TestOneRefusedCostsNoOther: a trace that a collector refuses for good is left out and
// counted, and those beside it in the message arrive.
func TestOneRefusedCostsNoOther(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			l, to := newLedger(), newCollector()
			at := to.serve(t)[protocol]
			to.hates, to.away = "8", true
			s, _ := sending(t, l, at, filepath.Join(t.TempDir(), "traces.json"), "")
			l.lives("7")
			until(t, "a try", func() bool { return s.Status().Failures > 0 })
			l.lives("8", "9") // they are read together, since the sender waits
			to.set(func() { to.away = false })
			until(t, "the position", func() bool { return s.Status().Seq == l.Head() })
			if got, st := to.got(), s.Status(); !slices.Equal(got, []string{"7", "9"}) || st.Refused != 2 || st.Spans != 4 {
				t.Errorf("the collector has %s, status %+v", got, st)
			}
		})
	}
}

// TestMessagesAreBounded: however many spans there are, a message holds no more than a
// receiver takes, and nothing is lost between two.
func TestMessagesAreBounded(t *testing.T) {
	l, to := newLedger(), newCollector()
	at := to.serve(t)["grpc"]
	s, _ := sending(t, l, at, filepath.Join(t.TempDir(), "traces.json"), "")
	l.add("JobSubmitted", "1")
	l.mu.Lock()
	started := &apiv1.EventInfo{
		Seq: 2, At: 2_000_000_000, Kind: "JobStarted", Job: "1", ActorKind: "system",
		Fields: []*apiv1.EventField{{Name: "attempt", Value: &apiv1.EventField_Number{Number: 1}}},
	}
	l.events = append(l.events, started)
	for i := range 3 * maxSpansAtOnce {
		fields := append(slices.Clone(started.GetFields()), &apiv1.EventField{Name: "step", Value: &apiv1.EventField_Number{Number: int64(i)}})
		l.events = append(l.events, &apiv1.EventInfo{Seq: uint64(3 + i), At: int64(3+i) * 1_000_000_000, Kind: "StepStarted", Job: "1", ActorKind: "user", Fields: fields})
	}
	l.mu.Unlock()
	l.add("JobEnded", "1")
	until(t, "the position", func() bool { return s.Status().Seq == l.Head() })
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.tries != 4 || len(to.spans) != 3*maxSpansAtOnce+3 {
		t.Errorf("%d spans in %d messages", len(to.spans), to.tries)
	}
}
