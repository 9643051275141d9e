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
	for k, usage := range s.gone {
		if sums[k] != nil {
			gone[k] = usage
		}
	}
	for key, usage := range s.last {
		k := attempt{spec.JobUID(key.Job), key.Attempt}
		if _, runs := now[key]; !runs && sums[k] != nil {
			usage.RSS = 0
			usage.VM = 0
			usage.Procs = 0
			sum := gone[k]
			addUsage(&sum, &usage)
			gone[k] = sum
		}
	}
	s.last, s.gone = now, gone
	usages := make([]JobUsage, 0, len(order))
	for _, k := range order {
		if usage, some := gone[k]; some {
			addUsage(sums[k], &usage)
		}
		usages = append(usages, JobUsage{UID: k.job, Attempt: k.try, Usage: *sums[k]})
	}
	return usages
}

func addUsage(sum, usage *plan.Usage) {
	sum.UserCPU += usage.UserCPU
	sum.SystemCPU += usage.SystemCPU
	sum.RSS += usage.RSS
	sum.VM += usage.VM
	sum.PeakRSS = max(sum.PeakRSS, usage.PeakRSS)
	sum.PeakVM = max(sum.PeakVM, usage.PeakVM)
	sum.PeakGroup = max(sum.PeakGroup, usage.PeakGroup)
	sum.ReadB += usage.ReadB
	sum.WriteB += usage.WriteB
	sum.MinFaults += usage.MinFaults
	sum.MajFaults += usage.MajFaults
	sum.OOMKills += usage.OOMKills
	sum.Procs += usage.Procs
	sum.Counters = sum.Counters.Add(usage.Counters)
}
