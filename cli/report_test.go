package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/mail"
	"net/smtp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// reported sets the answers that muster report reads.
func (w *world) reported() {
	peak, sm, cost, joules := int64(1500)<<20, int64(900)*tool.Second, 6.0, 1.08e7
	idle, busy := 0.4, 4.0
	w.reply[tool.MethodAcctJobReport] = func(req proto.Message) (proto.Message, error) {
		if req.(*apiv1.JobReportQuery).GetJob() == "404" {
			return &apiv1.JobReportReply{}, nil
		}
		const begin = 1_790_000_000 * tool.Second
		return &apiv1.JobReportReply{Cluster: "peer", Now: begin + 9000*tool.Second, Cost: &cost, Currency: "EUR", EnergyJoules: &joules,
			Run: &apiv1.AcctRow{JobId: 12, Name: "<b>train</b>", User: "alice", Account: "ml", Partition: "gpu", State: "COMPLETED", Submit: begin, Start: begin + 3600*tool.Second,
				End: begin + 7200*tool.Second, Elapsed: 3600 * tool.Second, TimeLimit: 36000 * tool.Second, NodeList: "n[1-2]", AllocTres: &apiv1.Tres{Cpu: 8, Node: 2}, HasUsage: true, Usage: &apiv1.Usage{ReadBytes: 5 << 30, WriteBytes: 700, MajFaults: 12,
					Counters: []*apiv1.CounterValue{
						{Counter: uint32(spec.CounterNetIn), N: 3 << 40}, {Counter: uint32(spec.CounterNetOut), N: 2048},
						{Counter: uint32(spec.CounterLustreWrite), N: 1 << 20}, {Counter: uint32(spec.CounterReadOps), N: 40},
						{Counter: uint32(spec.CounterMinFaults), N: 3400}, {Counter: uint32(spec.CounterInvSwitches), N: 9},
						{Counter: uint32(spec.CounterThrottled), N: 1_500_400}, {Counter: uint32(spec.CounterIOStall), N: 0},
					}}},
			Nodes: []*apiv1.JobReportNode{
				{Node: "n1", Cpus: 4, MemMib: 8000, Held: 3600 * tool.Second, Measured: true, CpuTime: 10800 * tool.Second, PeakRss: &peak, Gpus: []*apiv1.JobReportGpu{
					{Uuid: "GPU-a", Type: "h100", Measured: true, Held: 3600 * tool.Second, Util: 1800 * tool.Second, Sm: &sm, PeakMem: 1 << 30, Method: "counted", Share: 1000},
					{Uuid: "GPU-b", Index: 1, Type: "h100", Measured: true, Held: 3600 * tool.Second, NoProcess: 1800 * tool.Second, Method: "by share", Share: 500},
					{Uuid: "GPU-c", Index: 2, Held: 3600 * tool.Second}}},
				{Node: "n2", Cpus: 4, MemMib: 8000, Held: 3600 * tool.Second, Lost: true}},
			Periods:   []*apiv1.ReasonPeriod{{Reason: &apiv1.Reason{Code: "Resources", Tres: "gres/gpu", Asked: 2, Used: 16, Limit: 16}, From: begin, To: begin + 3600*tool.Second}},
			UsageFrom: begin + 3600*tool.Second, UsageStep: 60 * tool.Second, UsageMore: 3, Usage: []*apiv1.UsageHistory{{Node: "n1", Samples: 7,
				Points: []*apiv1.UsagePoint{{Rss: 1000 << 20}, {At: 1, Cpus: &idle, Rss: 4000 << 20}, {At: 3, Cpus: &busy, Rss: 8000 << 20}}}},
			Advice: []*apiv1.UsageAdvice{{Kind: "memory", Change: "--mem=2G", Text: "the last 4 runs used at most 1.5 GiB", Runs: 4, Gain: 60 * tool.Second, Peers: 11, JobName: "train"}}}, nil
	}
	w.reply[tool.MethodAcctAdvise] = func(proto.Message) (proto.Message, error) {
		return &apiv1.AdviceReply{Advice: []*apiv1.UsageAdvice{{Kind: "cpus", Text: "the last 3 runs slept", JobName: "idle"}}}, nil
	}
	before := w.reply[tool.MethodAcctReport]
	w.reply[tool.MethodAcctReport] = func(req proto.Message) (proto.Message, error) {
		if rep := findingsReply(req.(*apiv1.ReportQuery).GetReport()); rep != nil {
			return rep, nil
		}
		if q := req.(*apiv1.ReportQuery); q.GetReport() == "waste" {
			cell := func(s string) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Text{Text: s}} }
			n := func(v int64) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Int{Int: v}} }
			f := func(v float64) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Float{Float: v}} }
			rep := &apiv1.ReportReply{Cluster: "peer"}
			for _, c := range [][3]string{{"JobID", "text"}, {"User", "text"}, {"Account", "text"}, {"JobName", "text"}, {"State", "text"}, {"Elapsed", "float", "seconds"},
				{"Held", "int", "bytes"}, {"Peak", "int", "bytes"}, {"Ratio", "float", "ratio"}, {"Waste", "float", "byte-hours"}} {
				rep.Columns = append(rep.Columns, &apiv1.ReportColumn{Name: c[0], Kind: c[1], Unit: c[2]})
			}
			rep.Rows = []*apiv1.ReportRow{{Cells: []*apiv1.Cell{cell("12"), cell("alice"), cell("ml"), cell("a,\"b\""), cell("COMPLETED"), f(3600), n(8 << 30), n(1 << 30), f(0.125), f(7 << 30)}}}
			return rep, nil
		}
		if before != nil {
			return before(req)
		}
		return w.answer(req)
	}
}

