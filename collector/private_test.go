package collector

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/kpi"
)

// TestPrivateAccounts: where the use of accounts is private, no path says what one holds or has
// used, and what is not about users and accounts stays.
func TestPrivateAccounts(t *testing.T) {
	series := func(private Privacy) (accounts []string, others int) {
		src := source(lab(t))
		src.Private = private
		shown := src.KPIs()
		src.KPIs = func() []kpi.Value {
			return append(slices.Clone(shown), kpi.Value{KPI: kpi.All()[0].Name, By: kpi.ByAccount, Key: "ml", Window: "1h", Value: 1})
		}
		h := handler(src)
		paths := []string{"/metrics"}
		for path := range dialects() {
			_, url, _ := strings.Cut(path, " ")
			paths = append(paths, url)
		}
		for _, path := range paths {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			for line := range strings.Lines(w.Body.String()) {
				switch {
				case strings.HasPrefix(line, "#"):
				case strings.Contains(line, `account="`), strings.Contains(line, `by="account"`),
					strings.Contains(line, `scope="account"`), strings.Contains(line, `scope="qos_account"`):
					accounts = append(accounts, path+": "+line)
				default:
					others++
				}
			}
		}
		return accounts, others
	}
	open, others := series(Privacy{Users: true})
	if len(open) < 10 {
		t.Errorf("only %d series name accounts: the test sees nothing", len(open))
	}
	hidden, left := series(Privacy{Users: true, Accounts: true})
	for _, line := range hidden {
		t.Errorf("the use of an account is shown: %s", line)
	}
	if left != others {
		t.Errorf("%d series are not about users or accounts, %d where accounts are shown", left, others)
	}
}

// TestPrivateUsers: where the data of users is private, no path names a user or a
// job; where it is not, several do.
func TestPrivateUsers(t *testing.T) {
	for _, private := range []bool{false, true} {
		src := source(lab(t))
		src.Private.Users = private
		shown := src.KPIs()
		src.KPIs = func() []kpi.Value {
			return append(slices.Clone(shown), kpi.Value{KPI: kpi.All()[0].Name, By: kpi.ByUser, Key: "alice", Window: "1h", Value: 1})
		}
		h := handler(src)
		paths, named := []string{"/metrics"}, 0
		for path := range dialects() {
			_, url, _ := strings.Cut(path, " ")
			paths = append(paths, url)
		}
		for _, path := range paths {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			for line := range strings.Lines(w.Body.String()) {
				if strings.HasPrefix(line, "#") || !(strings.Contains(line, `user="`) || strings.Contains(line, `username="`) ||
					strings.Contains(line, `slurm_job_id="`) || strings.Contains(line, "alice")) {
					continue
				}
				named++
				if private {
					t.Errorf("%s shows %s", path, line)
				}
			}
		}
		if !private && named < 10 {
			t.Errorf("only %d series name users: the test sees nothing", named)
		}
	}
}
