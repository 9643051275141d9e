package findings_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/findings"
)

const second = 1_000_000

// TestSlowNode compares the same work on four nodes by hand: on n4 it takes 150 s,
// elsewhere 100 s. 3 runs with 2 GPUs lose 50 s each there: 300 GPU-seconds.
func TestSlowNode(t *testing.T) {
	place := func(node string, took int64) findings.Place {
		return findings.Place{User: "ada", JobName: "train", Node: node, GPUs: 2, Runs: 3,
			Median: took * second, Total: 3 * took * second, Had: 6 * took * second}
	}
	seen := findings.Seen{Places: []findings.Place{
		place("n1", 100), place("n2", 101), place("n3", 100), place("n4", 150),
	}}
	got := findings.Find(seen)
	if len(got) != 1 || got[0].Kind != findings.Slow || got[0].Node != "n4" ||
		got[0].GPU != 300*second || got[0].Basis != 900*second || got[0].Step != "good" {
		t.Errorf("found %+v", got)
	}
	seen.Places = seen.Places[1:] // two others tell nothing
	if got := findings.Find(seen); len(got) != 0 {
		t.Errorf("with two peers: found %+v", got)
	}
}

// TestBadNode: runs that a node ended are the node's, whoever ran them.
func TestBadNode(t *testing.T) {
	got := findings.Find(findings.Seen{Work: []findings.Work{
		{Node: "n7", Outcome: findings.NodeFailed, Runs: 2, GPUHeld: 10 * second, CPUHeld: 20 * second},
	}})
	want := `scontrol update nodename=n7 state=drain reason="failed under 2 runs"`
	if len(got) != 1 || got[0].Kind != findings.BadNode || got[0].GPU != 10*second ||
		got[0].CPU != 20*second || got[0].Change != want {
		t.Errorf("found %+v", got)
	}
}

// TestAccidents: two failures are no finding, three are.
func TestAccidents(t *testing.T) {
	for runs, want := range map[int64]int{1: 0, 2: 0, 3: 1} {
		got := findings.Find(findings.Seen{Work: []findings.Work{
			{User: "ada", Outcome: findings.EarlyFailure, Runs: runs, GPUHeld: runs * second},
		}})
		if len(got) != want {
			t.Errorf("%d failures: %d findings, want %d", runs, len(got), want)
		}
	}
}

// TestNeverTwice: whatever is seen, findings take no more of a step than it has,
// nothing negative, and steps and rests add up.
func TestNeverTwice(t *testing.T) {
	outcomes := []findings.Outcome{
		findings.Ended, findings.EarlyFailure, findings.LateFailure, findings.LimitReached,
		findings.MemoryRanOut, findings.WasPreempted, findings.Other,
	}
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(0, 1<<40)
		var seen findings.Seen
		for _, user := range []string{"a", "b", "c"} {
			for _, o := range outcomes {
				seen.Work = append(seen.Work, findings.Work{
					User: user, Outcome: o, Runs: rapid.Int64Range(1, 5).Draw(t, "runs"),
					GPUHeld: amount.Draw(t, "held"), AllIdle: amount.Draw(t, "idle"),
					NeverUsed: amount.Draw(t, "never"), Between: amount.Draw(t, "between"),
				})
			}
		}
		for _, node := range []string{"n1", "n2"} {
			seen.Nodes = append(seen.Nodes, findings.Node{
				Name: node, Bought: 1 << 41,
				Drained: amount.Draw(t, "drained"), Down: amount.Draw(t, "down"),
			})
		}
		for _, step := range []string{"good", "held_idle", "failed_user", "failed_timeout",
			"failed_memory", "preempted", "drained", "down", "unallocated"} {
			seen.Steps = append(seen.Steps, findings.Step{Name: step, GPU: amount.Draw(t, step)})
		}
		list := findings.Find(seen)
		total := int64(0)
		for _, f := range list {
			if f.GPU < 0 || f.CPU < 0 || f.Mem < 0 {
				t.Fatalf("negative: %+v", f)
			}
			total += f.GPU
		}
		for _, line := range findings.AddUp(list, seen.Steps) {
			if line.Rest() < 0 || line.Found < 0 {
				t.Fatalf("step %s has %d, findings take %d", line.Name, line.GPU, line.Found)
			}
			total -= line.Found
		}
		if total != 0 {
			t.Fatalf("%d GPU microseconds of findings are of no step", total)
		}
	})
}

// TestAwayForAMoment: that a node was away for so little that its hours are listed as
// 0.00 is no finding, and its time stays in the rest of the ladder.
func TestAwayForAMoment(t *testing.T) {
	steps := []findings.Step{
		{Name: "drained", GPU: 2*findings.MinAway - 1},
		{Name: "down", GPU: 2*findings.MinAway - 1},
	}
	list := findings.Find(findings.Seen{
		Nodes: []findings.Node{
			{Name: "n1", Bought: 3600 * second, Drained: findings.MinAway - 1, Down: findings.MinAway},
			{Name: "n2", Bought: 3600 * second, Drained: findings.MinAway, Down: findings.MinAway - 1},
		},
		Steps: steps,
	})
	got := ""
	for _, f := range list {
		got += fmt.Sprintf("%s %s %d\n", f.Kind, f.Node, f.GPU)
	}
	want := fmt.Sprintf("down n1 %d\ndrained n2 %d\n", findings.MinAway, findings.MinAway)
	if got != want {
		t.Errorf("found:\n%swant:\n%s", got, want)
	}
	for _, line := range findings.AddUp(list, steps) {
		if line.Found != findings.MinAway || line.Rest() != findings.MinAway-1 {
			t.Errorf("step %s: %d found, %d left", line.Name, line.Found, line.Rest())
		}
	}
}

