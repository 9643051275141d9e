package findings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// findUneven is about runs on several nodes whose nodes worked unevenly: those that
// were less active waited, for a node or for a part of the program.
func findUneven(list []Spread) []Finding {
	var out []Finding
	for _, s := range list {
		if s.Runs == 0 || s.Waited < MinAway {
			continue
		}
		f := Finding{
			Kind:     Straggler,
			User:     s.User,
			Account:  s.Account,
			JobName:  s.JobName,
			Resource: s.Resource,
			Runs:     s.Runs,
			Basis:    s.Held,
		}
		if s.Resource == GPUTime {
			f.Step = "good"
			f.GPU = s.Waited
			f.Open = s.Open
		} else {
			f.CPU = s.Waited
		}
		switch {
		case s.LateRuns >= MinRuns && 2*s.LateRuns > s.Runs:
			f.Advice = fmt.Sprintf("in %d of %d uneven runs the other nodes waited for %s: leave it out, "+
				"and look at its clocks, its fabric and its disks", s.LateRuns, s.Runs, s.Late)
			f.Change = "#SBATCH --exclude=" + s.Late
		case s.BehindRuns >= MinRuns && 2*s.BehindRuns > s.Runs:
			f.Advice = fmt.Sprintf("in %d of %d uneven runs %s did less than most other nodes: see what "+
				"its ranks get to do, and whether all of them started", s.BehindRuns, s.Runs, s.Behind)
		default:
			f.Advice = fmt.Sprintf("the nodes of %s on several nodes waited for the busiest of them: "+
				"divide the work evenly, or ask for fewer nodes", ofRuns(s.Runs, s.AllRuns))
		}
		out = append(out, f)
	}
	return out
}

func ofRuns(n, all int64) string {
	if all == 1 {
		return "the run"
	}
	return fmt.Sprintf("%d of %d runs", n, all)
}

// groupPeers divides what was measured into lists of the same work, in the order of its key.
// Work with fewer than MinRuns others to compare one with is left out.
func groupPeers[T any](list []T, work func(T) string) [][]T {
	byWork := map[string][]T{}
	for _, measured := range list {
		k := work(measured)
		byWork[k] = append(byWork[k], measured)
	}
	var out [][]T
	for _, k := range slices.Sorted(maps.Keys(byWork)) {
		if len(byWork[k]) > MinRuns {
			out = append(out, byWork[k])
		}
	}
	return out
}

// medianOfOthers is the median of a sorted list without its element i.
func medianOfOthers[T any](sorted []T, i int) T {
	middle := (len(sorted) - 1) / 2
	if i <= middle {
		middle++
	}
	return sorted[middle]
}

// sameWork is equal for places that are compared with each other.
func (p Place) sameWork() string {
	return strings.Join([]string{p.User, p.Account, p.JobName, fmt.Sprint(p.GPUs)}, "\x00")
}

// sameWork is equal for devices that are compared with each other.
func (d Device) sameWork() string {
	return strings.Join([]string{d.User, d.Account, d.JobName, d.Type, fmt.Sprint(d.MemMHz)}, "\x00")
}

// findSlowGPUs compares the clock that GPUs reach at full load under the same
// programs: a device with the median of the other devices.
func findSlowGPUs(devices []Device) []Finding {
	var loaded []Device
	basis := map[string]int64{}
	for _, d := range devices {
		basis[d.UUID] += d.Alone
		if d.Load >= MinLoad && d.MHz > 0 {
			loaded = append(loaded, d)
		}
	}
	slow := map[string]*slowGPU{}
	for _, same := range groupPeers(loaded, Device.sameWork) {
		slices.SortFunc(same, func(a, b Device) int {
			return cmp.Or(cmp.Compare(a.MHz, b.MHz), cmp.Compare(a.UUID, b.UUID))
		})
		for i, d := range same {
			usual := medianOfOthers(same, i).MHz
			if d.MHz*10 > usual*slowTenths {
				break // those that follow have higher clocks, and others with a lower median
			}
			s := slow[d.UUID]
			if s == nil {
				s = &slowGPU{node: d.Node, uuid: d.UUID, index: d.Index}
				slow[d.UUID] = s
			}
			s.add(d, usual, int64(len(same)-1))
		}
	}
	out := make([]Finding, 0, len(slow))
	for _, uuid := range slices.Sorted(maps.Keys(slow)) {
		out = append(out, slow[uuid].finding(basis[uuid]))
	}
	return out
}

// slowGPU is what is known of one slow device, over all programs.
type slowGPU struct {
	node, uuid               string
	index                    int64
	runs, load, throttled    int64
	lost, open               int64
	worst, worstUsual, peers int64 // of the programs under which it is slowest
}

func (s *slowGPU) add(d Device, usual, peers int64) {
	s.runs += d.Runs
	s.load += d.Load
	s.throttled += d.Throttled
	open := scale(d.Open, usual-d.MHz, usual)
	s.open += open
	s.lost += open + scale(d.Alone-d.Open, usual-d.MHz, usual)
	if s.worst == 0 || d.MHz*s.worstUsual < s.worst*usual {
		s.worst = d.MHz
		s.worstUsual = usual
		s.peers = peers
	}
}

func (s *slowGPU) finding(basis int64) Finding {
	f := Finding{
		Kind:     SlowGPU,
		Node:     s.node,
		Device:   s.uuid,
		Index:    s.index,
		Resource: GPUTime,
		Step:     "good",
		Runs:     s.runs,
		GPU:      s.lost,
		Open:     s.open,
		Basis:    basis,
	}
	f.Advice = fmt.Sprintf("GPU %d runs at %d MHz under full load, %d others at %d MHz under the same programs",
		s.index, s.worst, s.peers, s.worstUsual)
	if s.throttled*10 >= s.load {
		f.Advice += fmt.Sprintf("; heat or power held it down for %d %% of that time: look at cooling and power",
			100*s.throttled/s.load)
	} else {
		f.Advice += ": look at its power limit, its locked clocks and its ECC errors (muster gpu)"
	}
	f.Change = fmt.Sprintf("scontrol update nodename=%s state=drain reason=\"GPU %d is slower than its peers\"",
		s.node, s.index)
	return f
}

// withoutDevices takes from slow nodes what their slow devices explain.
func withoutDevices(nodes, devices []Finding) []Finding {
	lost := map[string]int64{}
	for i := range devices {
		lost[devices[i].Node] += devices[i].GPU
	}
	for i := range nodes {
		nodes[i].GPU -= min(nodes[i].GPU, lost[nodes[i].Node])
	}
	return nodes
}
