package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

const minute = 60 * tool.Second

// TestSpec: what each option of sbatch writes into the request.
//
//muster:table one row for each option
func TestSpec(t *testing.T) {
	w := newWorld(t)
	n := func(name, typ string, k int64) []*apiv1.Count { return []*apiv1.Count{{Name: name, Type: typ, N: k}} }
	for line, want := range map[string]*apiv1.JobSpec{
		"-A ml":                            {Account: "ml"},
		"--account=ml -q gpucap":           {Account: "ml", Qos: "gpucap"},
		"-J x --comment=hi --wckey w":      {Name: "x", Comment: "hi", Wckey: "w"},
		"-p gpu,debug":                     {Partitions: []string{"gpu", "debug"}},
		"-N 2":                             {MinNodes: 2},
		"-N 2-4 -n 8 -c 2":                 {MinNodes: 2, MaxNodes: 4, Tasks: 8, CpusPerTask: 2},
		"-N 4-8 -n 2":                      {MinNodes: 2, MaxNodes: 2, Tasks: 2},
		"--ntasks-per-node=4 --mincpus=3":  {TasksPerNode: 4, MinCpusPerNode: 3},
		"--ntasks-per-gpu=1":               {TasksPerGpu: 1},
		"-t 90":                            {TimeLimit: 90 * minute},
		"-t 1:30":                          {TimeLimit: 2 * minute}, // whole minutes, rounded up
		"-t 2-0":                           {TimeLimit: 48 * hour},
		"-t UNLIMITED":                     {TimeLimit: -1},
		"-t 0":                             {TimeLimit: -1},
		"--time-min=10":                    {TimeMin: 10 * minute},
		"--mem=4G":                         {MemPerNode: 4096},
		"--mem=0":                          {AllMem: true},
		"--mem-per-cpu=500":                {MemPerCpu: 500},
		"--mem-per-gpu=2G --tmp=1G":        {MemPerGpu: 2048, TmpDisk: 1024},
		"-G 2":                             {PerJob: n("gpu", "", 2)},
		"-G h100:2":                        {PerJob: n("gpu", "h100", 2)},
		"--gpus-per-node=a100:4":           {PerNode: n("gpu", "a100", 4)},
		"--gpus-per-task=1":                {PerTask: n("gpu", "", 1)},
		"--gres=gpu":                       {PerNode: n("gpu", "", 1)},
		"--gres=gpu:2":                     {PerNode: n("gpu", "", 2)},
		"--gres=gpu:h100":                  {PerNode: n("gpu", "h100", 1)},
		"--gres=gpu:h100:3,nic:2K":         {PerNode: append(n("gpu", "h100", 3), n("nic", "", 2048)...)},
		"--gres=gres/gpu:2":                {PerNode: n("gpu", "", 2)},
		"--gres=none":                      {},
		"--tres-per-task=cpu=4,gres/gpu=1": {CpusPerTask: 4, PerTask: n("gpu", "", 1)},
		"--cpus-per-gpu=8":                 {CpusPerGpu: 8},
		"-L a:2,b":                         {Licenses: append(n("a", "", 2), n("b", "", 1)...)},
		"-L a:2|b":                         {Licenses: append(n("a", "", 2), n("b", "", 1)...), AnyLicense: true},
		"-B 2:8:1":                         {SocketsPerNode: 2, CoresPerSocket: 8, ThreadsPerCore: 1},
		"-B *:8":                           {CoresPerSocket: 8},
		"--segment=4 --spread-segments":    {Segment: 4, SpreadSegments: true},
		"-a 0-9:3%2":                       {Array: []*apiv1.TaskRange{{First: 0, Last: 9, Step: 3}}, ArrayThrottle: 2},
		"-a 1,5-7":                         {Array: []*apiv1.TaskRange{{First: 1, Last: 1, Step: 1}, {First: 5, Last: 7, Step: 1}}},
		"-d afterok:12:13":                 {Dependency: "afterok:12:13"},
		"-w n[1-3] -x n4 -C a&b":           {Nodes: "n[1-3]", Exclude: "n4", Constraint: "a&b"},
		"--exclusive":                      {Sharing: uint32(spec.Exclusive)},
		"--exclusive=user":                 {Sharing: uint32(spec.ExclusiveUser)},
		"-s":                               {Sharing: uint32(spec.Oversubscribe)},
		"-H --nice --reservation=r":        {Hold: true, Nice: 100, Reservation: "r"},
		"--nice=-5 --priority=77":          {Nice: -5, Priority: 77},
		"--priority=0":                     {Hold: true},
		"--requeue":                        {Requeue: apiv1.Tri_TRI_YES},
		"--requeue --no-requeue":           {Requeue: apiv1.Tri_TRI_NO},
		"--no-requeue --requeue":           {Requeue: apiv1.Tri_TRI_YES},
		"--signal=USR2@90":                 {Signal: 12, SignalBefore: 90 * tool.Second},
		"--signal=B:TERM":                  {Signal: 15, SignalBefore: 60 * tool.Second, SignalBatch: true},
		"--signal=R:10@5":                  {Signal: 10, SignalBefore: 5 * tool.Second, SignalResv: true},
		"-o out-%j -e err -i in":           {Stdout: "out-%j", Stderr: "err", Stdin: "in"},
		"--open-mode=a":                    {Append: apiv1.Tri_TRI_YES},
		"--open-mode=truncate":             {Append: apiv1.Tri_TRI_NO},
		"-D /tmp":                          {WorkDir: "/tmp"},
		"-D sub":                           {WorkDir: "/lab/jobs/sub"},
		"--begin=now+1hour":                {Begin: at("02:44:43")},
		"--deadline=03:00":                 {Deadline: at("03:00:00")},
		"--mail-type=END,FAIL -Q":          {MailTypes: []string{"END", "FAIL"}},
		"--kill-on-invalid-dep=yes":        {KillOnInvalidDep: apiv1.Tri_TRI_YES},
		"--propagate":                      {Rlimits: []*apiv1.Count{{Name: "CORE"}, {Name: "NOFILE", N: 1024}, {Name: "STACK", N: -1}}, LimitsAsked: true},
		"--propagate=CORE":                 {Rlimits: n("CORE", "", 0), LimitsAsked: true},
		"--propagate=NONE":                 {Rlimits: []*apiv1.Count{}, LimitsAsked: true},
		"--get-user-env":                   {Login: &apiv1.LoginShell{}},
		"--get-user-env=10L":               {Login: &apiv1.LoginShell{Timeout: 10 * tool.Second}},
		"--get-user-env=S":                 {Login: &apiv1.LoginShell{Plain: true}},
		"--export=NONE":                    {Login: &apiv1.LoginShell{}},
		"--export=V":                       {Login: &apiv1.LoginShell{}},
		"--export=NIL":                     {},
		"--export=ALL,V=1":                 {},
		"--switches=1@5":                   {Switches: 1, SwitchWait: 300 * tool.Second},
		"--contiguous --prefer=f --reboot": {Contiguous: true, Prefer: "f", Reboot: true},
		"-S 2 --threads-per-core=1":        {CoreSpec: 2, ThreadsPerCore: 1},
	} {
		got := w.submitted("sbatch " + line + " --wrap hostname").GetSpec()
		full := &apiv1.JobSpec{Name: "wrap", WorkDir: "/lab/jobs", SubmitHost: "vm", Umask: 0o22, SubmitLine: "sbatch " + line + " --wrap hostname",
			Rlimits: []*apiv1.Count{{Name: "CORE"}, {Name: "NOFILE", N: 1024}, {Name: "STACK", N: -1}}}
		if want.Rlimits != nil {
			full.Rlimits = nil
		}
		proto.Merge(full, want)
		if !proto.Equal(got, full) {
			t.Errorf("%s:\n got %v\nwant %v", line, got, full)
		}
	}
}

