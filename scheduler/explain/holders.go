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
func findHolders(cluster *state.State, job *state.Job) (list []spec.JobUID, free spec.Instant) {
	share := holdingOf(cluster, job)
	if share == nil {
		return nil, 0
	}
	type held struct {
		job *state.Job
		end spec.Instant
		n   int64
	}
	var all []held
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		if other := cluster.Job(spec.JobUID(uid)); other.UID != job.UID {
			if n := share(other); n > 0 {
				all = append(all, held{other, max(other.Deadline(), cluster.At), n})
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
func holdingOf(cluster *state.State, job *state.Job) func(o *state.Job) int64 {
	reason := &job.Reason
	switch {
	case reason.Code == spec.ReasonLicenses:
		name := strings.TrimPrefix(reason.TRES, "license/")
		return func(other *state.Job) int64 {
			for _, count := range other.Alloc.Licenses {
				if count.Name == name {
					return count.N
				}
			}
			return 0
		}
	case reason.Code == spec.ReasonArrayTaskLimit:
		return func(o *state.Job) int64 { return boolean(job.Array != 0 && o.Array == job.Array) }
	case reason.Code == spec.ReasonDependency && job.Spec.Queue.Dependency != nil:
		return func(other *state.Job) int64 {
			return boolean(
				slices.ContainsFunc(
					job.Spec.Queue.Dependency.Terms,
					func(term spec.DependencyTerm) bool {
						if term.Job == 0 && isSingletonOf(other.Spec, job.Spec) {
							return true
						}
						return term.UID != 0 && (term.UID == other.UID || term.UID == other.Array)
					},
				),
			)
		}
	case reason.Used <= 0 || strings.Contains(string(reason.Code), "Minutes") || strings.Contains(string(reason.Code), "Wall"):
		return nil
	}
	counts := countsTowards(cluster, job)
	if counts == nil {
		return nil
	}
	return func(other *state.Job) int64 {
		switch {
		case !counts(other):
			return 0
		case reason.TRES == "jobs":
			return 1
		}
		return other.Alloc.TRES.Get(reason.TRES)
	}
}

// isSingletonOf tells whether --dependency=singleton makes one of two jobs wait for
// the other.
func isSingletonOf(a, b *spec.JobSpec) bool { return a.Name == b.Name && a.UID == b.UID }

// countsTowards tells whether a job counts towards the limit that another waits for.
func countsTowards(cluster *state.State, job *state.Job) func(o *state.Job) bool {
	kind, name, _ := strings.Cut(job.Reason.Subject, "/")
	code := string(job.Reason.Code)
	switch kind {
	case "qos":
		return func(other *state.Job) bool {
			partition := cluster.Parts.Find(other.Partition())
			switch {
			case strings.Contains(code, "User") && other.Spec.UID != job.Spec.UID:
				return false
			case strings.Contains(code, "Account") && other.Spec.Account != job.Spec.Account:
				return false
			}
			return other.QOS() == name || partition != nil && partition.Spec.QOS == name
		}
	case "assoc":
		account, user, _ := strings.Cut(name, "/")
		return func(other *state.Job) bool {
			return slices.ContainsFunc(
				cluster.Policy.Chain(other.Assoc),
				func(association *spec.Association) bool {
					return association.Account == account && association.User == user
				},
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
