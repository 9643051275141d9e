package cli

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// The command's requests become changes, and none of them is sent.
func TestSupposeSendsNoChange(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"scontrol update nodename=n[1-2] state=drain reason=x", `update_node`},
		{"scontrol create nodename=d1 cpus=4", `change_nodes`},
		{"scontrol update partitionname=gpu maxtime=60", `change_partition`},
		{"scontrol create reservation nodes=n1 users=root starttime=now duration=60", `change_reservation`},
		{"scontrol hold 4", `control_jobs`},
		{"scontrol requeue 4", `control_jobs`},
		{"scontrol update jobid=4 timelimit=60", `control_jobs`},
		{"scancel -u alice", `cancel`},
		{"sacctmgr modify qos normal set grpjobs=4", `change_policy`},
		{"sbatch -N2 --wrap hostname", `submit`},
		{"add 8 nodes like n1", `add_nodes`},
		{"add 1 node like n1", `add_nodes`},
	} {
		w := everything(t)
		w.reply[tool.MethodSuppose] = func(proto.Message) (proto.Message, error) {
			return &apiv1.SupposeReply{Same: 3}, nil
		}
		r := w.run("muster", "suppose", tc.line)
		if r.code != 0 || r.out != "No start would move: 3 jobs wait as before.\n" {
			t.Errorf("%s: %d %s%s", tc.line, r.code, r.out, r.errOut)
			continue
		}
		changes := w.last(tool.MethodSuppose).(*apiv1.SupposeRequest).GetChanges()
		if len(changes) != 1 {
			t.Errorf("%s: %d changes", tc.line, len(changes))
			continue
		}
		if text := prototext.Format(changes[0]); !strings.HasPrefix(text, tc.want) {
			t.Errorf("%s becomes\n%s", tc.line, text)
		}
		for _, q := range w.seen {
			if strings.Contains(q.method, "Change") || strings.Contains(q.method, "Update") ||
				q.method == tool.MethodCancel || q.method == tool.MethodControlJobs ||
				q.method == tool.MethodSubmit {
				t.Errorf("%s sends %s", tc.line, q.method)
			}
		}
	}
}

// What cannot be supposed is refused before anything is asked, and the text says why.
func TestSupposeRefuses(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"squeue", "squeue cannot be supposed: expected one of sacctmgr, sbatch, scancel, scontrol"},
		{"scontrol shutdown", "Shutdown cannot be supposed"},
		{"scontrol reconfigure", "Reconfigure cannot be supposed"},
		{"scontrol show job 4", "changes nothing"},
		{"add x", "expected: add COUNT nodes like NODE"},
		{"add 0 nodes like n1", "expected: add COUNT nodes like NODE"},
		{"sbatch /nonexistent", "Unable to open file /nonexistent"},
		{"scancel 'x", "unmatched"},
		{"", "there is no command"},
		{"sbatch --test-only --wrap x", "Submit cannot be supposed"},
	} {
		w := everything(t)
		r := w.run("muster", "suppose", tc.line)
		if r.code == 0 || !strings.Contains(r.errOut, tc.want) {
			t.Errorf("%s: %d %q, want %q", tc.line, r.code, r.errOut, tc.want)
		}
	}
}

// The answer lists who is worst off first, and says what becomes of each.
func TestSupposeTable(t *testing.T) {
	w := everything(t)
	start := func(clock string) int64 { return at(clock) }
	planned := func(clock, nodes string) *apiv1.Outlook {
		return &apiv1.Outlook{Standing: apiv1.Outlook_PLANNED, Start: start(clock), Nodes: nodes}
	}
	w.reply[tool.MethodSuppose] = func(proto.Message) (proto.Message, error) {
		job := func(name string, before, after *apiv1.Outlook) *apiv1.SupposedJob {
			return &apiv1.SupposedJob{
				Job: name, Name: "job\x1b[2J" + name, User: "alice", Partition: "gpu",
				Before: before, After: after,
			}
		}
		runs := &apiv1.Outlook{Standing: apiv1.Outlook_RUNNING}
		return &apiv1.SupposeReply{
			Now:   start("02:00:00"),
			Notes: []string{"the job is 9"},
			Jobs: []*apiv1.SupposedJob{
				job("4", planned("03:00:00", "n1"), planned("02:30:00", "n2")),
				job("9", &apiv1.Outlook{}, planned("06:00:00", "n[1-2]")),
				job("5", planned("03:00:00", "n1"), planned("05:00:00", "n1")),
				job("2", runs, &apiv1.Outlook{}),
				job("3", runs, &apiv1.Outlook{Standing: apiv1.Outlook_EVICTED}),
				job("6", planned("03:00:00", "n1"), &apiv1.Outlook{
					Standing: apiv1.Outlook_WAITING, Reason: &apiv1.Reason{Code: "PartitionDown"},
				}),
			},
			Same: 7, Both: 2, Delay: int64(90 * time.Minute), StartedAfter: 1, Truncated: true,
		}, nil
	}
	r := w.run("muster", "suppose", "scancel 2", "sbatch --wrap x")
	if r.code != 0 || r.errOut != "" {
		t.Fatalf("%d %s", r.code, r.errOut)
	}
	const want = `Supposed: the job is 9
JOBID  NAME      USER   PARTITION  NOW                  THEN                   CHANGE          NODES
2      job·[2J2  alice  gpu        runs                 -                      ends
3      job·[2J3  alice  gpu        runs                 is preempted           is preempted
6      job·[2J6  alice  gpu        2026-11-21T03:00:00  waits (PartitionDown)  no start known
5      job·[2J5  alice  gpu        2026-11-21T03:00:00  2026-11-21T05:00:00    2h00 later      n1
4      job·[2J4  alice  gpu        2026-11-21T03:00:00  2026-11-21T02:30:00    30m earlier     n2
9      job·[2J9  alice  gpu        -                    2026-11-21T06:00:00    new             n[1-2]

1 job earlier, 1 job later, 7 waiting as before. Starting at once: 0 now, 1 then.
On average over the 2 jobs with a start on both sides: 45m later.
The plans end at bf_max_job_test: jobs behind it are not in them.
`
	if r.out != want {
		t.Errorf("prints\n%s\nwant\n%s", r.out, want)
	}
}