// TestSpecRefuses: values that are no values.
func TestSpecRefuses(t *testing.T) {
	w := newWorld(t)
	for line, code := range map[string]int{
		"-t x": 255, "-N 0": 1, "-N 4-2": 255, "-n -1": 1, "-c 0": 1, "--mem=1.5G": 255, "-G x": 255, "--gpus-per-node=": 255, "--gres=:2": 255, "--gres=a:b:c:d": 255, "-L a|b,c": 255,
		"-a 1-": 1, "-a ''": 1, "-d after:1+x": 1, "-w n[1": 255, "--exclusive=x": 255, "--nice=x": 255, "--priority=TOP": 255, "--priority=-1": 255, "--requeue=expedite": 255, "--signal=NOPE": 255,
		"--signal=USR1@99999": 255, "--open-mode=x": 255, "--begin=never": 255, "--mail-type=SOMETIMES": 255, "--kill-on-invalid-dep=maybe": 255, "--propagate=X": 1, "--switches=0": 1, "--wait-all-nodes=x": 1, "--wait-all-nodes=2": 255, "--hint=x": 1, "-F /nonexistent": 255,
		"--export='A": 255, "--export==x": 255, "--tres-per-task=gpu:1": 255, "--export-file=/nonexistent": 1, "--mcs-label=x": 255, "--hint=memory_bound": 1, "--thread-spec=0": 1, "--hold=yes": 255,
	} {
		w.forget()
		var words []string
		if strings.Contains(line, "'") {
			words = strings.SplitN(strings.ReplaceAll(line, "''", ""), " ", 2)
		} else {
			words = strings.Fields(line)
		}
		r := w.run(append(append([]string{"sbatch"}, words...), "--wrap", "x")...)
		if r.code != code || r.errOut == "" || len(w.seen) > 0 {
			t.Errorf("%s: exit code %d, want %d: %q, %d calls", line, r.code, code, r.errOut, len(w.seen))
		}
	}
}

