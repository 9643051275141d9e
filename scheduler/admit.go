package scheduler

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/resv"
	"github.com/musterhpc/muster/spec"
)

// reasonMaxMem is Slurm's reason for a job over MaxMemPerNode.
const reasonMaxMem spec.ReasonCode = "MaxMemPerLimit"

// bar is why a partition does not take a job: as a refusal at submission and
// as a reason to wait. Where EnforcePartLimits is NO a job waits in front of
// most bars, since the partition may change; always ones refuse it.
type bar struct {
	code   spec.Code
	reason spec.Reason
	always bool
}

// barred says what keeps a job out of a partition, or nil.
func barred(st *state.State, p *state.Partition, js *spec.JobSpec, d *place.Demand) *bar {
	ps, cfg, own, who := p.Spec, st.Config, st.Policy.FindQOS(js.QOS), p.Subject
	free := func(flag string) bool { return own != nil && own.HasFlag(flag) }
	access := func(code spec.Code, detail string) *bar {
		return &bar{code, spec.Reason{Code: spec.ReasonPartitionConfig, Subject: who, Detail: detail}, true}
	}
	switch {
	case ps.RootOnly && js.UID != 0:
		return access(spec.CodeAccessDenied, "RootOnly=YES")
	case ps.DisableRootJobs && js.UID == 0:
		return access(spec.CodeAccessDenied, "DisableRootJobs=YES")
	case len(ps.AllowGroups) > 0 && !slices.Contains(ps.AllowGroups, js.Group) && js.UID != 0:
		return access(spec.CodeGroupNotPermitted, "AllowGroups does not name "+js.Group)
	case ps.ReqResv && js.Place.Reservation == "":
		return access(spec.CodeReservationDenied, "ReqResv=YES")
	case len(ps.AllowAccounts) > 0 && !slices.Contains(ps.AllowAccounts, js.Account),
		len(ps.AllowAccounts) == 0 && slices.Contains(ps.DenyAccounts, js.Account):
		return &bar{code: spec.CodeInvalidAccount, reason: spec.Reason{Code: spec.ReasonAccountNotAllowed, Subject: who}}
	case len(ps.AllowQOS) > 0 && !slices.Contains(ps.AllowQOS, js.QOS),
		len(ps.AllowQOS) == 0 && slices.Contains(ps.DenyQOS, js.QOS):
		return &bar{code: spec.CodeInvalidQOS, reason: spec.Reason{Code: spec.ReasonQOSNotAllowed, Subject: who}}
	case over(d.Limit, ps.MaxTime) && !free("PartitionTimeLimit"):
		return &bar{code: spec.CodeInvalidTimeLimit, reason: spec.Reason{Code: spec.ReasonPartitionTimeLimit, TRES: "time",
			Limit: ps.MaxTime.Seconds(), Asked: d.Limit.Seconds(), Subject: who}}
	}
	total := int64(p.Nodes.Count())
	if ps.MaxNodes > 0 && !free("PartitionMaxNodes") {
		total = min(total, int64(ps.MaxNodes))
	}
	if d.MinNodes > total || (d.MaxNodes < int64(ps.MinNodes) && !free("PartitionMinNodes")) {
		return &bar{code: spec.CodeNodeCountInvalid, reason: spec.Reason{Code: spec.ReasonPartitionNodeLimit, TRES: "node", Limit: total, Asked: d.MinNodes, Subject: who}}
	}
	most := ps.MaxMemPerNode
	if most == 0 {
		most = cfg.Limits.MaxMemPerNode
	}
	if most > 0 && d.MemPerNode > most {
		return &bar{code: spec.CodeMemoryUnavailable, reason: spec.Reason{Code: reasonMaxMem, TRES: "mem", Limit: most, Asked: d.MemPerNode, Subject: who}}
	}
	return nil
}

func over(limit, most spec.Span) bool { return most != 0 && limit > most }

// demandOf resolves a request in a partition. A job that names no time limit,
// where the partition has no default, gets what MaxWall allows.
func demandOf(st *state.State, p *state.Partition, js *spec.JobSpec, b *limits.Bound) place.Demand {
	d := resolved(st, p, js, b.Wall())
	if elastic(&d) {
		fewestNodes(st, p, &d)
	}
	return d
}

// elastic tells that how many nodes a demand takes depends on those there are.
func elastic(d *place.Demand) bool { return d.MaxNodes > d.MinNodes && !d.Overcommit }

// resolved is a demand as far as it does not depend on the nodes there are.
func resolved(st *state.State, p *state.Partition, js *spec.JobSpec, most spec.Span) place.Demand {
	d := place.Resolve(st.Config, p.Spec, js)
	if js.Time.Limit == 0 && p.Spec.DefaultTime == 0 && most > 0 {
		d.Limit = min(d.Limit, most)
	}
	if js.Place.Constraint != "" {
		nodesOfCounts(&d, js.Place.Constraint)
	}
	return d
}

// nodesOfCounts raises the numbers of nodes to what the counts of a constraint
// ask for.
func nodesOfCounts(d *place.Demand, expr string) {
	c, err := parseConstraint(expr)
	if err != nil || c.nodes() <= d.MinNodes {
		return
	}
	d.MinNodes = c.nodes()
	d.MaxNodes, d.Tasks = max(d.MaxNodes, d.MinNodes), max(d.Tasks, d.MinNodes)
}

