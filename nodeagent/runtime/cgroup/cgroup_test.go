package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// modes runs a test in every mode that works on this machine.
func modes(t *testing.T, fn func(t *testing.T, h *Host)) {
	ran := 0
	for _, m := range []Mode{V2, Hybrid, V1} {
		h := Detect(Options{Base: fmt.Sprintf("muster-test-%s-%d", m, os.Getpid()), Force: m, CloneInto: spawn.CanCloneIntoGroup()})
		if h.Mode() != m {
			continue
		}
		ran++
		t.Run(string(m), func(t *testing.T) {
			t.Cleanup(h.Close)
			fn(t, h)
		})
	}
	if ran == 0 {
		t.Skip("no writable control groups on this machine")
	}
}

// start runs a shell command in the group and gives its pid.
func start(t *testing.T, g *Group, command string) int {
	t.Helper()
	e, err := g.Enter()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	c, err := spawn.Start(&spawn.Request{Paths: []string{"/bin/sh"}, Argv: []string{"sh", "-c", command},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdin: fd, Stdout: fd, Stderr: fd, CgroupFD: e.CgroupFD, JoinFDs: e.Joins})
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(c.PIDFD)
	return c.PID
}

func wait(t *testing.T, pid int) syscall.WaitStatus {
	t.Helper()
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	return ws
}

func TestProcessIsBornInItsGroupAndKilledWithItsTree(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		g, err := h.Create("1.0.batch", Settings{})
		if err != nil {
			t.Fatal(err)
		}
		// The daemon leaves the session and its parent; only the group knows it.
		pid := start(t, g, "setsid sh -c '(sleep 1000 &) ; sleep 1000' & wait")
		pids, err := g.Procs()
		if err != nil || len(pids) == 0 {
			t.Fatalf("processes %v, %v", pids, err)
		}
		if err := g.Remove(); !errors.Is(err, ErrBusy) {
			t.Errorf("removing a full group: %v", err)
		}
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		if ws := wait(t, pid); ws.Signal() != syscall.SIGKILL {
			t.Errorf("leader ended with %v", ws)
		}
		if err := g.WaitEmpty(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
		names, err := h.Names()
		if err != nil || len(names) != 0 {
			t.Errorf("left over: %v, %v", names, err)
		}
	})
}