func (w *world) script(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// TestPrecedence: the command line wins over variables, and those over the
// script, for every option that has a variable.
func TestPrecedence(t *testing.T) {
	w := newWorld(t)
	path := w.script("job.sh", "#!/bin/bash\n# a comment\n#SBATCH -J script -t 10 # minutes\n\n  # indented\n#SBATCH --comment=\"a b\" --output='c d'\n#SBATCH\necho\n#SBATCH -A late\n")
	got := w.submitted("sbatch " + path + " one -t 2").GetSpec()
	if got.GetName() != "script" || got.GetTimeLimit() != 10*minute || got.GetComment() != "a b" || got.GetStdout() != "c d" || got.GetAccount() != "" ||
		!slices.Equal(got.GetArgs(), []string{"one", "-t", "2"}) || got.GetCommand() != path {
		t.Errorf("script: %v", got)
	}
	w.env = map[string]string{"SBATCH_JOB_NAME": "env", "SBATCH_TIMELIMIT": "20", "SBATCH_REQUEUE": "", "SBATCH_NO_KILL": "0"}
	got = w.submitted("sbatch -J cli " + path).GetSpec()
	if got.GetName() != "cli" || got.GetTimeLimit() != 20*minute || got.GetRequeue() != apiv1.Tri_TRI_YES {
		t.Errorf("environment: %v", got)
	}
	w.env = map[string]string{"SBATCH_MEM_PER_NODE": "1G"}
	if got = w.submitted("sbatch --mem-per-cpu=5 --wrap x").GetSpec(); got.GetMemPerNode() != 0 || got.GetMemPerCpu() != 5 {
		t.Errorf("memory: %v", got)
	}
	w.watch = func(send func(*apiv1.JobInfo) error) error {
		return send(&apiv1.JobInfo{State: uint32(spec.Completed)})
	}
	for _, o := range submit.JobOptions() {
		s, ok := samples()["sbatch"][o.Long]
		if o.Env == "" || !ok || o.Long == "clusters" {
			continue
		}
		w.env = map[string]string{}
		w.nextID = 1
		viaLine := w.submitted("sbatch " + strings.TrimSuffix("--"+o.Long+"="+s.arg, "=") + " --wrap hostname")
		w.env = map[string]string{strings.Fields(o.Env)[0]: s.arg}
		w.nextID = 1
		viaEnv := w.submitted("sbatch --wrap hostname")
		viaLine.Spec.SubmitLine, viaEnv.Spec.SubmitLine = "", ""
		variable := strings.Fields(o.Env)[0] + "=" + s.arg + "\x00"
		viaEnv.Environment.Data = []byte(strings.Replace(string(viaEnv.GetEnvironment().GetData()), variable, "", 1))
		if o.Long != "export" && !proto.Equal(viaLine, viaEnv) {
			t.Errorf("%s is not --%s:\n%v\n%v", o.Env, o.Long, viaLine, viaEnv)
		}
	}
	for _, o := range submit.JobOptions() {
		if o.Env != "" && o.Refused != "" {
			w.env = map[string]string{strings.Fields(o.Env)[0]: "1"}
			if r := w.shell("sbatch --wrap x"); r.code != 255 || !strings.Contains(r.errOut, o.Env+" is not supported") {
				t.Errorf("%s: %d %s", o.Env, r.code, r.errOut)
			}
		}
	}
}

// TestScripts: what is a batch script, and Slurm's words about what is none.
func TestScripts(t *testing.T) {
	w := newWorld(t)
	for text, want := range map[string]string{
		"": "Batch script is empty!", " \n\n": "Batch script contains only whitespace!", "echo hi\n": "This does not look like a batch script.", "#!/bin/sh\r\necho\r\n": "DOS line breaks",
		"#!/bin/sh\necho\x00": "NULL character", "#!/bin/sh\n#SBATCH --bogus\n": "unrecognized option '--bogus'", "#!/bin/sh\n#SBATCH x\n": "Invalid directive found in batch script: x",
		"#!/bin/sh\n#SBATCH hetjob now\n": "Invalid directive found in batch script: hetjob", "#!/bin/sh\n#SBATCH -J \"a\n": "unmatched", "#!/bin/sh\n#SBATCH --wrap=x\n": "Invalid directive", "#!/bin/sh\n#SBATCH --resv-ports\n": "Muster does not reserve ports",
	} {
		for _, viaStdin := range []bool{false, true} {
			w.forget()
			var r result
			if viaStdin {
				w.stdin = text
				r = w.shell("sbatch")
			} else {
				r = w.shell("sbatch " + w.script("bad.sh", text))
			}
			if r.code == 0 || !strings.Contains(r.errOut, want) || len(w.seen) > 0 {
				t.Errorf("%q: %d %q", text, r.code, r.errOut)
			}
		}
	}
	w.stdin = "#!/bin/sh\n#SBATCH -n 2\nhostname\n"
	got := w.submitted2("sbatch -N 1")
	if string(got.GetScript().GetData()) != w.stdin || got.GetSpec().GetName() != "sbatch" || got.GetSpec().GetCommand() != "" || got.GetSpec().GetTasks() != 2 {
		t.Errorf("standard input: %v", got)
	}
	got = w.submitted("sbatch --wrap 'echo \"$HOME\"'")
	if string(got.GetScript().GetData()) != "#!/bin/sh\n# This script was created by sbatch --wrap.\n\necho \"$HOME\"\n" {
		t.Errorf("wrap: %q", got.GetScript().GetData())
	}
	// A name without a slash is looked for here, then in PATH.
	w.script("found.sh", "#!/bin/sh\n")
	w.env["PATH"] = "/nonexistent:" + w.dir
	if got = w.submitted("sbatch found.sh"); got.GetSpec().GetCommand() != filepath.Join(w.dir, "found.sh") {
		t.Errorf("PATH: %v", got.GetSpec().GetCommand())
	}
}

// submitted2 is submitted that leaves the standard input as it was set.
func (w *world) submitted2(line string) *apiv1.SubmitRequest { return w.submitted(line) }

// TestExport: which variables a job gets.
func TestExport(t *testing.T) {
	w := newWorld(t)
	w.env = map[string]string{"HOME": "/home/alice", "V": "caller", "SLURM_X": "1", "MULTI": "a\nb=c"}
	for option, want := range map[string]string{
		"":                             "HOME=/home/alice MULTI=a\nb=c V=caller SLURM_X=1",
		"--export=ALL":                 "HOME=/home/alice MULTI=a\nb=c V=caller SLURM_X=1 SLURM_EXPORT_ENV=ALL",
		"--export=NONE":                "SLURM_X=1 SLURM_EXPORT_ENV=NONE SLURM_GET_USER_ENV=1",
		"--export=NIL":                 "SLURM_X=1 SLURM_EXPORT_ENV=NIL",
		"--export=V,NEW=2":             "SLURM_X=1 V=caller NEW=2 SLURM_EXPORT_ENV=V,NEW=2 SLURM_GET_USER_ENV=1",
		"--export=ALL,V=mine":          "HOME=/home/alice MULTI=a\nb=c V=mine SLURM_X=1 SLURM_EXPORT_ENV=ALL,V=mine",
		"--export=V=mine,ALL":          "HOME=/home/alice MULTI=a\nb=c V=mine SLURM_X=1 SLURM_EXPORT_ENV=V=mine,ALL",
		"--export=A='x,y',MISSING":     "SLURM_X=1 A=x,y SLURM_EXPORT_ENV=A='x,y',MISSING SLURM_GET_USER_ENV=1",
		"--export=NIL --get-user-env":  "SLURM_X=1 SLURM_EXPORT_ENV=NIL SLURM_GET_USER_ENV=1",
		"--export=NIL --export-file=F": "SLURM_X=1 A=1 B=2 SLURM_EXPORT_ENV=NIL",
	} {
		w.forget()
		option = strings.ReplaceAll(option, "=F", "="+w.script("F", "A=1\x00B=2\x00broken\x00"))
		r := w.run(append(append([]string{"sbatch"}, strings.Fields(option)...), "--wrap", "x")...)
		if r.code != 0 {
			t.Errorf("%s: %s", option, r.errOut)
			continue
		}
		req := w.last(tool.MethodSubmit).(*apiv1.SubmitRequest)
		got := strings.Split(strings.TrimSuffix(string(req.GetEnvironment().GetData()), "\x00"), "\x00")
		got = slices.DeleteFunc(got, func(kv string) bool { return strings.HasPrefix(kv, "MUSTER_SOCKET=") || kv == "SLURM_PRIO_PROCESS=0" })
		list := strings.Split(strings.ReplaceAll(want, "a\nb=c", "a|b=c"), " ")
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], "\n", "|")
		}
		list = append(list, "SLURM_SUBMIT_DIR=/lab/jobs", "SLURM_SUBMIT_HOST=vm")
		slices.Sort(got)
		slices.Sort(list)
		if !slices.Equal(got, list) {
			t.Errorf("%s:\n got %q\nwant %q", option, got, list)
		}
	}
}

