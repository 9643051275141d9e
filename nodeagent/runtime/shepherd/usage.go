//go:build linux

package shepherd

import (
	"os"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/spec"
)

// tickLength is one clock tick of /proc: USER_HZ is 100 on every platform
// that Linux's ABI knows.
const tickLength = 10 * spec.Millisecond

// readUsage gives the use so far of the named running runs, or of all.
func (s *Shepherd) readUsage(keys []plan.RunKey) []plan.Usage {
	s.mu.Lock()
	var list []*run
	if len(keys) == 0 {
		for _, r := range s.runs {
			list = append(list, r)
		}
	}
	for _, key := range keys {
		if r := s.runs[key]; r != nil {
			list = append(list, r)
		}
	}
	s.mu.Unlock()
	var usages []plan.Usage
	clocks := proc.NewClocks()
	for _, r := range list {
		if usage, ok := s.usageOf(r, clocks); ok {
			usages = append(usages, usage)
		}
	}
	return usages
}

// usageOf sums the tree. CPU time is the group's counter where there is one,
// else that of the living processes and the children they have waited for.
func (s *Shepherd) usageOf(r *run, clocks *proc.Clocks) (plan.Usage, bool) {
	s.mu.Lock()
	group, state := r.group, r.state
	if state == plan.Exited {
		u := r.exit.Usage
		s.mu.Unlock()
		return u, true
	}
	s.mu.Unlock()
	if state == plan.Starting {
		return plan.Usage{}, false
	}
	pids, err := s.listMembers(r)
	if err != nil {
		return plan.Usage{}, false
	}
	usage := plan.Usage{Key: r.Key, PIDs: make([]int32, 0, len(pids))}
	page := int64(os.Getpagesize())
	var ticks, speed uint64 // CPU time of the living processes, and that times the frequency of their CPUs in MHz
	for _, pid := range pids {
		stat, err := proc.ReadStat(pid)
		if err != nil {
			continue
		}
		if r.Minded && pid == r.PID { // of the user's doing are only the tasks that have ended
			usage.UserCPU += spec.Span(stat.ChildUser) * tickLength
			usage.SystemCPU += spec.Span(stat.ChildSystem) * tickLength
			continue
		}
		usage.UserCPU += spec.Span(stat.User+stat.ChildUser) * tickLength
		usage.SystemCPU += spec.Span(stat.System+stat.ChildSystem) * tickLength
		if mhz := clocks.MHz(stat.CPU); mhz > 0 {
			ticks, speed = ticks+stat.User+stat.System+1, speed+(stat.User+stat.System+1)*mhz
		}
		usage.RSS += stat.RSSPages * page
		usage.VM += stat.VM
		usage.PIDs = append(usage.PIDs, int32(pid))
		usage.MinFaults += int64(stat.MinFaults + stat.ChildMinFaults)
		usage.MajFaults += int64(stat.MajFaults + stat.ChildMajFaults)
		rd, wr := proc.IO(pid)
		usage.ReadB += rd
		usage.WriteB += wr
	}
	usage.Procs = int32(len(usage.PIDs))
	if st, err := group.Stats(); err == nil && group != nil {
		usage.UserCPU, usage.SystemCPU = st.User, max(st.CPU-st.User, 0)
		usage.PeakGroup, usage.OOMKills = st.Peak, st.OOMKills
		addGroup(&usage, &st)
		usage.Group = group.ID()
	}
	// Switches are known at the end only: /proc has those of the first thread.
	usage.Counters = usage.Counters.With(spec.CounterMinFaults, usage.MinFaults)
	s.mu.Lock()
	r.peakRSS = max(r.peakRSS, usage.RSS)
	r.peakVM = max(r.peakVM, usage.VM)
	usage.PeakRSS, usage.PeakVM = r.peakRSS, r.peakVM
	if ticks > 0 {
		cpu := usage.UserCPU + usage.SystemCPU
		r.khz = spec.MeanKHz(r.khz, r.khzCPU, int64(speed/ticks)*1000, cpu-r.khzCPU)
		r.khzCPU = max(r.khzCPU, cpu)
	}
	usage.KHz = r.khz
	s.mu.Unlock()
	return usage, true
}

// addGroup completes the use of a run by what its control group counts. The counters
// of block devices have what the kernel wrote later for the run, which those of its
// processes have not.
func addGroup(usage *plan.Usage, stats *cgroup.Stats) {
	if stats.HasIO {
		usage.ReadB, usage.WriteB = stats.Read, stats.Write
	}
	usage.Counters = usage.Counters.Add(stats.Counters)
}

// addSwitches writes the faults and switches of processes that have ended as counters.
func addSwitches(usage *plan.Usage) {
	usage.Counters = usage.Counters.
		With(spec.CounterMinFaults, usage.MinFaults).
		With(spec.CounterVolSwitches, usage.VolSwitch).
		With(spec.CounterInvSwitches, usage.InvSwitch)
}
