package collector

import (
	"slices"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// userLabels are the labels whose values say what one user does. A job's number
// does too: its user is a question away for whoever knows the cluster.
func userLabels() []string { return []string{"user", "users", "username", "slurm_job_id"} }

// hidesFamily tells whether a family is left out because the site keeps the data of
// users private. Anybody who reaches the port reads the pages, so what squeue and
// sreport hide must not stand there.
func (s *scrape) hidesFamily(f *family) bool {
	if s.src == nil || !s.src.Private {
		return false
	}
	return slices.ContainsFunc(
		f.Labels,
		func(label string) bool { return slices.Contains(userLabels(), label) },
	)
}

// hidesLimit tells whether a limit is left out because it is that of one user,
// whom the value of its label "name" names. The association is nil for limits of
// other subjects.
func (s *scrape) hidesLimit(kind state.UsageKind, assoc *spec.Association) bool {
	if s.src == nil || !s.src.Private {
		return false
	}
	ofUser := kind == state.UsageAssoc && assoc != nil && assoc.User != ""
	return ofUser || kind == state.UsageQOSUser
}

// shownKPIs are the KPIs that are shown.
func (s *scrape) shownKPIs() []kpi.Value {
	all := s.src.KPIs()
	if !s.src.Private {
		return all
	}
	return slices.DeleteFunc(
		slices.Clone(all),
		func(v kpi.Value) bool { return v.By == kpi.ByUser },
	)
}