// TestFollowUp reckons rates by hand: 40 of 100 s were wasted.
func TestFollowUp(t *testing.T) {
	see := func(held, idle int64) findings.Seen {
		return findings.Seen{Work: []findings.Work{
			{User: "ada", Outcome: findings.Ended, Runs: 3, GPUHeld: held * second, AllIdle: idle * second},
		}}
	}
	before := findings.Find(see(100, 40))
	for _, c := range []struct {
		held, idle int64
		want       string
	}{
		{100, 0, "done 40"},
		{100, 20, "done 20"},
		{100, 36, "better 4"},
		{100, 37, "not done 3"},
		{200, 90, "not done 0"},
		{50, 20, "not done 0"}, // half as much, and no better
		{50, 10, "done 10"},
		{0, 0, "no runs 0"},
	} {
		seen := see(c.held, c.idle)
		if c.held == 0 {
			seen.Work = nil
		}
		list := findings.FollowUp(before, seen, findings.Price{GPU: 3600})
		got := fmt.Sprint(list[0].Progress, " ", list[0].Saved/second)
		if got != c.want || list[0].SavedMoney != list[0].Saved/second {
			t.Errorf("%d of %d s: %s worth %d, want %s", c.idle, c.held, got, list[0].SavedMoney, c.want)
		}
	}
}

// TestRank: money first, where there are prices, then GPU time.
func TestRank(t *testing.T) {
	list := []findings.Finding{
		{Kind: findings.Idle, User: "a", GPU: 3600 * second},
		{Kind: findings.CPUs, User: "b", CPU: 36000 * second},
		{Kind: findings.Memory, User: "c", Mem: 1024 * 3600 * second},
	}
	order := func() (out string) {
		for _, f := range list {
			out += f.User
		}
		return out
	}
	findings.Rank(list, findings.Price{})
	if order() != "abc" {
		t.Errorf("without prices: %s", order())
	}
	findings.Rank(list, findings.Price{GPU: 500, CPU: 100, Mem: 700})
	if order() != "bca" || list[0].Money != 1000 || list[1].Money != 700 || list[2].Money != 500 {
		t.Errorf("with prices: %s %+v", order(), list)
	}
}

// TestSlowNodeOfSlowGPU: of the 300 GPU-seconds of TestSlowNode a device with a clock of 1200
// instead of 1600 MHz explains 100 of 400 s, which are not counted again for its node.
func TestSlowNodeOfSlowGPU(t *testing.T) {
	seen := findings.Seen{}
	for i, took := range []int64{100, 101, 100, 150} {
		node := fmt.Sprintf("n%d", i+1)
		seen.Places = append(seen.Places, findings.Place{
			User: "ada", JobName: "train", Node: node, GPUs: 2, Runs: 3,
			Median: took * second, Total: 3 * took * second, Had: 6 * took * second,
		})
		mhz := int64(1600)
		if node == "n4" {
			mhz = 1200
		}
		seen.Devices = append(seen.Devices, findings.Device{
			User: "ada", JobName: "train", Node: node, UUID: "GPU-" + node, Runs: 3,
			Load: findings.MinLoad, MHz: mhz, Alone: 400 * second,
		})
	}
	got := map[findings.Kind]int64{}
	for _, f := range findings.Find(seen) {
		if f.Node != "n4" {
			t.Errorf("found %+v", f)
		}
		got[f.Kind] += f.GPU
	}
	if got[findings.SlowGPU] != 100*second || got[findings.Slow] != 200*second {
		t.Errorf("found %v", got)
	}
}

// TestTwoSlowGPUs: the median of the other three is 1600 MHz for each of two slow devices of four.
func TestTwoSlowGPUs(t *testing.T) {
	seen := findings.Seen{}
	for i, mhz := range []int64{1600, 1200, 1600, 1200} {
		seen.Devices = append(seen.Devices, findings.Device{
			User: "ada", JobName: "train", Node: "n1", UUID: fmt.Sprintf("GPU-%d", i), Index: int64(i),
			Runs: 1, Load: findings.MinLoad, MHz: mhz, Alone: 400 * second,
		})
	}
	var got []int64
	for _, f := range findings.Find(seen) {
		if f.Kind != findings.SlowGPU || f.GPU != 100*second {
			t.Errorf("found %+v", f)
		}
		got = append(got, f.Index)
	}
	if fmt.Sprint(got) != "[1 3]" {
		t.Errorf("GPUs %v are slow", got)
	}
}