// fewestNodes raises the least number of nodes to what the largest node of
// the partition leaves possible.
func fewestNodes(st *state.State, p *state.Partition, d *place.Demand) {
	most := int64(0)
	for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
		if n := st.NodeByID(spec.NodeID(id)); n != nil {
			if most = max(most, n.CPUs/d.CPUsPerTask); most >= d.Tasks {
				return
			}
		}
	}
	if most == 0 {
		return
	}
	if least := (d.Tasks + most - 1) / most; least <= d.MaxNodes {
		d.MinNodes = max(d.MinNodes, least)
	}
}

// leastOf is what a job counts as while it waits.
func leastOf(d *place.Demand, p *spec.PartitionSpec, js *spec.JobSpec) spec.TRES {
	t := d.Least(p.BillingWeights)
	for i, l := range js.Licenses {
		if i == 0 || !js.AnyLicense {
			t = t.With("license/"+l.Name, l.N)
		}
	}
	t.Billing = d.Billing(t, p.BillingWeights)
	return t
}

// closed says that a partition starts nothing, or that what a job was
// accepted under is gone.
func closed(st *state.State, p *state.Partition, j *state.Job) *spec.Reason {
	switch who := p.Subject; {
	case p.Spec.State == spec.PartitionDown:
		return &spec.Reason{Code: spec.ReasonPartitionDown, Subject: who}
	case p.Spec.State == spec.PartitionInactive:
		return &spec.Reason{Code: spec.ReasonPartitionInactive, Subject: who}
	case st.Config.Enforce.Associations && st.Policy.Assoc(j.Assoc) == nil:
		return &spec.Reason{Code: spec.ReasonInvalidAccount, Subject: "assoc/" + j.Spec.Account + "/" + j.Spec.User}
	case j.Spec.QOS != "" && st.Policy.FindQOS(j.Spec.QOS) == nil:
		return &spec.Reason{Code: spec.ReasonInvalidQOS, Subject: "qos/" + j.Spec.QOS}
	case st.Config.Enforce.QOS && j.Spec.QOS != "" && !slices.Contains(allowedQOS(st.Policy, j.Assoc), j.Spec.QOS):
		return &spec.Reason{Code: spec.ReasonInvalidQOS, Subject: "qos/" + j.Spec.QOS, Detail: "the association may not use it any more"}
	}
	return nil
}

// licences says which licence is short for a job that may last so long, or nil.
func licences(st *state.State, js *spec.JobSpec, now spec.Instant, limit spec.Span) *spec.Reason {
	_, r := takeLicences(st, js, now, limit)
	return r
}

// takeLicences are the licences that a job gets if it starts now: all that it
// asks for, or the first of those of which one is enough.
func takeLicences(st *state.State, js *spec.JobSpec, now spec.Instant, limit spec.Span) ([]spec.Count, *spec.Reason) {
	if !js.AnyLicense {
		return js.Licenses, shortOf(st, js, js.Licenses, now, limit)
	}
	var first *spec.Reason
	for i := range js.Licenses {
		one := js.Licenses[i : i+1]
		r := shortOf(st, js, one, now, limit)
		if r == nil {
			return one, nil
		}
		if first == nil {
			first = r
		}
	}
	return nil, first
}

// shortOf says which of some licences there are not enough of for a job. What
// a reservation keeps that the job is not in is used while it lasts.
func shortOf(st *state.State, js *spec.JobSpec, list []spec.Count, now spec.Instant, limit spec.Span) *spec.Reason {
	for _, l := range list {
		total, used := st.LicenseTotal(l.Name), amount(st.Licenses, l.Name)+keptLicences(st, js, l.Name, now, now.Add(limit))
		if used+l.N > total {
			return &spec.Reason{Code: spec.ReasonLicenses, TRES: "license/" + l.Name, Limit: total, Used: used, Asked: l.N}
		}
	}
	return nil
}

// keptLicences is how many of a licence reservations keep from a job at some
// time between two instants, beside those that the jobs in them hold.
func keptLicences(st *state.State, js *spec.JobSpec, name string, from, to spec.Instant) int64 {
	var kept int64
	for i := range st.Reservations {
		r := &st.Reservations[i]
		n := amount(r.Licenses, name)
		if n == 0 || slices.Contains(strings.Split(js.Place.Reservation, ","), r.Name) ||
			!slices.ContainsFunc(resv.Windows(r, from), func(w reserve.Window) bool { return w.From < to && from < w.To }) {
			continue
		}
		st.Active.Range(func(uid uint64, _ struct{}) bool {
			if j := st.Job(spec.JobUID(uid)); j.State.Active() && j.Alloc.Reservation == r.Name {
				n -= amount(j.Alloc.Licenses, name)
			}
			return true
		})
		kept += max(n, 0)
	}
	return kept
}

func amount(list []spec.Count, name string) int64 {
	var n int64
	for _, c := range list {
		if c.Name == name {
			n += c.N
		}
	}
	return n
}

// throttled says that as many tasks of an array run as may, or nil.
func throttled(st *state.State, j *state.Job) *spec.Reason {
	a := st.ArrayOf(j)
	if a == nil || j.Spec.Queue.Array == nil {
		return nil
	}
	if most := int64(j.Spec.Queue.Array.Throttle); most > 0 && a.Running >= most {
		return &spec.Reason{Code: spec.ReasonArrayTaskLimit, Limit: most, Used: a.Running, Asked: 1}
	}
	return nil
}
