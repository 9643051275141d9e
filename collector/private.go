package collector

import (
	"slices"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Privacy is what a site keeps from those who read its pages. Anybody who reaches the port
// reads them, so what squeue and sreport hide must not stand there.
type Privacy struct {
	// Users leaves out what names users and their jobs.
	Users bool
	// Accounts leaves out what an account holds and has used: an account of one user says
	// what he does, and of an account of two each learns what the other does.
	Accounts bool
}

// userLabels are the labels whose values say what one user does. A job's number
// does too: its user is a question away for whoever knows the cluster.
func userLabels() []string { return []string{"user", "users", "username", "slurm_job_id"} }

// privacy is what the pages of a scrape leave out.
func (s *scrape) privacy() Privacy {
	if s.src == nil {
		return Privacy{}
	}
	return s.src.Private
}

// hidesFamily tells whether a family is left out as a whole.
func (s *scrape) hidesFamily(f *family) bool {
	private := s.privacy()
	return slices.ContainsFunc(f.Labels, func(label string) bool {
		if label == "account" {
			return private.Accounts
		}
		return private.Users && slices.Contains(userLabels(), label)
	})
}

// hidesLimit tells whether a limit is left out because it is that of one user or account,
// whom the value of its label "name" names. The association is nil for limits of
// other subjects.
func (s *scrape) hidesLimit(kind state.UsageKind, assoc *spec.Association) bool {
	private := s.privacy()
	switch kind {
	case state.UsageQOSUser:
		return private.Users
	case state.UsageQOSAccount:
		return private.Accounts
	case state.UsageAssoc:
		if assoc != nil && assoc.User != "" {
			return private.Users
		}
		return private.Accounts
	}
	return false
}

// shownKPIs are the KPIs that are shown.
func (s *scrape) shownKPIs() []kpi.Value {
	all := s.src.KPIs()
	private := s.privacy()
	if private == (Privacy{}) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(value kpi.Value) bool {
		return value.By == kpi.ByUser && private.Users ||
			value.By == kpi.ByAccount && private.Accounts
	})
}
