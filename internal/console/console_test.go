package console

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// largeAPI answers for a large cluster: the sizes that pages must bear.
type largeAPI struct {
	jobs  *apiv1.ListJobsReply
	nodes *apiv1.ListNodesReply
}

func newLargeAPI(jobs, nodes int) *largeAPI {
	const now = int64(1_800_000_000) * tool.Second
	a := &largeAPI{jobs: &apiv1.ListJobsReply{Now: now}, nodes: &apiv1.ListNodesReply{Now: now}}
	for i := range jobs {
		j := &apiv1.JobInfo{Uid: uint64(i + 1), JobId: uint32(i + 1), ArrayTask: -1, User: fmt.Sprintf("user%d", i%97), UserId: uint32(1000 + i%97), Partition: "gpu",
			Spec: &apiv1.JobSpec{Name: fmt.Sprintf("training-run-%d", i), Account: fmt.Sprintf("account%d", i%11)}, Submit: now - int64(i)*tool.Second, TimeLimit: 3600 * tool.Second,
			NumNodes: 1, NumCpus: 16, Priority: uint32(i), ReqTres: &apiv1.Tres{Cpu: 16, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: int64(i % 9)}}}}
		if i%5 == 0 {
			j.State, j.Start, j.Nodes = uint32(spec.Running), now-int64(i)*tool.Second/2, fmt.Sprintf("node%d", i%nodes)
		} else {
			j.State, j.Reason = uint32(spec.Pending), &apiv1.Reason{Code: []string{"Priority", "Resources", "QOSMaxGRESPerUser"}[i%3], Tres: "gres/gpu", Limit: 4, Used: 4, Asked: 1}
			j.PlannedStart, j.PlannedNodes = now+int64(i)*60*tool.Second, "node[1-2]"
		}
		a.jobs.Jobs = append(a.jobs.Jobs, j)
	}
	for i := range nodes {
		n := &apiv1.NodeInfo{Name: fmt.Sprintf("node%04d", i), Partitions: []string{"gpu"}, Cpus: 128, CpusAlloc: int64(i % 128), Mem: 1 << 20, MemAlloc: 1 << 19, Registered: true, State: "MIXED"}
		for g := range 8 {
			n.Gpus = append(n.Gpus, &apiv1.GpuInfo{Index: uint32(g), Uuid: fmt.Sprintf("GPU-%d-%d", i, g), Allocated: (i+g)%3 != 0, JobId: uint32(i + g)})
		}
		a.nodes.Nodes = append(a.nodes.Nodes, n)
	}
	return a
}

// Call implements API.
func (a *largeAPI) Call(_ context.Context, _ identity.Identity, method string, _ proto.Message) (proto.Message, error) {
	switch method {
	case tool.MethodListJobs:
		return a.jobs, nil
	case tool.MethodListNodes:
		return a.nodes, nil
	case tool.MethodListPartitions:
		return &apiv1.ListPartitionsReply{Partitions: []*apiv1.PartitionInfo{{Name: "gpu"}}}, nil
	case tool.MethodDiag:
		return &apiv1.DiagReply{}, nil
	case tool.MethodAcctStatus:
		return &apiv1.AccountingStatusReply{Up: true}, nil
	}
	return nil, spec.Refuse(spec.CodeBadRequest, method)
}

func largeConsole(t testing.TB) *Console {
	t.Helper()
	c, err := New(Config{API: newLargeAPI(10_000, 1_000), Cluster: "large", Log: slog.New(slog.DiscardHandler), Door: authz.Door{Standing: func(string) authz.Role { return authz.User }},
		Verify: func(string) (identity.Identity, error) {
			return identity.Identity{Kind: identity.AttestedUser, UID: 1000, GID: 1000, User: "user0"}, nil
		},
		Private: func(context.Context) []string { return nil },
		Changed: func() (uint64, <-chan struct{}) { return 1, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func read(t testing.TB, c *Console, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d", path, w.Code)
	}
	return w
}

// readPlain is a page as a browser without compression gets it.
func readPlain(t testing.TB, c *Console, path string) string {
	t.Helper()
	w := read(t, c, path)
	if w.Header().Get("Content-Encoding") != "gzip" {
		return w.Body.String()
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// largePages are the pages that grow with the cluster.
func largePages() []string {
	return []string{"/", "/queue", "/queue?group=user", "/queue?q=user%3Auser3", "/nodes", "/gpus", "/gpus?q=user3&state=used"}
}

// TestPagesOfLargeClusterAreSmall: what a first visit transfers stays below
// 300 KiB with 10,000 jobs and 8,000 GPUs, the style sheet and script included.
func TestPagesOfLargeClusterAreSmall(t *testing.T) {
	c := largeConsole(t)
	fixed := read(t, c, "/static/console.css").Body.Len() + read(t, c, "/static/console.js").Body.Len()
	for _, path := range largePages() {
		w := read(t, c, path)
		if size := w.Body.Len() + fixed; size > 300<<10 {
			t.Errorf("%s: %d bytes are transferred", path, size)
		}
		if !strings.Contains(readPlain(t, c, path), "</html>") {
			t.Errorf("%s is not whole", path)
		}
	}
}

// TestNothingInline: no page needs what its policy forbids: scripts and styles
// within it, or anything from elsewhere.
func TestNothingInline(t *testing.T) {
	c := largeConsole(t)
	for _, path := range append(largePages(), "/sign-in") {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s has the policy %q", path, got)
		}
		page := w.Body.String()
		for _, bad := range []string{"style=", "<style", "onclick=", "javascript:", "http://", "https://"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s holds %s", path, bad)
			}
		}
	}
}

// ledger is a view that grows when it is told to.
type ledger struct {
	mu      sync.Mutex
	seq     uint64
	changed chan struct{}
}

func (l *ledger) Changed() (uint64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq, l.changed
}

func (l *ledger) grow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	close(l.changed)
	l.changed = make(chan struct{})
}

// TestOpenPagesAreTold: each of many open pages is told of an event, readers
// share what they are told with, and all streams end with the console.
func TestOpenPagesAreTold(t *testing.T) {
	c := largeConsole(t)
	l := &ledger{seq: 1, changed: make(chan struct{})}
	c.cfg.Changed = l.Changed
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	web := httptest.NewServer(c)
	defer web.Close()
	const pages = 50
	var first, second sync.WaitGroup
	var streams sync.WaitGroup
	for range pages {
		first.Add(1)
		second.Add(1)
		streams.Go(func() {
			r, err := http.NewRequest(http.MethodGet, web.URL+"/live", nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			told := 0
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data: ") {
					if told++; told == 1 {
						first.Done()
					} else if lines.Text() == "data: 2" {
						second.Done()
					}
				}
			}
		})
		streams.Go(func() { read(t, c, "/queue") })
	}
	first.Wait()
	l.grow()
	second.Wait()
	cancel()
	streams.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// BenchmarkPages: what a page of a large cluster costs, its lists being at hand.
func BenchmarkPages(b *testing.B) {
	c := largeConsole(b)
	for _, path := range largePages() {
		b.Run(strings.TrimPrefix(path, "/"), func(b *testing.B) {
			for b.Loop() {
				read(b, c, path)
			}
		})
	}
}
