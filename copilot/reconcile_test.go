package copilot_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/spec"
)

// TestReconcile runs the transcripts of testdata: each block lists pods and nodes
// as they were seen, a line each, and shows the plan.
func TestReconcile(t *testing.T) {
	datadriven.RunTest(t, "testdata/reconcile.txt", func(t *testing.T, d *datadriven.TestData) string {
		pods, nodes := world(t, d.Input)
		return show(copilot.Reconcile(pods, nodes))
	})
}

// world reads lines like
//
//	pod a cpu=500 mem=100 gpu=1 prio=5 gated|pinned=n1|node=n1 over deleting admits=n1,n2
//	node n1 cpu=4 spare=0 mem=1000 gpu=2 closed holds=a,b
func world(t *testing.T, text string) (pods []copilot.Pod, nodes []copilot.Node) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		kv := map[string]string{}
		for _, w := range words[2:] {
			k, v, _ := strings.Cut(w, "=")
			kv[k] = v
		}
		number := func(key string) int64 {
			var n int64
			if v, ok := kv[key]; ok {
				if _, err := fmt.Sscan(v, &n); err != nil {
					t.Fatal(err)
				}
			}
			return n
		}
		has := func(key string) bool { _, ok := kv[key]; return ok }
		list := func(key string) []string {
			if kv[key] == "" {
				return nil
			}
			return strings.Split(kv[key], ",")
		}
		switch words[0] {
		case "pod":
			pods = append(pods, copilot.Pod{UID: words[1], Namespace: "web", Name: words[1], Priority: number("prio"), Created: spec.Instant(len(pods)),
				Ask:   copilot.Ask{MilliCPU: number("cpu"), Mem: number("mem"), GPUs: number("gpu"), GPUType: kv["type"]},
				Gated: has("gated"), Pinned: kv["pinned"], Node: kv["node"], Over: has("over"), Deleting: has("deleting"), Admits: list("admits")})
		case "node":
			n := copilot.Node{Name: words[1], Open: !has("closed"), FreeCPU: number("cpu"), SpareCPU: number("spare"), FreeMem: number("mem"), FreeGPU: map[string]int64{"h100": number("gpu")}}
			for _, id := range list("holds") {
				n.Holds = append(n.Holds, spec.ForeignHold{ID: id, Space: "web", Owner: id})
			}
			nodes = append(nodes, n)
		}
	}
	return pods, nodes
}

func show(p copilot.Plan) string {
	var b strings.Builder
	for _, r := range p.Releases {
		fmt.Fprintf(&b, "release %s on %s: %s, confirm %v\n", r.Hold, r.Node, r.Why, r.Confirm)
	}
	for _, l := range p.LetGo {
		fmt.Fprintf(&b, "let go %s to %s\n", l.Pod.UID, l.Node)
	}
	for _, k := range p.Takes {
		fmt.Fprintf(&b, "take %s on %s, running %v\n", k.Pod.UID, k.Node, k.Running)
	}
	for _, w := range p.Waits {
		fmt.Fprintf(&b, "wait %s: %s\n", w.Pod.UID, w.Why)
	}
	return b.String()
}

// TestGone: a hold of a pod that was not seen goes only if a fresh look does not
// see it either.
func TestGone(t *testing.T) {
	r := copilot.Release{Node: "n1", Hold: "a", Why: "deleted", Confirm: true}
	for _, c := range []struct {
		now  *copilot.Pod
		want bool
	}{
		{nil, true},
		{&copilot.Pod{UID: "another", Node: "n1"}, true},
		{&copilot.Pod{UID: "a", Over: true, Node: "n1"}, true},
		{&copilot.Pod{UID: "a", Node: "n1"}, false},
		{&copilot.Pod{UID: "a", Gated: true}, false},
		{&copilot.Pod{UID: "a", Gated: true, Deleting: true}, false},
	} {
		if got := copilot.Gone(r, c.now); got != c.want {
			t.Errorf("%+v: %v, want %v", c.now, got, c.want)
		}
	}
}