// findingsReply answers the three reports of findings; nil for others.
func findingsReply(report string) *apiv1.ReportReply {
	var columns []string
	var rows [][]any
	switch report {
	case "findings":
		columns = []string{"kind", "user", "account", "job_name", "node", "runs", "gpu_us", "cpu_us", "mem_mib_us", "value", "change", "advice", "evidence"}
		rows = [][]any{
			{"unused-gpus", "alice", "ml", "train-#", "", int64(3), int64(10_800_000_000), int64(0), int64(0), 6.0, "#SBATCH --gpus=1", "at most 1 of 4 GPUs did anything", "SELECT 1"},
			{"drained", "", "", "", "n7", int64(0), int64(7_200_000_000), int64(0), int64(0), 4.0, "", "the node is drained", "SELECT 2"},
		}
	case "findings followed":
		columns = []string{"kind", "user", "account", "job_name", "node", "progress", "resource", "before_us", "now_us", "saved_us", "saved_value"}
		rows = [][]any{{"memory", "alice", "ml", "prep", "", "done", "memory", int64(2 * 1024 * 3_600_000_000), int64(0), int64(1024 * 3_600_000_000), 0.5}}
	case "findings sum":
		columns = []string{"step", "what", "gpu_us", "found_us", "rest_us"}
		rows = [][]any{
			{"held_idle", "held without work", int64(14_400_000_000), int64(10_800_000_000), int64(3_600_000_000)},
			{"off", "powered down", int64(0), int64(0), int64(0)},
		}
	default:
		return nil
	}
	rep := &apiv1.ReportReply{Cluster: "peer"}
	for i, name := range columns {
		column := &apiv1.ReportColumn{Name: name, Kind: "text"}
		switch rows[0][i].(type) {
		case int64:
			column.Kind = "int"
		case float64:
			column.Kind, column.Unit = "float", "EUR"
		}
		rep.Columns = append(rep.Columns, column)
	}
	for _, row := range rows {
		line := &apiv1.ReportRow{}
		for _, v := range row {
			cell := &apiv1.Cell{}
			switch v := v.(type) {
			case int64:
				cell.Kind = &apiv1.Cell_Int{Int: v}
			case float64:
				cell.Kind = &apiv1.Cell_Float{Float: v}
			case string:
				cell.Kind = &apiv1.Cell_Text{Text: v}
			}
			line.Cells = append(line.Cells, cell)
		}
		rep.Rows = append(rep.Rows, line)
	}
	return rep
}

