package daemon

import (
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// jobSums adds up what the runs of each job use: its batch script and its
// steps. What a step has used stays in the sum when it has ended, so that the
// counters of a job do not fall.
type jobSums struct {
	last map[plan.RunKey]plan.Usage
	gone map[attempt]plan.Usage
}

// addReading takes a reading of all runs and gives the jobs', in the order in which
// they are first named.
func (s *jobSums) addReading(list []plan.Usage) []JobUsage {
	now := make(map[plan.RunKey]plan.Usage, len(list))
	var order []attempt
	sums := map[attempt]*plan.Usage{}
	for i := range list {
		k := attempt{spec.JobUID(list[i].Key.Job), list[i].Key.Attempt}
		now[list[i].Key] = list[i]
		if sums[k] == nil {
			order, sums[k] = append(order, k), &plan.Usage{Key: jobKey(list[i].Key)}
		}
		addUsage(sums[k], &list[i])
	}
	gone := map[attempt]plan.Usage{}
	for k, u := range s.gone {
		if sums[k] != nil {
			gone[k] = u
		}
	}
	for key, u := range s.last {
		k := attempt{spec.JobUID(key.Job), key.Attempt}
		if _, runs := now[key]; !runs && sums[k] != nil {
			u.RSS = 0
			u.VM = 0
			u.Procs = 0
			sum := gone[k]
			addUsage(&sum, &u)
			gone[k] = sum
		}
	}
	s.last, s.gone = now, gone
	out := make([]JobUsage, 0, len(order))
	for _, k := range order {
		if u, some := gone[k]; some {
			addUsage(sums[k], &u)
		}
		out = append(out, JobUsage{UID: k.job, Attempt: k.try, Usage: *sums[k]})
	}
	return out
}

func addUsage(sum, u *plan.Usage) {
	sum.UserCPU += u.UserCPU
	sum.SystemCPU += u.SystemCPU
	sum.RSS += u.RSS
	sum.VM += u.VM
	sum.PeakRSS = max(sum.PeakRSS, u.PeakRSS)
	sum.PeakVM = max(sum.PeakVM, u.PeakVM)
	sum.PeakGroup = max(sum.PeakGroup, u.PeakGroup)
	sum.ReadB += u.ReadB
	sum.WriteB += u.WriteB
	sum.MinFaults += u.MinFaults
	sum.MajFaults += u.MajFaults
	sum.OOMKills += u.OOMKills
	sum.Procs += u.Procs
}
