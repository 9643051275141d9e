package e2e

import (
	"context"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/framed/client"
)

// dialTrio opens a connection to the socket of one controller.
func (c *trio) dialTrio(at string) *client.Client {
	c.t.Helper()
	conn, err := client.Dial(c.t.Context(), client.Unix(filepath.Join(c.home(at), "run", "muster.sock")))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

// otherLeader waits until a controller leads that is not the one named.
func (c *trio) otherLeader(than string) string {
	c.t.Helper()
	for range 1200 {
		for _, at := range trioNames {
			if at == than {
				continue
			}
			for name, role := range c.roles(at) {
				if role == "leader" && name != than {
					return name
				}
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, at := range trioNames {
		if at != than {
			c.t.Logf("at %s: %v", at, c.roles(at))
		}
	}
	c.t.Fatalf("no controller leads after %s", than)
	return ""
}

// TestOvertakenLeader: a leader that was stopped and continues after another was elected answers no
// call from its old state: neither what it has not heard of nor what changes nothing
// there.
func TestOvertakenLeader(t *testing.T) {
	c := startTrio(t)
	for round := range 3 {
		old := c.whole()
		id, _ := c.must(old, "sbatch", "--parsable", "--hold", "--begin=now+1hour", "-o", "/dev/null", "--wrap", "true")
		// The calls come by connections that are open already, as those of agents, portals and
		// login hosts are.
		const callers = 24
		var conns []*client.Client
		for range callers {
			conns = append(conns, c.dialTrio(old))
		}
		for _, conn := range conns {
			if err := conn.Call(t.Context(), service.Cluster_ListJobs_FullMethodName, &apiv1.ListJobsRequest{}, &apiv1.ListJobsReply{}); err != nil {
				t.Fatal(err)
			}
		}
		c.signal(old, syscall.SIGSTOP)
		leads := c.otherLeader(old)
		c.must(leads, "scontrol", "release", id)
		now := &apiv1.ListJobsReply{}
		if err := c.dialTrio(leads).Call(t.Context(), service.Cluster_ListJobs_FullMethodName, &apiv1.ListJobsRequest{}, now); err != nil {
			t.Fatal(err)
		}
		// The job is released. Whoever asks from here on must see that, and whose hold is
		// acknowledged must find the job held.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var stale, held int
		for i, conn := range conns {
			if i%2 == 0 {
				pending, err := conn.Start(ctx, service.Cluster_ListJobs_FullMethodName, &apiv1.ListJobsRequest{})
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					var reply apiv1.ListJobsReply
					if pending.Wait(&reply) == nil && reply.GetSeq() < now.GetSeq() {
						mu.Lock()
						stale++
						mu.Unlock()
					}
				})
				continue
			}
			hold := &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_HOLD, Jobs: []string{id}}
			pending, err := conn.Start(ctx, service.Cluster_ControlJobs_FullMethodName, hold)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				var reply apiv1.JobResults
				if pending.Wait(&reply) == nil && len(reply.GetResults()) == 1 && reply.GetResults()[0].GetError() == nil {
					mu.Lock()
					held++
					mu.Unlock()
				}
			})
		}
		c.signal(old, syscall.SIGCONT)
		wg.Wait()
		cancel()
		if stale > 0 {
			t.Errorf("round %d: %d of %d queries were answered from the state before %s took over", round, stale, callers/2, leads)
		}
		c.whole()
		reason, _ := c.must(leads, "squeue", "-h", "-j", id, "-o", "%r")
		if held > 0 && reason != "JobHeldAdmin" && reason != "JobHeldUser" {
			t.Errorf("round %d: %d holds were acknowledged, and the job waits for %s", round, held, reason)
		}
		c.must(leads, "scancel", id)
		for _, conn := range conns {
			conn.Close()
		}
	}
}
