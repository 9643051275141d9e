package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// TestModifyJobs: conditions and settings of sacctmgr modify job reach accounting and the
// controller, each job once, and what is unknown is refused in Slurm's words.
func TestModifyJobs(t *testing.T) {
	w := newWorld(t)
	w.acct = []*apiv1.AcctRow{
		{Uid: 8, JobId: 12, Submit: 1_000_000 * tool.Second, End: 1},
		{Uid: 8, JobId: 12, Restarts: 1, Submit: 1_000_000 * tool.Second, End: 2},
		{Uid: 9, JobId: 13, Submit: 1_000_000 * tool.Second, End: 2},
	}
	w.reply[tool.MethodNoteJobs] = func(proto.Message) (proto.Message, error) { return &apiv1.NoteJobsReply{}, nil }
	got := w.shell("sacctmgr -i modify job where cluster=peer jobid=12,13 set AdminC='a b' comment=c System=s Extra=e DerivedEx=7")
	const said = " Modified jobs...\n  12 submitted at 1970-01-12T13:46:40\n  13 submitted at 1970-01-12T13:46:40\n"
	if got.code != 0 || got.out != said {
		t.Fatalf("%d %q %q, want %q", got.code, got.out, got.errOut, said)
	}
	note := w.last(tool.MethodNoteJobs).(*apiv1.NoteJobsRequest)
	text := func(s string) *string { return &s }
	code := uint32(7)
	want := &apiv1.NoteJobsRequest{Uids: []uint64{8, 9}, AdminComment: text("a b"), Comment: text("c"),
		SystemComment: text("s"), Extra: text("e"), DerivedExitCode: &code}
	if !proto.Equal(note, want) {
		t.Errorf("%v, want %v", note, want)
	}
	if ask := w.last(tool.MethodAcctRows).(*apiv1.AcctQuery); strings.Join(ask.GetJobs(), " ") != "12 13" || ask.GetStart() != 1 {
		t.Errorf("accounting is asked for %v", ask)
	}
	if got := w.shell("sjobexitmod -e 0 -r fine 12"); got.code != 0 || got.out != "Modification of job 12 was successful.\n" {
		t.Errorf("sjobexitmod: %d %q %q", got.code, got.out, got.errOut)
	}
	if note := w.last(tool.MethodNoteJobs).(*apiv1.NoteJobsRequest); note.GetComment() != "fine" || note.DerivedExitCode == nil {
		t.Errorf("sjobexitmod asks for %v", note)
	}
	for line, part := range map[string]string{
		"sacctmgr -i modify job where color=red set comment=x":       "Unknown condition: color=red",
		"sacctmgr -i modify job where jobid=12 set color=red":        "Unknown option: color=red",
		"sacctmgr -i modify job where jobid=12 set newwckey=x":       "wckey of a job that is over",
		"sacctmgr -i modify job where jobid=12 set derivedexit=256":  "invalid exit code",
		"sacctmgr -i modify job where jobid=12":                      "anything to set",
		"sacctmgr -i modify job where cluster=other set comment=x":   "is not known here",
		"sacctmgr -i modify job where starttime=never set comment=x": "never",
		"sacctmgr -i -r modify job where jobid=12 set comment=x":     "readonly",
		"sjobexitmod 12":          "nothing to change",
		"sjobexitmod -e x 12":     "invalid exit code",
		"sjobexitmod -e 1 12 13":  "name one job",
		"sjobexitmod -e 1 twelve": "Invalid job id",
	} {
		if got := w.shell(line); got.code == 0 || !strings.Contains(got.errOut+got.out, part) {
			t.Errorf("%s: %d %q, want %q", line, got.code, got.errOut+got.out, part)
		}
	}
	w.acct = nil
	if got := w.shell("sacctmgr -i modify job where jobid=99 set comment=x"); got.code != 1 || got.out != " Nothing modified\n" {
		t.Errorf("no job: %d %q", got.code, got.out)
	}
}