// TestFindings: the text of muster findings, to the letter, and that of one user,
// where the ladder of the cluster has no place.
func TestFindings(t *testing.T) {
	w := newWorld(t)
	w.reported()
	const list = `
  #  Kind         User (account)  Work     Runs  Value EUR  GPU-hours  CPU-hours  GiB-hours
  1  unused-gpus  alice (ml)      train-#     3       6.00       3.00       0.00       0.00
  2  drained      -               node n7     0       4.00       2.00       0.00       0.00

What to do
  - #1: #SBATCH --gpus=1  (at most 1 of 4 GPUs did anything)
  - #2: the node is drained

What became of the findings of the window before, in hours of the resource
  Kind    User (account)  Work  Progress  Resource  Before   Now  Saved  Value
  memory  alice (ml)      prep  done      memory      2.00  0.00   1.00   0.50
`
	const ladder = `
Where the GPU time went, in GPU-hours, and what of it is in findings
  Step       What                All  In findings  Rest
  held_idle  held without work  4.00         3.00  1.00
`
	for line, want := range map[string]string{
		"muster findings":                     list + ladder,
		"muster report findings":              list + ladder,
		"muster report findings alice":        list,
		"muster findings --users=alice":       list,
		"muster findings --accounts=ml -w 1d": list,
	} {
		r := w.run(strings.Fields(line)...)
		_, got, _ := strings.Cut(r.out, "\n")
		if "\n"+got != want || r.code != 0 {
			t.Errorf("%s (exit %d, %s) prints:\n%s\nwant:\n%s", line, r.code, r.errOut, got, want)
		}
	}
	if r := w.run("muster", "findings", "--sql"); !strings.Contains(r.out, "SELECT 2") {
		t.Errorf("--sql prints no evidence:\n%s", r.out)
	}
}

