package acct

import (
	"slices"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestLedgerRequest: without the store, too, sacct shows one's own jobs unless others are named.
func TestLedgerRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		query       *apiv1.AcctQuery
		users, jobs []string
	}{
		"nothing is named": {&apiv1.AcctQuery{}, []string{"1001"}, nil},
		"all users":        {&apiv1.AcctQuery{AllUsers: true}, nil, nil},
		"a user":           {&apiv1.AcctQuery{Users: []string{"bob"}}, []string{"bob"}, nil},
		"jobs and steps": {
			&apiv1.AcctQuery{Jobs: []string{"12.batch", "13_4", "20+1"}},
			nil,
			[]string{"12", "13_4", "20"},
		},
	} {
		got := ledgerRequest(tc.query, 1001).GetFilter()
		if !slices.Equal(got.GetUsers(), tc.users) || !slices.Equal(got.GetJobs(), tc.jobs) {
			t.Errorf("%s: users %v and jobs %v, want %v and %v",
				name, got.GetUsers(), got.GetJobs(), tc.users, tc.jobs)
		}
		if !got.GetAllStates() {
			t.Errorf("%s: jobs that are over are left out", name)
		}
	}
}

// TestMissing: what may be missing is said, and nothing else.
func TestMissing(t *testing.T) {
	rows := []*apiv1.AcctRow{{JobId: 12, ArrayTask: -1}, {JobId: 31, ArrayJobId: 30, ArrayTask: 1}}
	for name, tc := range map[string]struct {
		jobs []string
		want string
	}{
		"no jobs are named": {nil, "older jobs are missing above"},
		"all are there":     {[]string{"12", "12.batch"}, ""},
		"one is not":        {[]string{"12", "99"}, "missing above: 99"},
		"a task":            {[]string{"30_1"}, ""},
		"a whole array":     {[]string{"30"}, "older tasks of the array may be missing above"},
	} {
		ask := &acctAsk{req: &apiv1.AcctQuery{Jobs: tc.jobs}}
		if got := ask.missing(rows); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
