package luascript

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestMain is also the child in which scripts run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Subcommand {
		os.Exit(Serve(os.Stdin, os.Stdout, os.Stderr, os.Exit))
	}
	os.Exit(m.Run())
}

func siteScript(t *testing.T) *spec.SiteScript {
	text, err := os.ReadFile("testdata/job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	return &spec.SiteScript{Path: "/etc/slurm/job_submit.lua", Text: string(text)}
}

func site(t *testing.T) Site {
	return Site{
		Script: siteScript(t),
		Partitions: []spec.PartitionSpec{
			{Name: "batch", Default: true}, {Name: "gpu"}, {Name: "admin", RootOnly: true},
		},
		Limits: Limits{Time: time.Minute, Memory: DefaultLimits().Memory},
	}
}

func aliceJob(change func(*Job)) *Job {
	job := &Job{
		Spec:  &apiv1.JobSpec{TimeLimit: int64(spec.Hour)},
		Facts: Facts{Script: []byte("#!/bin/sh\n"), UID: 1000, User: "alice", Component: -1},
	}
	if change != nil {
		change(job)
	}
	return job
}

// TestSubmit: what a script of a site decides about jobs.
func TestSubmit(t *testing.T) {
	for _, c := range []struct {
		name    string
		job     func(*Job)
		code    int64
		says    string
		changed []string
		err     string
		check   func(*Job) bool
	}{
		{
			name:    "a partition without GPUs",
			says:    "partition batch was chosen",
			changed: []string{"account: (none) -> physics", "partition: (none) -> batch"},
		},
		{
			name:    "a partition by GPUs",
			job:     func(j *Job) { j.Spec.PerJob = []*apiv1.Count{{Name: "gpu", Type: "h100", N: 5}} },
			says:    "partition gpu was chosen",
			changed: []string{"account: (none) -> physics", "partition: (none) -> gpu"},
		},
		{
			name: "no time limit",
			job:  func(j *Job) { j.Spec.TimeLimit = 0 },
			code: 2051,
			says: "Give a time limit: --time=HH:MM:SS",
		},
		{
			name: "a partition of others",
			job:  func(j *Job) { j.Spec.Partitions = []string{"admin"} },
			code: 2000,
			says: "you may not use admin",
		},
		{
			name: "an interactive job of a day",
			job: func(j *Job) {
				j.Script = nil
				j.Spec.Partitions = []string{"gpu"}
				j.Spec.Account = "x"
				j.Spec.TimeLimit = int64(spec.Day)
			},
			says:    "interactive jobs are cut to 4 hours",
			changed: []string{"time_limit: 1440 -> 240"},
			check:   func(j *Job) bool { return j.Spec.TimeLimit == int64(4*spec.Hour) },
		},
		{
			name: "a wckey of the environment",
			job: func(j *Job) {
				j.Env = []byte("A=1\x00PROJECT=moon\x00")
				j.Spec.Partitions = []string{"gpu"}
				j.Spec.Account = "x"
			},
			changed: []string{"environment[PROJECT_SEEN]", "wckey: (none) -> moon"},
			check: func(j *Job) bool {
				return string(j.Env) == "A=1\x00PROJECT=moon\x00PROJECT_SEEN=yes\x00" && j.Spec.Wckey == "moon"
			},
		},
		{
			name: "the environment of an srun",
			job: func(j *Job) {
				j.Script, j.Spec.Name, j.Spec.Account, j.Spec.Partitions = nil, "variable", "x", []string{"gpu"}
			},
			err: "job_submit.lua:75: job_desc.environment: only a batch job has its environment yet",
		},
		{name: "root", job: func(j *Job) { j.UID = 0; j.Spec.TimeLimit = 0 }},
		{
			name: "a refusal without a number",
			job:  func(j *Job) { j.Spec.Name, j.Spec.Account, j.Spec.Partitions = "own", "x", []string{"gpu"} },
			code: -1,
			says: "no such jobs here",
		},
	} {
		script, err := LoadJobScript(site(t))
		if err != nil {
			t.Fatal(err)
		}
		job := aliceJob(c.job)
		verdict, err := script.Submit(context.Background(), job)
		script.Close()
		if err != nil || c.err != "" {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v; want %q", c.name, err, c.err)
			}
			continue
		}
		slices.Sort(verdict.Changed)
		if verdict.Code != c.code || verdict.UserText() != c.says || (c.code == 0 && !slices.Equal(verdict.Changed, c.changed)) {
			t.Errorf("%s: code %d, says %q, changed %q", c.name, verdict.Code, verdict.UserText(), verdict.Changed)
		}
		if c.check != nil && !c.check(job) {
			t.Errorf("%s: the job is %v, environment %q", c.name, job.Spec, job.Env)
		}
	}
}