// TestWait: --wait returns the job's exit code, over a restart of the controller.
func TestWait(t *testing.T) {
	w := newWorld(t)
	end := &apiv1.JobInfo{State: uint32(spec.Failed), ExitCode: 9}
	w.watch = func(send func(*apiv1.JobInfo) error) error { return send(end) }
	if r := w.shell("sbatch -W --wrap x"); r.code != 9 || r.out != "Submitted batch job 4\n" {
		t.Errorf("%+v", r)
	}
	for state, code := range map[*apiv1.JobInfo]int{
		{State: uint32(spec.Completed)}: 0, {State: uint32(spec.Failed), ExitSignal: 9}: 1, {State: uint32(spec.Cancelled)}: 1, {State: uint32(spec.TimedOut), ExitSignal: 15}: 1,
	} {
		end = state
		if r := w.shell("sbatch -W --wrap x"); r.code != code {
			t.Errorf("%v: exit code %d, want %d", state, r.code, code)
		}
	}
	calls := 0
	w.watch = func(send func(*apiv1.JobInfo) error) error {
		if calls++; calls < 3 {
			return rpcstatus.New(rpcstatus.Unavailable, "restarting")
		}
		return send(&apiv1.JobInfo{State: uint32(spec.Completed)})
	}
	w.pauses = nil
	if r := w.shell("sbatch -W --wrap x"); r.code != 0 || strings.Count(r.errOut, "went away") != 1 || len(w.pauses) != 2 {
		t.Errorf("%+v, pauses %v", r, w.pauses)
	}
	w.watch = func(func(*apiv1.JobInfo) error) error { return spec.Refuse(spec.CodeInvalidJobID, "") }
	if r := w.shell("sbatch -W --wrap x"); r.code != 1 || !strings.Contains(r.errOut, "Invalid job id specified") {
		t.Errorf("%+v", r)
	}
	w.jobs = []*apiv1.JobInfo{labJob(60, "x", "alice", spec.Failed, task(60, 0), edit(func(j *apiv1.JobInfo) { j.ExitCode = 3 })), labJob(61, "x", "alice", spec.Failed, task(60, 1), edit(func(j *apiv1.JobInfo) { j.ExitCode = 7 }))}
	w.nextID = 59
	w.watch = func(send func(*apiv1.JobInfo) error) error {
		return send(&apiv1.JobInfo{State: uint32(spec.Completed)})
	}
	if r := w.shell("sbatch -W -a 0-1 --wrap x"); r.code != 7 {
		t.Errorf("array: %+v", r)
	}
}

