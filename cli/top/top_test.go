package top

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/cockroachdb/datadriven"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

const testNow = int64(1_800_000_000) * tool.Second

// testModel is a screen of a small cluster; names are as hostile as users may
// make them.
func testModel() *model {
	m := newModel(&tool.Env{Loc: time.UTC, Now: func() time.Time { return time.Unix(0, testNow) }}, "alice")
	m.cluster = "aurora"
	gpus := func(n int64) *apiv1.Tres {
		return &apiv1.Tres{Cpu: 8, Mem: 16384, Node: 1, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: n}}}
	}
	job := func(id uint32, name, user string, state spec.JobState, j *apiv1.JobInfo) *apiv1.JobInfo {
		j.Uid, j.JobId, j.ArrayTask, j.User, j.State, j.Partition = uint64(id), id, -1, user, uint32(state), "gpu"
		j.Spec = &apiv1.JobSpec{Name: name, Account: "ml", WorkDir: "/home/" + user, Command: "train.sh"}
		j.Submit, j.TimeLimit, j.NumCpus = testNow-int64(id)*60*tool.Second, 7200*tool.Second, 8
		return j
	}
	m.jobs = &apiv1.ListJobsReply{Now: testNow, Jobs: []*apiv1.JobInfo{
		job(1, "train", "alice", spec.Running, &apiv1.JobInfo{ReqTres: gpus(4), AllocTres: gpus(4), Start: testNow - 3600*tool.Second, Nodes: "node1"}),
		job(2, "\x1b[2Jevil\u202eabc", "bob", spec.Pending, &apiv1.JobInfo{ReqTres: gpus(8), Priority: 900, Reason: &apiv1.Reason{Code: "Resources"}, PlannedStart: testNow + 7200*tool.Second, PlannedNodes: "node[1-2]"}),
		job(3, strings.Repeat("long", 250), "alice", spec.Pending, &apiv1.JobInfo{ReqTres: gpus(1), Priority: 1000, Hold: 1, Reason: &apiv1.Reason{Code: "JobHeldUser"}}),
		job(4, "日本語のジョブ名前", "carol", spec.Running, &apiv1.JobInfo{ReqTres: gpus(0), Start: testNow - 60*tool.Second, Nodes: "node2"}),
		job(5, "done", "alice", spec.Failed, &apiv1.JobInfo{Start: testNow - 90*tool.Second, End: testNow - 30*tool.Second, ExitCode: 3, Reason: &apiv1.Reason{Code: "NonZeroExitCode"}}),
	}}
	node := func(name, state, reason string, held int) *apiv1.NodeInfo {
		n := &apiv1.NodeInfo{Name: name, State: state, Reason: reason, Cpus: 64, CpusAlloc: int64(held) * 8, Mem: 512000, Registered: true, LoadMilli: 1500, Partitions: []string{"gpu"}}
		for i := range 4 {
			g := &apiv1.GpuInfo{Index: uint32(i), Uuid: name + "-" + strconv.Itoa(i), Model: "H100", Allocated: i < held}
			if g.Allocated {
				g.JobId = 1
			}
			n.Gpus = append(n.Gpus, g)
		}
		return n
	}
	m.nodes = &apiv1.ListNodesReply{Now: testNow, Nodes: []*apiv1.NodeInfo{node("node1", "ALLOCATED", "", 4), node("node2", "IDLE+DRAIN", "a new fan", 0)}}
	m.nodes.Nodes[0].GpuFaults = []*apiv1.GpuFault{{Uuid: "node1-2", Kind: uint32(spec.GPUXID), Xid: 79, Class: "fatal", At: testNow}}
	return m
}

// TestScreens compares whole screens after keys. A key is a word; "type" types
// the rest of its line.
func TestScreens(t *testing.T) {
	m := testModel()
	datadriven.RunTest(t, "testdata/screens.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "fresh":
			m = testModel()
			d.ScanArgs(t, "size", &m.width, &m.height)
		case "keys":
			var asked []string
			for _, k := range strings.Fields(d.Input) {
				if e := m.handleKey(k); e != (effect{}) {
					asked = append(asked, fmt.Sprintf("asks: %+v%s\n", e, wantedText(m)))
				}
			}
			return strings.Join(asked, "") + m.drawScreen() + "\n"
		case "type":
			for _, r := range strings.TrimSpace(d.Input) {
				m.handleKey(string(r))
			}
		case "why":
			m.detail = m.whyText("2", &apiv1.WhyReply{Job: m.jobs.GetJobs()[1], Reason: m.jobs.GetJobs()[1].GetReason(), PlannedStart: testNow + 7200*tool.Second, PlannedNodes: "node[1-2]", Now: testNow})
		case "job":
			util, power := 50.0, 400.0
			history := &apiv1.GpuHistoryReply{Gpus: []*apiv1.GpuHistory{{Node: "node1", Points: []*apiv1.GpuPoint{{At: 0, Util: &util, Power: &power}, {At: 2, Util: &util, Power: &power}}}}}
			m.detail = m.jobText("1", m.jobs.GetJobs()[0], testNow, history)
		case "past": // the lists of a moment have come
			m.moment = m.wanted
			if d.HasArg("at") {
				var ago string
				d.ScanArgs(t, "at", &ago)
				by, err := time.ParseDuration(ago)
				if err != nil {
					t.Fatal(err)
				}
				m.jobs.Now += int64(by)
			}
		default:
			t.Fatalf("unknown command %s", d.Cmd)
		}
		return m.drawScreen() + "\n"
	})
}

// wantedText is the moment that is wanted, as people read it.
func wantedText(m *model) string {
	switch {
	case m.wanted.GetSeq() != 0:
		return fmt.Sprintf(" event %d", m.wanted.GetSeq())
	case m.wanted != nil:
		return " " + time.Unix(0, m.wanted.GetAt()).UTC().Format(time.DateTime)
	}
	return ""
}

// TestNoLineIsTooLong: whatever the size, the screen has as many lines as the
// terminal and none is wider, and a name steers nothing.
func TestNoLineIsTooLong(t *testing.T) {
	for _, colour := range []bool{false, true} {
		for width := 20; width < 200; width += 7 {
			for height := 6; height < 40; height += 5 {
				for _, keys := range []string{"", "2", "3", "?", "c", "/ a b", "s S u"} {
					m := testModel()
					m.colour, m.width, m.height = colour, width, height
					for _, k := range strings.Fields(keys) {
						m.handleKey(k)
					}
					lines := strings.Split(m.drawScreen(), "\n")
					if len(lines) != height {
						t.Fatalf("%dx%d %q: %d lines", width, height, keys, len(lines))
					}
					for _, line := range lines {
						if w := ansi.StringWidth(line); w > width || strings.Contains(line, "\x1b[2J") || strings.ContainsRune(line, '\u202e') {
							t.Fatalf("%dx%d %q: a line is %d wide: %q", width, height, keys, w, line)
						}
					}
				}
			}
		}
	}
}

// BenchmarkScreen: what a key costs with 10,000 jobs.
func BenchmarkScreen(b *testing.B) {
	m := testModel()
	for len(m.jobs.GetJobs()) < 10_000 {
		m.jobs.Jobs = append(m.jobs.Jobs, m.jobs.GetJobs()[:5]...)
	}
	for b.Loop() {
		m.handleKey("j")
		m.drawScreen()
	}
}
