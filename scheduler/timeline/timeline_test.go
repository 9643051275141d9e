package timeline_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/decide"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
	"pgregory.net/rapid"
)

const (
	start       = spec.Instant(1_000_000 * int64(spec.Second))
	nodeCount   = 4
	cpusOfANode = 8
)

// cluster is a state with idle nodes of one size.
func cluster(t interface{ Fatal(...any) }) *state.State {
	conf := fmt.Sprintf("ClusterName=test\nSelectTypeParameters=CR_CPU\nNodeName=n[1-%d] CPUs=%d RealMemory=1000\nPartitionName=main Nodes=ALL Default=YES\n", nodeCount, cpusOfANode)
	file, _ := slurmconf.ReadCluster(fstest.MapFS{"slurm.conf": {Data: []byte(conf)}}, "slurm.conf")
	tr := trial.On(state.New(), start, event.Actor{}, "")
	commands := []decide.Command{
		decide.Policy{Events: []event.Event{&event.ClusterCreated{Name: "test", Version: event.Version}}},
		decide.Configure{Config: &file.Config},
	}
	for i := range nodeCount {
		inventory := spec.Inventory{CPUs: cpusOfANode, Mem: 1000, BootID: "first"}
		commands = append(commands, decide.RegisterNode{Node: fmt.Sprint("n", i+1), Inventory: inventory})
	}
	for _, command := range commands {
		if _, err := decide.Decide(tr, command); err != nil {
			t.Fatal(err)
		}
	}
	return tr.Freeze()
}

// promised is what the model knows of a promise: CPUs of some nodes for a while.
type promised struct {
	uid   spec.JobUID
	slot  timeline.Slot
	limit spec.Span
	cpus  int64
}

func (p *promised) end() spec.Instant { return p.slot.Start.Add(p.limit) }

// fits tells whether a node has some CPUs free throughout a span. Use is greatest at
// the beginning of the span or of a promise within it.
func fits(made []promised, node spec.NodeID, cpus int64, from, to spec.Instant) bool {
	instants := []spec.Instant{from}
	for i := range made {
		if made[i].slot.Start > from && made[i].slot.Start < to {
			instants = append(instants, made[i].slot.Start)
		}
	}
	for _, at := range instants {
		used := cpus
		for i := range made {
			if at < made[i].slot.Start || at >= made[i].end() {
				continue
			}
			for k := range made[i].slot.Parts {
				if made[i].slot.Parts[k].Node.ID == node {
					used += made[i].cpus
				}
			}
		}
		if used > cpusOfANode {
			return false
		}
	}
	return true
}

// reservedNode keeps jobs off a node for a while, as bars and as the model knows it.
func reservedNode(node *state.Node) (timeline.Bars, []promised) {
	from, limit := start.Add(2*spec.Minute), 3*spec.Minute
	bar := timeline.Bar{
		Nodes:   spec.Bitset{}.Set(int(node.ID)),
		Windows: []timeline.Window{{From: from, To: from.Add(limit)}},
	}
	all := timeline.Slot{Start: from, Parts: []place.Part{{Node: node}}}
	return timeline.Bars{Key: "reserved", List: []timeline.Bar{bar}},
		[]promised{{slot: all, limit: limit, cpus: cpusOfANode}}
}

// Each job gets the first start at which enough nodes can hold it for its whole time
// limit, beside all promises made before and not given back since, and on no node while
// it is reserved: never one that these stand in the way of, and never a later one. A
// model that knows only the list of promises says the same as the timeline with its
// indexes.
func TestEarliestIsTheFirstStartThatFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := cluster(rt)
		part := &st.Parts.List[0]
		line := timeline.New(st, start, spec.Second, part.Nodes, nil)
		sizes := cpusOfANode
		widths := nodeCount
		minutes := 6
		if rapid.Bool().Draw(rt, "in order") {
			line.RankAlways()
			sizes = 2 // so that the same is asked for often
			widths = 2
			minutes = 2
		}
		bars, barred := timeline.Bars{}, []promised(nil)
		if rapid.Bool().Draw(rt, "a node is reserved") {
			bars, barred = reservedNode(st.Node("n1"))
		}
		var made []promised
		for uid := spec.JobUID(1); uid <= 20; uid++ {
			if len(made) > 0 && rapid.IntRange(0, 3).Draw(rt, "give one back") == 0 {
				at := rapid.IntRange(0, len(made)-1).Draw(rt, "which")
				back := made[at]
				line.Forget(back.slot.Parts, back.slot.Start, back.limit, back.uid)
				made = append(made[:at:at], made[at+1:]...)
			}
			nodes := rapid.IntRange(1, widths).Draw(rt, "nodes")
			cpus := cpusOfANode - rapid.IntRange(1, sizes).Draw(rt, "less CPUs of each") + 1
			limit := spec.Span(rapid.IntRange(1, minutes).Draw(rt, "minutes")) * spec.Minute
			js := &spec.JobSpec{Partitions: []string{"main"}, Time: spec.TimeAsk{Limit: limit}, Size: spec.Size{
				MinNodes: uint32(nodes), MaxNodes: uint32(nodes), Tasks: uint32(nodes), TasksPerNode: 1, CPUsPerTask: uint32(cpus)}}
			demand := place.Resolve(st.Config, part.Spec, js)
			query := line.NewQuery(demand, part.Nodes, place.Options{}, bars)
			slot, ok := line.Earliest(query, spec.FarFuture, nil)
			if !ok || len(slot.Parts) != nodes {
				rt.Fatalf("job %d on %d nodes: found %v with %d parts", uid, nodes, ok, len(slot.Parts))
			}
			taken := append(slices.Clone(made), barred...)
			for i := range slot.Parts {
				if id := slot.Parts[i].Node.ID; !fits(taken, id, int64(cpus), slot.Start, slot.Start.Add(limit)) {
					rt.Fatalf("job %d at +%d s: node %d is promised to others", uid, slot.Start.Sub(start).Seconds(), id)
				}
			}
			candidates := []spec.Instant{start}
			for i := range taken {
				candidates = append(candidates, taken[i].end())
			}
			for _, at := range candidates {
				free := 0
				for id := part.Nodes.Next(0); id >= 0; id = part.Nodes.Next(id + 1) {
					if fits(taken, spec.NodeID(id), int64(cpus), at, at.Add(limit)) {
						free++
					}
				}
				if at < slot.Start && free >= nodes {
					rt.Fatalf("job %d starts at +%d s, and could at +%d s", uid, slot.Start.Sub(start).Seconds(), at.Sub(start).Seconds())
				}
			}
			line.Promise(slot.Parts, slot.Start, limit, uid)
			made = append(made, promised{uid: uid, slot: slot, limit: limit, cpus: int64(cpus)})
		}
	})
}