// TestUnreachable: one clear line each, with the cure, and exit code 1.
func TestUnreachable(t *testing.T) {
	w := newWorld(t)
	w.socket = filepath.Join(w.dir, "nobody")
	for line, begin := range map[string]string{
		"squeue": "slurm_load_jobs error: Unable to contact slurm controller (connect failure): nothing listens", "sinfo": "slurm_load_partitions: Unable to contact slurm controller (connect failure)",
		"sbatch --wrap x": "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", "scancel 4": "scancel: error: Unable to contact", "sacct": "sacct: error: Unable to contact",
		"scontrol show job 4": "slurm_load_jobs error: Unable to contact", "scontrol hold 4": "Unable to contact", "muster why 4": "muster why: error: Unable to contact", "sdiag": "slurm_get_statistics: Unable to contact",
		"sreport user top": "sreport: error: Unable to contact", "sacctmgr show qos": "sacctmgr: error: Unable to contact", "muster kpi": "muster kpi: error: Unable to contact",
	} {
		r := w.shell(line)
		if r.code != 1 || r.out != "" || !strings.HasPrefix(r.errOut, begin) || strings.Count(r.errOut, "\n") != 1 || !strings.Contains(r.errOut, "MUSTER_SOCKET") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	if r := w.shell("scontrol ping"); r.code != 1 || r.out != "Slurmctld(primary) at vm is DOWN\n" {
		t.Errorf("ping: %+v", r)
	}
	w.env["SLURM_EXIT_ERROR"] = "42"
	if r := w.shell("sbatch --wrap x"); r.code != 42 {
		t.Errorf("SLURM_EXIT_ERROR: %+v", r)
	}
	w.env["MUSTER_SERVER"] = "ctl:6817"
	if r := w.shell("squeue"); r.code != 1 || !strings.Contains(r.errOut, "MUSTER_SERVER") {
		t.Errorf("MUSTER_SERVER: %+v", r)
	}
}

// TestSocket: where the socket is looked for.
func TestSocket(t *testing.T) {
	w := newWorld(t)
	e := w.world([]string{"squeue"}, nil, nil)
	for yaml, want := range map[string][2]string{
		"": {tool.DefaultSocket, tool.DefaultPast}, "run_dir: /x": {"/x/muster.sock", "/x/accounting.sock"},
		"socket: /y/s # here\nrun_dir: /x": {"/y/s", "/x/accounting.sock"}, "socket: \"/q\"": {"/q", tool.DefaultPast}, "socket: s": {w.dir + "/s", tool.DefaultPast},
		"accounting_socket: /a": {tool.DefaultSocket, "/a"}, "listen:\n  socket: /inner": {tool.DefaultSocket, tool.DefaultPast}, "# socket: /z": {tool.DefaultSocket, tool.DefaultPast},
	} {
		e.Environ = []string{"MUSTER_CONFIG=" + w.script("muster.yaml", yaml)}
		if got, past, err := e.Sockets(); err != nil || got != want[0] || past != want[1] {
			t.Errorf("%q: %q, %q, %v", yaml, got, past, err)
		}
	}
	e.Environ = []string{"MUSTER_CONFIG=" + w.script("muster.yaml", "socket: |\n  /x\n")}
	if _, _, err := e.Sockets(); err == nil {
		t.Error("a block scalar is accepted")
	}
	e.Environ = []string{"MUSTER_CONFIG=/nonexistent"}
	if _, _, err := e.Sockets(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file that was named: %v", err)
	}
	e.Environ = []string{"MUSTER_CONFIG=/nonexistent", "MUSTER_SOCKET=/d/s"}
	if got, past, err := e.Sockets(); err != nil || got != "/d/s" || past != "/d/accounting.sock" {
		t.Errorf("%q %q %v", got, past, err)
	}
}
