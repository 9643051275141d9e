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
	var findings []Finding
	for _, spread := range list {
		if spread.Runs == 0 || spread.Waited < MinAway {
			continue
		}
		f := Finding{
			Kind:     Straggler,
			User:     spread.User,
			Account:  spread.Account,
			JobName:  spread.JobName,
			Resource: spread.Resource,
			Runs:     spread.Runs,
			Basis:    spread.Held,
		}
		if spread.Resource == GPUTime {
			f.Step = "good"
			f.GPU = spread.Waited
			f.Open = spread.Open
		} else {
			f.CPU = spread.Waited
		}
		switch {
		case spread.LateRuns >= MinRuns && 2*spread.LateRuns > spread.Runs:
			f.Advice = fmt.Sprintf("in %d of %d uneven runs the other nodes waited for %s: leave it out, "+
				"and look at its clocks, its fabric and its disks", spread.LateRuns, spread.Runs,
				spread.Late)
			f.Change = "#SBATCH --exclude=" + spread.Late
		case spread.BehindRuns >= MinRuns && 2*spread.BehindRuns > spread.Runs:
			f.Advice = fmt.Sprintf("in %d of %d uneven runs %s did less than most other nodes: see what "+
				"its ranks get to do, and whether all of them started", spread.BehindRuns,
				spread.Runs, spread.Behind)
		default:
			f.Advice = fmt.Sprintf("the nodes of %s on several nodes waited for the busiest of them: "+
				"divide the work evenly, or ask for fewer nodes", ofRuns(
				spread.Runs, spread.AllRuns,
			))
		}
		findings = append(findings, f)
	}
	return findings
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
	for _, device := range devices {
		basis[device.UUID] += device.Alone
		if device.Load >= MinLoad && device.MHz > 0 {
			loaded = append(loaded, device)
		}
	}
	slow := map[string]*slowGPU{}
	for _, same := range groupPeers(loaded, Device.sameWork) {
		slices.SortFunc(same, func(a, b Device) int {
			return cmp.Or(cmp.Compare(a.MHz, b.MHz), cmp.Compare(a.UUID, b.UUID))
		})
		for i, device := range same {
			usual := medianOfOthers(same, i).MHz
			if device.MHz*10 > usual*slowTenths {
				break // those that follow have higher clocks, and others with a lower median
			}
			gpu := slow[device.UUID]
			if gpu == nil {
				gpu = &slowGPU{node: device.Node, uuid: device.UUID, index: device.Index}
				slow[device.UUID] = gpu
			}
			gpu.add(device, usual, int64(len(same)-1))
		}
	}
	findings := make([]Finding, 0, len(slow))
	for _, uuid := range slices.Sorted(maps.Keys(slow)) {
		findings = append(findings, slow[uuid].finding(basis[uuid]))
	}
	return findings
}

// slowGPU is what is known of one slow device, over all programs.
type slowGPU struct {
	node, uuid               string
	index                    int64
	runs, load, throttled    int64
	lost, open               int64
	worst, worstUsual, peers int64 // of the programs under which it is slowest
}

func (s *slowGPU) add(device Device, usual, peers int64) {
	s.runs += device.Runs
	s.load += device.Load
	s.throttled += device.Throttled
	open := scale(device.Open, usual-device.MHz, usual)
	s.open += open
	s.lost += open + scale(device.Alone-device.Open, usual-device.MHz, usual)
	if s.worst == 0 || device.MHz*s.worstUsual < s.worst*usual {
		s.worst = device.MHz
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
