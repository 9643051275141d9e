package explain

import (
	"cmp"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// findHolders are the jobs whose end a job waits for that waits for no nodes: those
// that hold its licences, count towards its limit, are the running tasks of its
// array or what it depends on, in the order in which their time limits end. free
// is when enough of them are over at the latest, as far as that goes; 0 if that
// is not known, or no matter of theirs.
func findHolders(st *state.State, job *state.Job) (list []spec.JobUID, free spec.Instant) {
	share := holdingOf(st, job)
	if share == nil {
		return nil, 0
	}
	type held struct {
		job *state.Job
		end spec.Instant
		n   int64
	}
	var all []held
	st.Active.Range(func(uid uint64, _ struct{}) bool {
		if o := st.Job(spec.JobUID(uid)); o.UID != job.UID {
			if n := share(o); n > 0 {
				all = append(all, held{o, max(o.Deadline(), st.At), n})
			}
		}
		return true
	})
	slices.SortFunc(
		all,
		func(a, b held) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.job.UID, b.job.UID)) },
	)
	short := job.Reason.Used + job.Reason.Asked - job.Reason.Limit
	if job.Reason.Code == spec.ReasonArrayTaskLimit {
		short = 1
	}
	for i := range all {
		if len(list) < maxBlockers {
			list = append(list, all[i].job.UID)
		}
		if short > 0 {
			short -= all[i].n
			if short <= 0 && all[i].end < spec.FarFuture {
				free = all[i].end
			}
		}
	}
	if job.Reason.Limit < job.Reason.Asked {
		free = 0 // the job alone is over the limit
	}
	return list, free
}

// holdingOf tells how much a running job has of what another one waits for; nil
// where that is nothing that jobs hold.
func holdingOf(st *state.State, job *state.Job) func(o *state.Job) int64 {
	reason := &job.Reason
	switch {
	case reason.Code == spec.ReasonLicenses:
		name := strings.TrimPrefix(reason.TRES, "license/")
		return func(o *state.Job) int64 {
			for _, c := range o.Alloc.Licenses {
				if c.Name == name {
					return c.N
				}
			}
			return 0
		}
	case reason.Code == spec.ReasonArrayTaskLimit:
		return func(o *state.Job) int64 { return boolean(job.Array != 0 && o.Array == job.Array) }
	case reason.Code == spec.ReasonDependency && job.Spec.Queue.Dependency != nil:
		return func(o *state.Job) int64 {
			return boolean(
				slices.ContainsFunc(
					job.Spec.Queue.Dependency.Terms,
					func(t spec.DependencyTerm) bool {
						if t.Job == 0 && isSingletonOf(o.Spec, job.Spec) {
							return true
						}
						return t.UID != 0 && (t.UID == o.UID || t.UID == o.Array)
					},
				),
			)
		}
	case reason.Used <= 0 || strings.Contains(string(reason.Code), "Minutes") || strings.Contains(string(reason.Code), "Wall"):
		return nil
	}
	counts := countsTowards(st, job)
	if counts == nil {
		return nil
	}
	return func(o *state.Job) int64 {
		switch {
		case !counts(o):
			return 0
		case reason.TRES == "jobs":
			return 1
		}
		return o.Alloc.TRES.Get(reason.TRES)
	}
}

// isSingletonOf tells whether --dependency=singleton makes one of two jobs wait for
// the other.
func isSingletonOf(a, b *spec.JobSpec) bool { return a.Name == b.Name && a.UID == b.UID }

// countsTowards tells whether a job counts towards the limit that another waits for.
func countsTowards(st *state.State, job *state.Job) func(o *state.Job) bool {
	kind, name, _ := strings.Cut(job.Reason.Subject, "/")
	code := string(job.Reason.Code)
	switch kind {
	case "qos":
		return func(o *state.Job) bool {
			p := st.Parts.Find(o.Partition())
			switch {
			case strings.Contains(code, "User") && o.Spec.UID != job.Spec.UID:
				return false
			case strings.Contains(code, "Account") && o.Spec.Account != job.Spec.Account:
				return false
			}
			return o.QOS() == name || p != nil && p.Spec.QOS == name
		}
	case "assoc":
		account, user, _ := strings.Cut(name, "/")
		return func(o *state.Job) bool {
			return slices.ContainsFunc(
				st.Policy.Chain(o.Assoc),
				func(a *spec.Association) bool { return a.Account == account && a.User == user },
			)
		}
	}
	return nil
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