// TestModify: an update is seen with the job as it is, and can be refused and changed.
func TestModify(t *testing.T) {
	script, err := LoadJobScript(site(t))
	if err != nil {
		t.Fatal(err)
	}
	defer script.Close()
	update := &Update{By: 1000, JobID: 7, State: "PENDING", Changes: map[string]string{"TimeLimit": "2:00:00"}}
	verdict, err := script.Modify(context.Background(), aliceJob(nil), update)
	if err != nil || verdict.Code != -1 || verdict.UserText() != "job 7 keeps its limit of 60 minutes" {
		t.Errorf("a longer limit: %+v, %v", verdict, err)
	}
	update.Changes = map[string]string{"Comment": "hello", "TimeLimit": "30"}
	verdict, err = script.Modify(context.Background(), aliceJob(nil), update)
	if err != nil || verdict.Code != 0 || update.Changes["Comment"] != "hello (by alice)" || update.Changes["TimeLimit"] != "30" ||
		!slices.Equal(verdict.Changed, []string{"Comment: hello -> hello (by alice)"}) {
		t.Errorf("a comment: %+v, %v, %v", verdict, update.Changes, err)
	}
}

// TestScriptsThatFail: what goes wrong is said with file and line, and the next job is judged
// as if nothing had been.
func TestScriptsThatFail(t *testing.T) {
	where := site(t)
	runner := &Runner{Command: []string{os.Args[0], Subcommand}}
	defer runner.Close()
	judge := func(name string) (*Verdict, error) {
		mark := new(int) // the limits are sent with the site
		where.Limits.Time = time.Minute
		if name == "loop" || name == "backtrack" {
			where.Limits.Time = time.Second
		}
		job := aliceJob(func(j *Job) { j.Spec.Name, j.Spec.Account, j.Spec.Partitions = name, "x", []string{"gpu"} })
		return runner.Submit(context.Background(), mark, func() Site { return where }, job)
	}
	for name, want := range map[string]string{
		"loop":      "/etc/slurm/job_submit.lua:56: it ran longer than its 1s",
		"hog":       "it uses more than its 192 MiB of memory",
		"nil":       "/etc/slurm/job_submit.lua:64: attempt to index a non-table object(nil)",
		"typo":      "/etc/slurm/job_submit.lua:66: job_desc.partitoin is not a field that can be set",
		"file":      "/etc/slurm/job_submit.lua:68: io.open is not available",
		"nan":       "job_desc.min_nodes: NaN is out of range",
		"bomb":      "memory",
		"backtrack": "did not answer in time",
	} {
		verdict, err := judge(name)
		if err == nil || !strings.Contains(err.Error(), lastWords(want)) {
			t.Errorf("%s: %+v, %v; want %s", name, verdict, err, want)
		}
		if verdict, err := judge("good"); err != nil || verdict.Code != 0 {
			t.Errorf("after %s: %+v, %v", name, verdict, err)
		}
	}
}

// lastWords is what a child says that fails with want, also under the race detector.
func lastWords(want string) string {
	if underRaceDetector && strings.Contains(want, "memory") {
		return "failed to allocate"
	}
	return want
}

// TestRunnerTakesTheNewScript: a script is replaced when the configuration is another one, and
// one that does not load leaves no old rules behind.
func TestRunnerTakesTheNewScript(t *testing.T) {
	runner := &Runner{Command: []string{os.Args[0], Subcommand}}
	defer runner.Close()
	ask := func(mark any, text string) (*Verdict, error) {
		where := site(t)
		where.Script = &spec.SiteScript{Path: "job_submit.lua", Text: text}
		return runner.Submit(context.Background(), mark, func() Site { return where }, aliceJob(nil))
	}
	first, second, third := new(int), new(int), new(int)
	counts := "n = 0 function slurm_job_submit(j) n = n + 1 slurm.user_msg('%d', n) return 0 end"
	for _, want := range []string{"1", "2"} { // globals stay
		if verdict, err := ask(first, counts); err != nil || verdict.UserText() != want {
			t.Fatalf("%+v, %v; want %s", verdict, err, want)
		}
	}
	if verdict, err := ask(second, "function slurm_job_submit(j) return 2045 end"); err != nil || verdict.Code != 2045 {
		t.Errorf("the second script: %+v, %v", verdict, err)
	}
	for range 2 {
		if verdict, err := ask(third, "function slurm_job_submit(j"); err == nil {
			t.Errorf("a script that does not load judged: %+v", verdict)
		}
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		"function slurm_job_submit() end":        "",
		"function slurm_job_submit(":             "job_submit.lua: at its end",
		"x = = 1":                                `job_submit.lua:1: near "="`,
		"y = 1":                                  "none of the functions slurm_job_submit",
		"\nerror('no')":                          "job_submit.lua:2: no",
		"require 'posix'":                        "job_submit.lua:1: require is not available",
		"local s = 'x' while true do s=s..s end": "memory",
	} {
		err := Check([]string{os.Args[0], Subcommand}, &spec.SiteScript{Path: "job_submit.lua", Text: text}, FunctionSubmit)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), lastWords(want))) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// TestFieldsAreTheRequest: each field that can be set can be read back, changes the request,
