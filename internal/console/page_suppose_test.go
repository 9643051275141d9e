package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/spec"
)

// suppositions are questions that are all answered alike.
func suppositions(answer *apiv1.SupposeReply, err error) *questionsAPI[*apiv1.SupposeRequest] {
	return &questionsAPI[*apiv1.SupposeRequest]{
		method: tool.MethodSuppose,
		answer: func(*apiv1.SupposeRequest) (proto.Message, error) { return answer, err },
	}
}

// getAny is a page with its status, whatever that is.
func getAny(t *testing.T, c *Console, path string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// A question is the commands of its address, asked as the visitor and answered as text.
func TestSupposePage(t *testing.T) {
	const now = 1_800_000_000 * tool.Second
	planned := &apiv1.Outlook{Standing: apiv1.Outlook_PLANNED, Start: now + 7200*tool.Second}
	api := suppositions(&apiv1.SupposeReply{
		Now:   now,
		Notes: []string{"the new nodes are new[1-2]"},
		Jobs: []*apiv1.SupposedJob{
			{Job: "8", JobId: 8, Name: "fast", Before: planned, After: &apiv1.Outlook{
				Standing: apiv1.Outlook_STARTING, Start: now, Nodes: "new1",
			}},
			{Job: "7", JobId: 7, Name: hostileName(), User: "bob", Before: &apiv1.Outlook{
				Standing: apiv1.Outlook_RUNNING,
			}, After: &apiv1.Outlook{Standing: apiv1.Outlook_EVICTED}},
		},
		Same: 3, Both: 1, Delay: -7200 * tool.Second, StartedAfter: 1,
	}, nil)
	c := smallConsole(t, api, 1000, authz.Operator)
	code, page := getAny(t, c, supposeLink("add 2 nodes like node1\n\n scancel 7 "))
	if code != http.StatusOK {
		t.Fatalf("%d\n%s", code, page)
	}
	changes := api.asked[len(api.asked)-1].GetChanges()
	if len(changes) != 2 || changes[0].GetAddNodes().GetCount() != 2 ||
		changes[1].GetCancel().GetFilter().GetJobs()[0] != "7" {
		t.Errorf("asked %v", api.asked)
	}
	for _, want := range []string{
		"the new nodes are new[1-2]", "&lt;script&gt;alert(1)", `href="/job/8"`, "2h00 earlier", "is preempted",
		"starts now", "1 job earlier, 0 jobs later, 3 waiting as before.",
		"muster suppose &#39;add 2 nodes like node1&#39; &#39;scancel 7&#39;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Index(page, `href="/job/7"`) > strings.Index(page, `href="/job/8"`) {
		t.Error("who is worst off does not come first")
	}
	if strings.Contains(page, "data-live") || strings.Contains(page, "<script>alert") {
		t.Error("the page reads itself again, or holds a name as markup")
	}
}

// Nothing that may read or write a file of the controller's host is run for a visitor,
// and what is refused stands beside the question.
func TestSupposePageRefuses(t *testing.T) {
	api := suppositions(nil, spec.Refuse(spec.CodeInvalidJobID, "job 99"))
	c := smallConsole(t, api, 1000, authz.User)
	for _, tc := range []struct{ line, want string }{
		{"sbatch /etc/passwd", "cannot be supposed here"},
		{"sbatch --wrap x", "cannot be supposed here"},
		{"sacctmgr load /etc/passwd", "cannot be supposed here"},
		{"sacctmgr dump test file=/tmp/x", "cannot be supposed here"},
		{"sacctmgr -i load /etc/passwd", "cannot be supposed here"},
		{"scontrol write config /tmp/x", "cannot be supposed here"},
		{"scontrol write batch_script 7 /tmp/x", "cannot be supposed here"},
		{"scontrol reconfigure", "cannot be supposed here"},
		{"muster down", "cannot be supposed here"},
		{"scontrol frobnicate", "cannot be supposed here"},
		{"scancel 'x", "unmatched"},
		{"add many", "expected: add COUNT nodes like NODE"},
		{"scancel 99", "job 99: Invalid job id specified"},
		{strings.Repeat("scancel 1\n", 600), "longer than"},
		{"scancel 1\n<b>x</b>", "&lt;b&gt;"},
	} {
		code, page := getAny(t, c, supposeLink(tc.line))
		if code != http.StatusBadRequest || !strings.Contains(page, tc.want) {
			t.Errorf("%.40q: %d, the page lacks %s", tc.line, code, tc.want)
		}
	}
	code, page := getAny(t, c, "/what-if")
	if code != http.StatusOK || !strings.Contains(page, "Questions to begin with") {
		t.Errorf("without a question: %d", code)
	}
}
