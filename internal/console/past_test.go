package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// pastAPI answers as answers does, and notes which moment each request is about.
type pastAPI struct {
	answers
	moments map[string]*apiv1.Moment
}

// Call implements API.
func (a *pastAPI) Call(ctx context.Context, id identity.Identity, method string, req proto.Message) (proto.Message, error) {
	if asked, ok := req.(interface{ GetMoment() *apiv1.Moment }); ok {
		a.moments[method] = asked.GetMoment()
	}
	return a.answers.Call(ctx, id, method, req)
}

func pastCluster() *pastAPI {
	at := time.Date(2026, 11, 23, 9, 30, 5, 0, time.UTC).UnixNano()
	job := &apiv1.JobInfo{Uid: 1, JobId: 7, ArrayTask: -1, User: "user", UserId: 1000, State: uint32(spec.Running), Start: at - 60*tool.Second, Partition: "gpu",
		Spec: &apiv1.JobSpec{Name: hostileName() + `" href="/queue`}}
	return &pastAPI{moments: map[string]*apiv1.Moment{}, answers: answers{
		tool.MethodListJobs:       &apiv1.ListJobsReply{Now: at, Jobs: []*apiv1.JobInfo{job}},
		tool.MethodListNodes:      &apiv1.ListNodesReply{Now: at, Nodes: []*apiv1.NodeInfo{{Name: "n1", State: "IDLE", Registered: true}}},
		tool.MethodListPartitions: &apiv1.ListPartitionsReply{Now: at, Partitions: []*apiv1.PartitionInfo{{Name: "gpu"}}},
		tool.MethodReservations:   &apiv1.ReservationsReply{Now: at},
		tool.MethodGetPolicy:      &apiv1.PolicyReply{Now: at},
		tool.MethodLimitUsage:     fewPeople(),
		tool.MethodDiag:           &apiv1.DiagReply{PastFrom: at - day, Agents: 4711},
		tool.MethodAcctStatus:     &apiv1.AccountingStatusReply{Up: true},
		tool.MethodWhy:            &apiv1.WhyReply{Now: at, Job: job},
	}}
}

// pastPages are the pages that show a moment, with the methods that they ask.
func pastPages() map[string][]string {
	return map[string][]string{
		"/":        {tool.MethodListJobs, tool.MethodListNodes, tool.MethodListPartitions},
		"/queue":   {tool.MethodListJobs},
		"/job/7":   {tool.MethodListJobs, tool.MethodWhy},
		"/nodes":   {tool.MethodListNodes},
		"/node/n1": {tool.MethodListNodes, tool.MethodListJobs},
		"/people":  {tool.MethodLimitUsage},
		"/cluster": {tool.MethodListPartitions, tool.MethodGetPolicy, tool.MethodReservations, tool.MethodListNodes},
	}
}

// TestPagesOfThePast: every request of a page of the past is about its moment, the
// page says so, does not update itself, offers no change, and leads to pages of
// the same moment; the page of now asks about now.
func TestPagesOfThePast(t *testing.T) {
	const word = "2026-11-23T09:30:05Z"
	want := time.Date(2026, 11, 23, 9, 30, 5, 0, time.UTC).UnixNano()
	for path, methods := range pastPages() {
		api := pastCluster()
		c := smallConsole(t, api, 0, authz.Administrator)
		page := pageText(t, c, path+"?at="+word)
		for _, m := range methods {
			if api.moments[m].GetAt() != want {
				t.Errorf("%s asked %s about %v", path, m, api.moments[m])
			}
		}
		for _, needed := range []string{"The past", `href="/nodes?at=2026-11-23T09%3A30%3A05Z"`, `href="/?at=`, `data-present href="` + path + `"`} {
			if !strings.Contains(page, needed) {
				t.Errorf("%s lacks %s:\n%s", path, needed, page)
			}
		}
		for _, bad := range []string{"data-live", "Cancel", "Drain", "/past\"", "<script>alert", "4711", `method="post" action="/job`, `method="post" action="/node/`} {
			if strings.Contains(page, bad) {
				t.Errorf("%s of the past holds %s", path, bad)
			}
		}
		for link := range strings.SplitSeq(page, `href="/`) {
			address, _, _ := strings.Cut(link, `"`)
			if strings.HasPrefix(address, "queue") && !strings.Contains(address, "at=") && address != strings.TrimPrefix(path, "/") {
				t.Errorf("%s has the link /%s out of the past", path, address)
			}
		}
		clear(api.moments)
		if page = pageText(t, c, path); strings.Contains(page, "The past") || !strings.Contains(page, "data-live") {
			t.Errorf("%s of now is one of the past", path)
		}
		for _, m := range methods {
			if api.moments[m] != nil {
				t.Errorf("%s of now asked %s about %v", path, m, api.moments[m])
			}
		}
	}
}

// TestMomentsAreRead: what somebody types, with the zone of his browser, or where
// he leaves the slider, leads to one address in UTC; the filter stays.
func TestMomentsAreRead(t *testing.T) {
	c := smallConsole(t, pastCluster(), 1000, authz.User)
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, test := range []struct{ asked, to string }{
		{"/queue?q=a+b&at=2026-11-20T09:30&zone=Europe/Berlin", "/queue?at=2026-11-20T08%3A30%3A00Z&q=a+b"},
		{"/queue?pos=1700000000&span=day", "/queue?at=2023-11-14T22%3A13%3A20Z&span=day"},
		{"/?at=2026-11-20T09:30:00%2B01:00", "/?at=2026-11-20T08%3A30%3A00Z"},
		{"/queue?q=x&at=", "/queue?q=x"},
		{"/nodes?at=" + future + "&zone=UTC", "/nodes"},
	} {
		r := httptest.NewRequest(http.MethodGet, test.asked, nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != test.to {
			t.Errorf("%s leads to %q with %d, want %q", test.asked, got, w.Code, test.to)
		}
	}
	api := pastCluster()
	if pageText(t, smallConsole(t, api, 1000, authz.User), "/queue?at=%23123"); api.moments[tool.MethodListJobs].GetSeq() != 123 {
		t.Errorf("#123 asked about %v", api.moments[tool.MethodListJobs])
	}
	for _, bad := range []string{"never", "#0", "#x", "09:30&zone=Nowhere/Land", "x&pos=y"} {
		r := httptest.NewRequest(http.MethodGet, "/queue?at="+strings.ReplaceAll(bad, "#", "%23"), nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
}

// TestPastIsNotChanged: a form that names a moment changes nothing.
func TestPastIsNotChanged(t *testing.T) {
	c := smallConsole(t, pastCluster(), 0, authz.Administrator)
	form := url.Values{"secret": {c.formSecret("token")}}
	r := httptest.NewRequest(http.MethodPost, "/job/7/cancel?at=2026-11-23T09:30:05Z", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "cannot be changed") {
		t.Errorf("it answered %d:\n%s", w.Code, w.Body)
	}
}