// and loses nothing when it is set to what it is.
func TestFieldsAreTheRequest(t *testing.T) {
	values := map[string]lua.LValue{
		"min_mem_per_cpu": lua.LNumber(100), "min_mem_per_node": lua.LNumber(2000), "pn_min_memory": lua.LNumber(3000),
		"shared": lua.LNumber(0), "requeue": lua.LNumber(1), "open_mode": lua.LNumber(1), "contiguous": lua.LNumber(1),
		"overcommit": lua.LNumber(1), "reboot": lua.LNumber(1), "mail_type": lua.LNumber(mailBegin | mailFail),
		"nice": lua.LNumber(niceOffset + 50), "priority": lua.LNumber(77), "script": lua.LString("#!/bin/bash\n"),
		"licenses": lua.LString("a:1,b:2"), "partition": lua.LString("a,b"), "cpus_per_tres": lua.LString("gres/gpu:4"),
		"mem_per_tres": lua.LString("gres/gpu:4"), "gres": lua.LString("gres/gpu:h100:2,gres/nic:1"),
	}
	for _, f := range fields() {
		if f.set == nil {
			continue
		}
		value, ok := values[f.name]
		switch {
		case ok:
		case strings.HasPrefix(f.name, "tres_per"):
			value = lua.LString("gres/gpu:h100:2,gres/nic:1")
		case f.get(aliceJob(func(j *Job) { j.Spec = &apiv1.JobSpec{} })).Type() == lua.LTNumber:
			value = lua.LNumber(7)
		default:
			value = lua.LString("seven")
		}
		job := aliceJob(nil)
		before, _ := proto.Clone(job.Spec).(*apiv1.JobSpec)
		if err := f.set(job, value); err != nil {
			t.Errorf("%s = %v: %v", f.name, value, err)
			continue
		}
		if got := f.get(job); got != value {
			t.Errorf("%s = %v reads as %v", f.name, value, got)
		}
		if proto.Equal(before, job.Spec) && f.name != "script" {
			t.Errorf("%s = %v changes nothing", f.name, value)
		}
		after, _ := proto.Clone(job.Spec).(*apiv1.JobSpec)
		if err := f.set(job, f.get(job)); err != nil || !proto.Equal(after, job.Spec) {
			t.Errorf("%s set to itself: %v, %v", f.name, job.Spec, err)
		}
		if f.name == "script" {
			continue
		}
		for _, unset := range []lua.LValue{lua.LNil, f.get(&Job{Spec: &apiv1.JobSpec{}})} {
			if err := f.set(job, unset); err != nil {
				t.Errorf("%s = %v: %v", f.name, unset, err)
			}
		}
		if got := f.get(job); f.name != "shared" && got != f.get(&Job{Spec: &apiv1.JobSpec{}}) {
			t.Errorf("%s that was taken away is %v", f.name, got)
		}
	}
}

func TestParseGRES(t *testing.T) {
	for text, want := range map[string]string{
		"gpu": "gres/gpu:1", "gpu:2": "gres/gpu:2", "gres:gpu:a100:2": "gres/gpu:a100:2", "gres/gpu=3": "gres/gpu:3",
		"gpu:h100": "gres/gpu:h100:1", "nic,gpu:1K": "gres/nic:1,gres/gpu:1024", "": "",
	} {
		list, err := parseGRES(text)
		if got := gresText(list); err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{":2", "gpu:a:b:2", "gpu::2", "gpu:2x"} {
		if list, err := parseGRES(text); err == nil {
			t.Errorf("%q is %v", text, list)
		}
	}
}

// TestDocumentation: the page has every field.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/site-scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	read, written := fieldNames()
	for _, name := range append(read, written...) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/site-scripts.md lacks %s", name)
		}
	}
}

// fieldNames are the fields of job_desc that a script can only read, and those that it can change.
func fieldNames() (read, written []string) {
	for _, f := range fields() {
		if f.set != nil {
			written = append(written, f.name)
		} else {
			read = append(read, f.name)
		}
	}
	return read, append(written, "environment")
}