// TestJobReport: the text of a report, to the letter.
func TestJobReport(t *testing.T) {
	w := newWorld(t)
	w.reported()
	const want = `Job 12 <b>train</b> of alice in ml: COMPLETED
  Submitted  2026-09-21T14:13:20
  Waited     01:00:00
  Ran        01:00:00 of 10:00:00 on n[1-2] (partition gpu)
  Held       cpu=8,node=2
  Exit       0:0
  Cost       6.00 EUR
  Energy     3.000 kWh

Why it waited
  01:00:00  from 2026-09-21T14:13:20: Resources gres/gpu (asked 2, used 16, limit 16)

Use
  CPU     [|||||||||||||||||||||||       ]  75.0 %  6.0 of 8 CPUs
  Memory  [||||||                        ]  18.8 %  peak 1.46 GiB of 7.81 GiB, on 1 of 2 nodes
  GPU     [||||||||||                    ]  33.3 %  utilisation of 3 GPUs, 2 of them measured
  - Node n2 was lost: what was used there is not known.

  Node n1
    CPU     [|||||||||||||||||||||||       ]  75.0 %  3.0 of 4 CPUs
    Memory  [||||||                        ]  18.8 %  peak 1.46 GiB of 7.81 GiB
    GPU 0   [|||||||||||||||               ]  50.0 %  h100 GPU-a, SM active 25.0 %, counted, memory at most 1.00 GiB
    GPU 1   [                              ]   0.0 %  h100 GPU-b, by share, 50%, held idle 00:30:00
    GPU 2   [         not measured         ]      -   GPU-c

  Node n2
    CPU     [         not measured         ]      -   of 4 CPUs
    Memory  [         not measured         ]      -

I/O and waiting
  Network           3.0 TiB received, 2.0 KiB sent
  Lustre            1.0 MiB written
  Local disks       5.0 GiB read in 40 requests, 700 B written
  Page faults       12 major, 3400 minor
  Context switches  9 involuntary
  Stalled           0s for a disk, 1.5s throttled by a limit of CPU time

Over time, from 2026-09-21T15:13:20, 00:01:00 a column
  Node  What                Mean      Most
  n1    CPUs    [ _ #]       2.2       4.0
  n1    Memory  [.= #]  4.23 GiB  7.81 GiB
  - 3 more nodes are not shown: muster sql 'SELECT … FROM usage_samples' has them.

Advice
  - --mem=2G: the last 4 runs used at most 1.5 GiB
`
	run := func(args ...string) (string, string, int) { r := w.run(args...); return r.out, r.errOut, r.code }
	out, errs, code := run("muster", "report", "12")
	if code != 0 || errs != "" || out != want {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	out, _, code = run("muster", "report", "12", "--html")
	if code != 0 || strings.Contains(out, "<b>train") || !strings.Contains(out, "&lt;b&gt;train") || !strings.Contains(out, "width:18.8%") || !strings.Contains(out, "not measured") || !strings.Contains(out, "CPUs in use of 4") || strings.Contains(out, "a column") {
		t.Errorf("exit %d\n%s", code, out)
	}
	out, _, _ = run("muster", "report", "12", "--json")
	var doc struct {
		Cost   float64
		Carbon *float64          `json:"carbon_grams"`
		Counts map[string]*int64 `json:"counters"`
		Nodes  []struct {
			CPU  *float64 `json:"cpu_seconds"`
			GPUs []struct {
				Util *float64 `json:"utilisation_seconds"`
			}
		}
		Advice   []struct{ Change string }
		OverTime []struct {
			Points []struct {
				At, Bytes int64
				CPUs      *float64
			}
		} `json:"over_time"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Cost != 6 || doc.Carbon != nil || len(doc.Nodes) != 2 || *doc.Nodes[0].CPU != 10800 || doc.Nodes[1].CPU != nil ||
		*doc.Nodes[0].GPUs[1].Util != 0 || doc.Nodes[0].GPUs[2].Util != nil || doc.Advice[0].Change != "--mem=2G" ||
		len(doc.OverTime) != 1 || doc.OverTime[0].Points[0].CPUs != nil || *doc.OverTime[0].Points[2].CPUs != 4 || doc.OverTime[0].Points[2].At != 1_790_003_780 {
		t.Errorf("%v: %+v\n%s", err, doc, out)
	}
	if n := doc.Counts["net_out"]; n == nil || *n != 2048 || doc.Counts["nfs_read"] != nil || *doc.Counts["maj_faults"] != 12 {
		t.Errorf("counters: %v", doc.Counts)
	}
	for _, bad := range [][]string{{"report"}, {"report", "x"}, {"report", "user", "a", "b"}, {"report", "account"}, {"report", "site", "x"}, {"report", "404"}, {"report", "12", "--csv"},
		{"report", "site", "--window", "7"}, {"report", "waste", "--memory-below", "120"}, {"report", "waste", "--lines", "0"}, {"report", "site", "-S", "2026-11-02", "-E", "2026-11-01"}} {
		if out, errs, code := run(append([]string{"muster"}, bad...)...); code == 0 || errs == "" || out != "" {
			t.Errorf("%v: exit %d, %q, %q", bad, code, out, errs)
		}
	}
}

// TestBriefJobReport: the text of the mail at a job's end, to the letter.
func TestBriefJobReport(t *testing.T) {
	w := newWorld(t)
	w.reported()
	plain := w.reply[tool.MethodAcctJobReport]
	w.reply[tool.MethodAcctJobReport] = func(req proto.Message) (proto.Message, error) {
		answer, err := plain(req)
		answer.(*apiv1.JobReportReply).GetRun().Name = "a\n~!reboot"
		return answer, err
	}
	const want = `Job 12 a·~!reboot of alice in ml: COMPLETED
  Ran     01:00:00 of 10:00:00 on n[1-2] (partition gpu)
  Exit    0:0
  CPU     75.0 %, 6.0 of 8 CPUs
  Memory  18.8 %, peak 1.46 GiB of 7.81 GiB, on 1 of 2 nodes
  GPU     33.3 %, utilisation of 3 GPUs, 2 of them measured
  Advice  --mem=2G: the last 4 runs used at most 1.5 GiB
`
	if r := w.run("muster", "report", "12", "--brief"); r.code != 0 || r.errOut != "" || r.out != want {
		t.Errorf("exit %d, %s\n%s", r.code, r.errOut, r.out)
	}
	if r := w.run("muster", "report", "site", "--brief"); r.code == 0 || !strings.Contains(r.errOut, "--brief is for the report about a job") {
		t.Errorf("of the site: exit %d, %s", r.code, r.errOut)
	}
}

// TestDrawnJobReport: the drawn report of a job has its life, its GPUs over time and its events,
// needs nothing from elsewhere, and what users named is text in it.
func TestDrawnJobReport(t *testing.T) {
	const hostile = "</title><script>alert(1)</script>\u202e\x1b[31m\"'&"
	const begin = 1_790_000_000 * tool.Second
	w := newWorld(t)
	w.reported()
	plain := w.reply[tool.MethodAcctJobReport]
	w.reply[tool.MethodAcctJobReport] = func(req proto.Message) (proto.Message, error) {
		answer, err := plain(req)
		run := answer.(*apiv1.JobReportReply).GetRun()
		run.Name, run.Comment, run.SubmitLine, run.Restarts = hostile, hostile, "sbatch "+hostile, 2
		run.AllocTres = &apiv1.Tres{Cpu: 8, Node: 2, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 2}}}
		return answer, err
	}
	half, power := 50.0, 300.0
	w.reply[tool.MethodAcctGPUHistory] = func(proto.Message) (proto.Message, error) {
		return &apiv1.GpuHistoryReply{From: begin, Step: 60 * tool.Second, Gpus: []*apiv1.GpuHistory{
			{Node: hostile, Index: 3, Uuid: "GPU-a", Points: []*apiv1.GpuPoint{{At: 1, Util: &half, Power: &power}, {At: 2, Util: &half}}},
		}}, nil
	}
	w.reply[tool.MethodEvents] = func(proto.Message) (proto.Message, error) {
		return &apiv1.EventsReply{Seq: 9, Events: []*apiv1.EventInfo{
			{Seq: 8, At: begin + 3600*tool.Second, Kind: "JobStarted", Job: "12", ActorKind: "system", Nodes: []string{hostile}},
			{Seq: 9, At: begin + 7300*tool.Second, Kind: "JobDone", Job: "12", ActorKind: "node", Actor: hostile},
		}}, nil
	}
	r := w.run("muster", "report", "12", "--html")
	if r.code != 0 || r.errOut != "" {
		t.Fatalf("exit %d, %s", r.code, r.errOut)
	}
	for _, want := range []string{
		`<svg class="life"`, "waited: Resources", `<rect class="w0" x="0.0" y="6" width="500.0"`, `<rect class="ran" x="500.0" y="6" width="500.0"`,
		`<path class="mark" d="M500.0 0V30"><title>JobStarted`, "GPU 3 <small>GPU-a</small>", "<b>50 %</b> to 50 %", "<b>300 W</b> to 300 W", "tensor active</figcaption><p>not measured",
		"<summary>Events (2)</summary>", "JobDone", "Restarts</th><td class=\"w\">2, the last run is shown", "prefers-color-scheme:dark", "--mem=2G", "6.00 EUR",
		"&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;··[31m&#34;&#39;&amp;",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<script", "\u202e", "\x1b", "http:", "https:", "src=", "href=", "@import", "url("} {
		if strings.Contains(r.out, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if strings.Count(r.out, `class="mark"`) != 1 {
		t.Error("an event behind the end of the run is on its band")
	}
	if req := w.last(tool.MethodEvents).(*apiv1.EventsRequest); req.GetSince() != begin || req.GetUntil() != begin+10800*tool.Second || req.GetFollow() {
		t.Errorf("asked for events %v", req)
	}

	refuse := func(proto.Message) (proto.Message, error) {
		return nil, spec.Refuse(spec.CodeAccessDenied, "not yours")
	}
	w.reply[tool.MethodEvents], w.reply[tool.MethodAcctGPUHistory] = refuse, refuse
	if r := w.run("muster", "report", "12", "--html"); r.code != 0 || strings.Count(r.out, "not yours") != 2 || !strings.Contains(r.out, "--mem=2G") {
		t.Errorf("without events and samples: exit %d, %s\n%s", r.code, r.errOut, r.out)
	}
}

// TestReportCSV: commas, quotes and units survive.
func TestReportCSV(t *testing.T) {
	w := newWorld(t)
	w.reported()
	const want = "JobID,User,Account,JobName,State,Elapsed (seconds),Held (bytes),Peak (bytes),Ratio (ratio),Waste (byte-hours)\n" +
		"12,alice,ml,\"a,\"\"b\"\"\",COMPLETED,3600,8589934592,1073741824,0.125,7516192768\n"
	if r := w.run("muster", "report", "waste", "--csv"); r.code != 0 || r.out != want {
		t.Errorf("exit %d, %s\n%s", r.code, r.errOut, r.out)
	}
	for _, two := range [][]string{{"--csv", "--json"}, {"--html", "--yaml"}, {"--csv", "--mail", "a@b"}} {
		if r := w.run(append([]string{"muster", "report", "waste"}, two...)...); r.code == 0 || r.out != "" || !strings.Contains(r.errOut, "do not go together") {
			t.Errorf("%v: exit %d, %s\n%s", two, r.code, r.errOut, r.out)
		}
	}
	const table = "  JobID  User   Account  JobName  State       Elapsed      Held      Peak  Peak/held          Waste\n" +
		"  12     alice  ml       a,\"b\"    COMPLETED  01:00:00  8.00 GiB  1.00 GiB     12.5 %  7.0 GiB-hours\n"
	if r := w.run("muster", "report", "waste"); !strings.HasSuffix(r.out, table) {
		t.Errorf("the table:\n%s", r.out)
	}
}

// TestReportNoBudget: an account without a budget, or one that is not there, is
// said to have none.
func TestReportNoBudget(t *testing.T) {
	w := newWorld(t)
	w.reply[tool.MethodAcctReport] = func(proto.Message) (proto.Message, error) { return &apiv1.ReportReply{Cluster: "peer"}, nil }
	if r := w.run("muster", "report", "budget", "-A", "nosuch"); r.code != 0 || !strings.Contains(r.out, "There is no budget") {
		t.Errorf("exit %d, %s\n%s", r.code, r.errOut, r.out)
	}
}

// TestReportMail: a mail server gets the report in both forms, and what a user
// named a job stays out of the headers.
func TestReportMail(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() { got <- takeMail(l) }()
	w := newWorld(t)
	w.reported()
	w.beside = func(_ context.Context, stdin io.Reader, program string, args ...string) error { // as musterd mail does
		if program != "musterd" || len(args) != 8 || args[0] != "mail" {
			return fmt.Errorf("%s %q was called", program, args)
		}
		message, err := io.ReadAll(stdin)
		if err != nil {
			return err
		}
		return smtp.SendMail(args[2], nil, args[4], args[6:], message)
	}
	if r := w.run("muster", "report", "12", "--mail", "alice@example.org,bob@example.org", "--from", "muster@example.org", "--smtp", l.Addr().String()); r.code != 0 || r.out != "" {
		t.Fatalf("exit %d, %s %s", r.code, r.out, r.errOut)
	}
	w.beside = func(_ context.Context, _ io.Reader, program string, args ...string) error {
		const want = "musterd mail --smtp relay:587 --from muster@example.org --user ops --password-file /etc/p -- a@b"
		if got := program + " " + strings.Join(args, " "); got != want {
			t.Errorf("%s was called, want %s", got, want)
		}
		return nil
	}
	if r := w.run("muster", "report", "12", "--mail", "a@b", "--from", "muster@example.org", "--smtp", "relay:587", "--smtp-user", "ops", "--smtp-password-file", "/etc/p"); r.code != 0 {
		t.Errorf("exit %d, %s", r.code, r.errOut)
	}
	for _, half := range [][]string{{"--smtp-user", "ops"}, {"--smtp-password-file", "/etc/p"}, {"--smtp-user", "ops", "--smtp-password-file", "/etc/p", "--smtp", ""}} {
		if r := w.run(append([]string{"muster", "report", "12", "--mail", "a@b", "--smtp", "relay:587"}, half...)...); r.code == 0 || !strings.Contains(r.errOut, "go together") {
			t.Errorf("%v: exit %d, %s", half, r.code, r.errOut)
		}
	}
	m, err := mail.ReadMessage(strings.NewReader(<-got))
	if err != nil {
		t.Fatal(err)
	}
	if m.Header.Get("To") != "alice@example.org, bob@example.org" || !strings.Contains(m.Header.Get("Subject"), "Job 12 <b>train</b>") {
		t.Errorf("headers: %v", m.Header)
	}
	id := m.Header.Get("Message-ID")
	if !regexp.MustCompile(`^<\d+\.[0-9a-f]{16}@example\.org>$`).MatchString(id) {
		t.Errorf("Message-ID: %s", id)
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for _, want := range []string{"Job 12 <b>train</b> of alice", "<!DOCTYPE html>"} {
		p, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, p))
		if err != nil || !bytes.HasPrefix(body, []byte(want)) {
			t.Errorf("%v: %.60s", err, body)
		}
	}
}

// TestReportSendmail: without a server sendmail gets the report, and what it
// says against it is told.
func TestReportSendmail(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$*\" > '" + dir + "/args'\ncat > '" + dir + "/mail'\nif [ \"$3\" = no@example.org ]; then echo 'not from you' >&2; exit 77; fi\n"
	if err := os.WriteFile(filepath.Join(dir, "sendmail"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	w := newWorld(t)
	w.reported()
	if r := w.run("muster", "report", "12", "--mail", "alice@example.org", "--from", "muster@example.org"); r.code != 0 || r.out != "" {
		t.Fatalf("exit %d, %s %s", r.code, r.out, r.errOut)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || string(args) != "-i -f muster@example.org -- alice@example.org\n" {
		t.Errorf("called with %s: %v", args, err)
	}
	f, err := os.Open(filepath.Join(dir, "mail"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if m, err := mail.ReadMessage(f); err != nil || m.Header.Get("To") != "alice@example.org" {
		t.Errorf("the mail: %v, %v", m, err)
	}
	if r := w.run("muster", "report", "12", "--mail", "alice@example.org", "--from", "no@example.org"); r.code == 0 || !strings.Contains(r.errOut, "not from you") {
		t.Errorf("exit %d, %s", r.code, r.errOut)
	}
}

// takeMail is a mail server for one message.
func takeMail(l net.Listener) string {
	conn, err := l.Accept()
	if err != nil {
		return ""
	}
	defer conn.Close()
	say := func(s string) { _, _ = io.WriteString(conn, s+"\r\n") }
	say("220 here")
	var body strings.Builder
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "DATA"):
			say("354 go on")
			for lines.Scan() && lines.Text() != "." {
				body.WriteString(strings.TrimPrefix(lines.Text(), ".") + "\r\n")
			}
			say("250 taken")
		case strings.HasPrefix(line, "QUIT"):
			say("221 bye")
			return body.String()
		default:
			say("250 ok")
		}
	}
	return body.String()
}
