package gate_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// TestAgain: of a call whose answer was lost nobody knows whether it was carried out. What only looks is asked again, a submission
// with a number says that it is repeated, and nothing else is sent twice.
func TestAgain(t *testing.T) {
	submission := func(number uint64) []byte {
		b, err := proto.Marshal(&apiv1.SubmitRequest{Request: number, Spec: &apiv1.JobSpec{Name: "j"}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		method  string
		payload []byte
		want    bool
	}{
		{"/muster.v1.Cluster/ListJobs", nil, true},
		{"/muster.v1.Cluster/WatchJob", nil, true},
		{"/muster.v1.Cluster/Cancel", nil, false},
		{"/muster.v1.Cluster/ControlJobs", nil, false},
		{"/muster.v1.Cluster/Submit", submission(0), false},
		{"/muster.v1.Cluster/Submit", submission(7), true},
		{"/muster.v1.Cluster/Submit", []byte{0xff}, false},
		{"/muster.v1.Shell/Sbatch", nil, false},
		{"/muster.v1.Nothing/There", nil, false},
		{"", nil, false},
	} {
		again, ok := gate.Again(c.method, c.payload)
		if ok != c.want {
			t.Errorf("%s may be repeated: %v, want %v", c.method, ok, c.want)
		}
		if c.method == "/muster.v1.Cluster/Submit" && ok {
			var req apiv1.SubmitRequest
			if err := proto.Unmarshal(again, &req); err != nil || !req.GetAgain() || req.GetRequest() != 7 || req.GetSpec().GetName() != "j" {
				t.Errorf("the submission is repeated as %v (%v)", &req, err)
			}
		}
	}
}

// knocks counts the connections to a controller that takes none.
func knocks(t *testing.T) (address string, count *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	count = new(atomic.Int64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			conn.Close()
		}
	}()
	return listener.Addr().String(), count
}

// TestOnlyTheLeaderIsAsked: where the group has said which controller leads, a call waits for that one
// to serve. Of the others one may be stopped, and would keep the call for seconds.
func TestOnlyTheLeaderIsAsked(t *testing.T) {
	leader, asked := knocks(t)
	stopped, disturbed := knocks(t)
	dir := pki.Dir(t.TempDir())
	if _, err := dir.Init("lab", pki.Holder{Name: "ctl1", Hosts: []string{"127.0.0.1"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	source, err := pki.LoadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Config{
		Addresses: []string{stopped, leader}, Source: source, Log: slog.New(slog.DiscardHandler),
		Explain: func(context.Context) string { return "no leader" },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Lead(leader)
	call := func(enough func() bool) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			request := serve.RelayCall{Method: "/muster.v1.Cluster/Ping", For: framed.Attest(0, 0)}
			_ = g.Forward(ctx, request, func([]byte) error { return nil }) // nobody answers it
		}()
		for !enough() {
			time.Sleep(time.Millisecond) //muster:sleep the call is tried again in real time
		}
		cancel()
		<-ended
	}
	call(func() bool { return asked.Load() >= 3 })
	if n := disturbed.Load(); n > 0 {
		t.Errorf("another controller was asked %d times", n)
	}
	g.LeadLost()
	call(func() bool { return disturbed.Load() >= 1 }) // now any may be the one
}