func TestCPUTimeIsCounted(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		if h.Mode() == V1 && h.v1["cpuacct"] == "" {
			t.Skip("no cpuacct")
		}
		g, err := h.Create("2.0.batch", Settings{})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, start(t, g, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
		s, err := g.Stats()
		if err != nil || s.CPU <= 0 {
			t.Errorf("usage %+v, %v", s, err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
}

func TestMemoryLimitKillsAndSaysSo(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		if !h.Enforces().Memory {
			t.Skip("no memory controller")
		}
		g, err := h.Create("3.0.batch", Settings{Limits: plan.Limits{MemoryBytes: 16 << 20, SwapBytes: plan.NoSwap}})
		if err != nil {
			t.Fatal(err)
		}
		ws := wait(t, start(t, g, "exec head -c 100000000 /dev/zero | tail -c 90000000 >/dev/null"))
		s, err := g.Stats()
		if err != nil || s.OOMKills == 0 || !s.HasMemory || s.Peak == 0 {
			t.Errorf("status %v, stats %+v, %v", ws, s, err)
		}
		// The shell that was waited for may be gone before the last program of its pipe.
		if err := g.WaitEmpty(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
}

// A job's script and its steps are held to the job's memory together: each alone
// would fit.
func TestAJobsGroupsShareItsMemory(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		if !h.Enforces().Memory {
			t.Skip("no memory controller")
		}
		job := plan.Limits{MemoryBytes: 64 << 20, SwapBytes: plan.NoSwap}
		// Runs of controllers that write an epoch have it in their names.
		key := plan.RunKey{Job: 7, Step: plan.StepBatch, Epoch: 0x94fac1228d684663}
		script, err := h.Create(key.String(), Settings{Limits: job, Job: job})
		if err != nil {
			t.Fatal(err)
		}
		step, err := h.Create(key.StepOf(0).String(), Settings{Limits: job, Job: job})
		if err != nil {
			t.Fatal(err)
		}
		holder := start(t, script, "x=$(head -c 40000000 /dev/zero | tr '\\0' a); sleep 1000; echo $x")
		for { // until it holds them
			if s, err := script.Stats(); err != nil {
				t.Fatal(err)
			} else if s.Peak > 39000000 {
				break
			}
			//muster:sleep the kernel tells nobody how much a group holds
			time.Sleep(10 * time.Millisecond)
		}
		wait(t, start(t, step, "exec head -c 50000000 /dev/zero | tail -c 49000000 >/dev/null"))
		s, err := step.Stats()
		o, oerr := script.Stats()
		if err != nil || oerr != nil || s.OOMKills+o.OOMKills == 0 {
			t.Errorf("script %+v, %v; step %+v, %v: both had what the job has not", o, oerr, s, err)
		}
		if err := script.Kill(); err != nil {
			t.Fatal(err)
		}
		wait(t, holder)
		for _, g := range []*Group{step, script} {
			if err := g.WaitEmpty(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if err := g.Remove(); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(filepath.Dir(filepath.Dir(step.mem))); err == nil {
			for _, e := range left {
				if e.IsDir() {
					t.Errorf("left over: %s", e.Name())
				}
			}
		}
	})
}

// Groups are found again in their job's folder and, of older releases, beside it or in a
// folder of their own; an empty folder of a job goes.
func TestNamesOfJobsFolders(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		if _, err := h.Create("8.0.batch", Settings{Job: plan.Limits{MemoryBytes: 64 << 20}}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Create("8.0.extern.ab12", Settings{Job: plan.Limits{MemoryBytes: 64 << 20}}); err != nil {
			t.Fatal(err)
		}
		want := []string{"8.0.batch", "8.0.extern.ab12", "9.0.batch"}
		made := []string{"9.0.batch", "10.0", "11.0.job.ab12"}
		if h.mode == V2 { // with v1 a run of an older release is beside its job's folder here
			want = append([]string{"12.0.3.ab12"}, want...)
			made = append(made, "12.0.3/12.0.3.ab12")
		}
		for _, dir := range made {
			if err := os.MkdirAll(filepath.Join(h.track, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		names, err := h.Names()
		slices.Sort(names)
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("names %q, %v, want %q", names, err, want)
		}
		for _, name := range names {
			if err := h.Open(name).Remove(); err != nil {
				t.Error(err)
			}
		}
		for _, dir := range []string{"10.0", "11.0.job.ab12", "12.0.3"} {
			if _, err := os.Stat(filepath.Join(h.track, dir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the empty folder %s of a job is there: %v", dir, err)
			}
		}
		if names, err := h.Names(); err != nil || len(names) != 0 {
			t.Errorf("left over: %q, %v", names, err)
		}
	})
}

// TestJobOf: all runs of an attempt have one folder, and those of another attempt or epoch
// another.
func TestJobOf(t *testing.T) {
	keys := map[string]plan.RunKey{}
	for _, key := range []plan.RunKey{{Job: 7}, {Job: 7, Attempt: 1}, {Job: 7, Epoch: 9}, {Job: 7, Epoch: 10}, {Job: 71}} {
		want := jobOf(key.String())
		if other, taken := keys[want]; taken {
			t.Errorf("%v and %v share the folder %s", key, other, want)
		}
		keys[want] = key
		for _, step := range []int32{plan.StepBatch, plan.StepExtern, plan.StepInteractive, 1} {
			if got := jobOf(key.StepOf(step).String()); got != want {
				t.Errorf("step %d of %v is in %s, another in %s", step, key, got, want)
			}
		}
		if _, err := plan.ParseRunKey(want); err == nil {
			t.Errorf("the folder %s has the name of a run", want)
		}
	}
}

// Kernels of version 2 are told by files: what is written, and where.
func TestLimitsOfVersion2(t *testing.T) {
	h := &Host{mode: V2, track: t.TempDir(), v2: map[string]bool{"memory": true}}
	job := filepath.Join(h.track, "7.0")
	for _, dir := range []string{job, filepath.Join(job, "7.0.0")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"memory.max", "memory.swap.max", "cgroup.subtree_control"} {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := h.jobV2(job, plan.Limits{MemoryBytes: 100, SwapBytes: plan.NoSwap}); err != nil {
		t.Fatal(err)
	}
	g := h.Open("7.0.0")
	if err := g.limitV2(Settings{Limits: plan.Limits{MemoryBytes: 60, SwapBytes: 7}}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "100", "memory.swap.max": "0", "cgroup.subtree_control": "+memory",
		"7.0.0/memory.max": "60", "7.0.0/memory.swap.max": "7", "7.0.0/cgroup.subtree_control": ""} {
		if got, err := os.ReadFile(filepath.Join(job, file)); err != nil || string(got) != want {
			t.Errorf("%s holds %q (%v), want %q", file, got, err, want)
		}
	}
}

func TestCoresConfine(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		if !h.Enforces().Cores {
			t.Skip("no cpuset controller")
		}
		g, err := h.Create("4.0.batch", Settings{Limits: plan.Limits{Cores: true}, CPUs: []int32{0}})
		if err != nil {
			t.Fatal(err)
		}
		if ws := wait(t, start(t, g, "grep -qx 'Cpus_allowed_list:\t0' /proc/self/status")); ws.ExitStatus() != 0 {
			t.Error("the process is not confined to CPU 0")
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
}

func TestFenceOpensOnlyTheAllowedDevice(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		if !h.Enforces().Devices {
			t.Skip("no v1 devices controller")
		}
		dir := t.TempDir()
		mine, other := filepath.Join(dir, "nvidia3"), filepath.Join(dir, "nvidia4")
		for i, p := range []string{mine, other} {
			if err := unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(3+i)))); err != nil {
				t.Skipf("cannot make device files: %v", err)
			}
		}
		g, err := h.Create("5.0.batch", Settings{Fence: true, Devices: []string{mine}})
		if err != nil {
			t.Fatal(err)
		}
		// No driver answers here: an allowed device says "no such device",
		// a fenced one "not permitted".
		cmd := fmt.Sprintf("! (: < %s) 2>&1 | grep -q 'not permitted' && (: < %s) 2>&1 | grep -qi 'not permitted'", mine, other)
		if ws := wait(t, start(t, g, cmd)); ws.ExitStatus() != 0 {
			out, _ := exec.Command("sh", "-c", fmt.Sprintf("(: < %s); (: < %s)", mine, other)).CombinedOutput()
			t.Errorf("the fence does not hold; unfenced, the shell says: %s", out)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
}

func TestOpenFindsAGroupAgain(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		g, err := h.Create("6.0.batch", Settings{Limits: plan.Limits{MemoryBytes: 64 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		pid := start(t, g, "exec sleep 1000")
		again := h.Open("6.0.batch")
		if pids, err := again.Procs(); err != nil || len(pids) != 1 || pids[0] != pid {
			t.Errorf("processes %v, %v, want %d", pids, err, pid)
		}
		if err := again.Kill(); err != nil {
			t.Fatal(err)
		}
		wait(t, pid)
		if err := again.Remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(g.Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the group is still there: %v", err)
		}
	})
}

// TestAnotherShepherdEnds has the shepherd of another release end, which takes the folders away that
// both have: the groups of later runs have what they had before.
func TestAnotherShepherdEnds(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		older := *h
		older.Close()
		if !h.lacksFolder() {
			t.Fatal("the folders are still there")
		}
		settings := Settings{Limits: plan.Limits{MemoryBytes: 64 << 20, Pids: 50, Cores: true}, CPUs: []int32{0}}
		g, err := h.Create("1.1.batch.ab", settings)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := g.Remove(); err != nil {
				t.Error(err)
			}
		}()
		pid := start(t, g, "sleep 100")
		pids, err := g.Procs()
		if err != nil || !slices.Contains(pids, pid) {
			t.Errorf("the group holds %v (%v), not %d", pids, err, pid)
		}
		if err := g.WaitEmpty(context.Background(), true); err != nil {
			t.Error(err)
		}
	})
}

func TestNoneTracksNothingAndSaysSo(t *testing.T) {
	h := Detect(Options{Base: "x", Force: None})
	if h.Mode() != None || len(h.Notes()) == 0 || h.Enforces() != (plan.Enforces{}) {
		t.Errorf("mode %v, notes %q, enforces %+v", h.Mode(), h.Notes(), h.Enforces())
	}
	g, err := h.Create("1", Settings{})
	if g != nil || err != nil {
		t.Errorf("group %v, %v", g, err)
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
}

func TestMountsOfContainersAndPlainHosts(t *testing.T) {
	for _, c := range []struct{ name, info, self, unified, memory string }{
		{"v2 service", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw",
			"0::/system.slice/muster-agent.service", "/sys/fs/cgroup/system.slice/muster-agent.service", ""},
		{"v2 restarted in its leaf", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
			"0::/system.slice/a.service/muster-shepherd", "/sys/fs/cgroup/system.slice/a.service", ""},
		{"container with a bind mount", "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw",
			"0::/docker/abc/x", "/sys/fs/cgroup/x", ""},
		{"outside of the mount", "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw",
			"0::/other", "/sys/fs/cgroup", ""},
		{"hybrid", "31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n32 23 0:28 / /sys/fs/cgroup/mem\\040ory rw shared:9 - cgroup cgroup rw,memory",
			"4:memory:/a/b\n0::/", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/mem ory/a/b"},
	} {
		m, err := parseMounts(c.info, c.self)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := m.unified.ownGroup(); got != c.unified {
			t.Errorf("%s: unified %q, want %q", c.name, got, c.unified)
		}
		if c.memory != "" && m.v1["memory"].ownGroup() != c.memory {
			t.Errorf("%s: memory %q, want %q", c.name, m.v1["memory"].ownGroup(), c.memory)
		}
	}
}

func TestCPUList(t *testing.T) {
	for want, in := range map[string][]int32{"": nil, "0": {0}, "0-3,8": {3, 8, 1, 0, 2, 2}, "1,3,5-6": {1, 3, 5, 6}} {
		if got := cpuList(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "0::/a")
	f.Add("32 23 0:28 / /m rw shared:9 - cgroup cgroup rw,memory", "4:memory:/a/b")
	f.Fuzz(func(t *testing.T, info, self string) {
		m, err := parseMounts(info, self)
		if err != nil {
			return
		}
		for _, mt := range m.v1 {
			_ = strings.TrimSpace(mt.ownGroup())
		}
	})
}

// A job's folder that could not be set up does not stay.
func TestAJobsFolderThatCannotBe(t *testing.T) {
	h := &Host{mode: V2, track: t.TempDir(), v2: map[string]bool{"memory": true}} // there is no kernel behind it
	if _, err := h.Create("7.0.0", Settings{}); err == nil {
		t.Error("a group without its files is made")
	}
	if left, err := os.ReadDir(h.track); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// What a run wrote to a disk is counted by its group, also when the process that wrote
// it is gone and the kernel writes it later.
func TestDisksAreCounted(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		g, err := h.Create("11.0.batch", Settings{})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "data")
		var fs unix.Statfs_t
		if err := unix.Statfs(filepath.Dir(file), &fs); err != nil {
			t.Fatal(err)
		}
		if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
			t.Skip("the folder for temporary files is memory")
		}
		wait(t, start(t, g, "dd if=/dev/zero of="+file+" bs=1M count=8 oflag=direct"))
		s, err := g.Stats()
		if err == nil && !s.HasIO && !h.v2["io"] {
			t.Skip("no io controller of v2, and kernels from 6.10 on count v1 groups with limits only")
		}
		requests, known := s.Counters.Get(spec.CounterWriteOps)
		if err != nil || s.Write < 8<<20 || s.Write > 16<<20 || !known || requests < 1 {
			t.Errorf("%+v, %v", s, err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
}

// The number of a group is that of its folder, and known when the folder is gone.
func TestNumbersOfGroups(t *testing.T) {
	modes(t, func(t *testing.T, h *Host) {
		g, err := h.Create("12.0.batch", Settings{})
		if err != nil {
			t.Fatal(err)
		}
		var stat unix.Stat_t
		if err := unix.Stat(g.Path(), &stat); err != nil {
			t.Fatal(err)
		}
		want := stat.Ino
		if h.Mode() == V1 {
			want = 0
		}
		if again := h.Open("12.0.batch"); again.ID() != want {
			t.Errorf("found again: %d, want %d", again.ID(), want)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		if g.ID() != want {
			t.Errorf("%d, want %d", g.ID(), want)
		}
		tree, depth := h.Tree()
		if want != 0 && filepath.Dir(g.Path()) != tree && depth == 1 {
			t.Errorf("%s is not %d below %s", g.Path(), depth, tree)
		}
	})
}

func TestCountersOfTheKernel(t *testing.T) {
	io := parseIOStat([]byte("8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n259:1 rbytes=1 wbytes=2 rios=3 wios=4\n7:0 \n8:16 rbytes=x wios=-3\n"))
	if io != (ioStat{4097, 8194, 4, 6}) {
		t.Errorf("io.stat: %+v", io)
	}
	read, write := parseBlkio([]byte("8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:16 Read 1\n8:16 Write 2\nTotal 63\n"))
	if read != 11 || write != 22 {
		t.Errorf("blkio: %d, %d", read, write)
	}
	for text, want := range map[string]int64{
		"some avg10=0.12 avg60=0.01 avg300=0.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n": 123456,
		"full avg10=0.00 total=99\n": -1, "some total=x\n": -1, "": -1,
	} {
		if n, ok := parsePressure([]byte(text)); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
	if !hasField([]byte("usage_usec 1\nthrottled_usec 0\n"), "throttled_usec") || hasField([]byte("nr_throttled_usec 1\n"), "throttled_usec") {
		t.Error("fields are not told apart")
	}
}
