package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// answers is an API that gives fixed answers, and refuses the rest.
type answers map[string]proto.Message

// Call implements API.
func (a answers) Call(_ context.Context, _ identity.Identity, method string, _ proto.Message) (proto.Message, error) {
	if reply, ok := a[method]; ok {
		return reply, nil
	}
	return nil, spec.Refuse(spec.CodeAccessDenied, "")
}

// smallConsole serves fixed answers to a user in a role.
func smallConsole(t *testing.T, api API, uid uint32, role authz.Role) *Console {
	t.Helper()
	c, err := New(Config{API: api, Cluster: "small", Log: slog.New(slog.DiscardHandler),
		Door: authz.Door{Self: 990, Standing: func(string) authz.Role { return role }},
		Verify: func(string) (identity.Identity, error) {
			return identity.Identity{Kind: identity.AttestedUser, UID: uid, GID: uid, User: "user"}, nil
		},
		Private: func(context.Context) []string { return nil },
		Changed: func() (uint64, <-chan struct{}) { return 1, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pageText is a page as it is written.
func pageText(t *testing.T, c *Console, path string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d", path, w.Code)
	}
	return w.Body.String()
}

func scriptedJob() answers {
	job := &apiv1.JobInfo{Uid: 1, JobId: 42, ArrayTask: -1, User: "user", UserId: 1000, State: uint32(spec.Completed), Spec: &apiv1.JobSpec{
		Name: "it's <b>\u202e", WorkDir: "/home/user/a b", MinNodes: 2, MaxNodes: 4, CpusPerTask: 8, MemPerNode: 512, TimeLimit: 90 * 60 * tool.Second,
		PerNode: []*apiv1.Count{{Name: "gpu", Type: "h100", N: 4}}, Args: []string{"--epochs", "3; rm -rf $HOME"}, Nice: 5}}
	return answers{
		tool.MethodListJobs:    &apiv1.ListJobsReply{Jobs: []*apiv1.JobInfo{job}},
		tool.MethodAcctScripts: &apiv1.AcctScriptReply{Scripts: []*apiv1.AcctScript{{Data: []byte("#!/bin/sh\necho '<script>alert(1)</script>' \u202e\x1b[2J\n")}}},
	}
}

// TestScriptIsText: a script is shown to its owner with every character as
// something that can be seen, and nothing in it acts on the page.
func TestScriptIsText(t *testing.T) {
	c := smallConsole(t, scriptedJob(), 1000, authz.User)
	if page := pageText(t, c, "/job/42"); !strings.Contains(page, `data-src="/job/42/script"`) {
		t.Error("the owner is not offered his script")
	}
	page := pageText(t, c, "/job/42/script")
	for _, want := range []string{"&lt;script&gt;alert(1)", "[U&#43;202E][U&#43;001B][2J", "scontrol write batch_script 42 job-42.sh", "Not repeated by this line, unless the script has it: nice."} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	for _, bad := range []string{"<script>alert", "\u202e", "\x1b"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

// lateAccounting knows a script from an event of the ledger on.
type lateAccounting struct {
	answers
	since uint64
}

// Call implements API.
func (a lateAccounting) Call(ctx context.Context, id identity.Identity, method string, req proto.Message) (proto.Message, error) {
	if q, ok := req.(*apiv1.AcctScriptQuery); ok && q.GetMinSeq() < a.since {
		return &apiv1.AcctScriptReply{Behind: a.since - q.GetMinSeq()}, nil
	}
	return a.answers.Call(ctx, id, method, req)
}

// TestScriptOfNewJob: the accounting is asked to have read what the controller
// has, and while it has not, the part is unavailable, so that the page asks again.
func TestScriptOfNewJob(t *testing.T) {
	c := smallConsole(t, lateAccounting{scriptedJob(), 1}, 1000, authz.User)
	if page := pageText(t, c, "/job/42/script"); !strings.Contains(page, "#!/bin/sh") {
		t.Errorf("the script of a new job is not shown:\n%s", page)
	}
	c = smallConsole(t, lateAccounting{scriptedJob(), 2}, 1000, authz.User)
	r := httptest.NewRequest(http.MethodGet, "/job/42/script", nil)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("accounting is behind, and the part answers %d:\n%s", w.Code, w.Body)
	}
}

// TestScriptOfAnotherUser: others are not offered a script, and an
// administrator gets no lines that would run another user's script as himself.
func TestScriptOfAnotherUser(t *testing.T) {
	api := scriptedJob()
	if page := pageText(t, smallConsole(t, api, 1001, authz.User), "/job/42"); strings.Contains(page, "/job/42/script") {
		t.Error("another user is offered the script")
	}
	admin := smallConsole(t, api, 1001, authz.Administrator)
	if page := pageText(t, admin, "/job/42"); !strings.Contains(page, "/job/42/script") {
		t.Error("an administrator is not offered the script")
	}
	if page := pageText(t, admin, "/job/42/script"); strings.Contains(page, "scontrol write") || !strings.Contains(page, "#!/bin/sh") {
		t.Errorf("an administrator sees:\n%s", page)
	}
	delete(api, tool.MethodAcctScripts)
	if page := pageText(t, smallConsole(t, api, 1001, authz.User), "/job/42/script"); !strings.Contains(page, "There is no script to show") {
		t.Errorf("a refusal is not explained:\n%s", page)
	}
}

// TestRunAgainLine: a shell reads back the words of the job, and every option
// names a field that a job has.
func TestRunAgainLine(t *testing.T) {
	fields := (&apiv1.JobSpec{}).ProtoReflect().Descriptor().Fields()
	for _, option := range againOptions() {
		found := false
		for i := range fields.Len() {
			found = found || string(fields.Get(i).Name()) == option.field
		}
		if !found {
			t.Errorf("no field is called %s", option.field)
		}
	}
	jobs := scriptedJob()[tool.MethodListJobs].(*apiv1.ListJobsReply).GetJobs()
	lines, _ := runAgain(jobs[0], "42")
	_, line, _ := strings.Cut(lines, "\n")
	out, err := exec.Command("bash", "-c", "sbatch() { printf '%s\\n' \"$@\"; }\n"+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "--job-name=it's <b>\u202e\n--nodes=2-4\n--cpus-per-task=8\n--mem=512M\n--gres=gpu:h100:4\n--time=01:30:00\n--chdir=/home/user/a b\njob-42.sh\n--epochs\n3; rm -rf $HOME\n"
	if string(out) != want {
		t.Errorf("a shell reads\n%s\nof %s", out, line)
	}
}
