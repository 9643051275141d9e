package proc

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
)

func TestOwnProcess(t *testing.T) {
	s, err := ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != os.Getpid() || s.PPID != os.Getppid() || s.StartTicks == 0 || s.RSSPages == 0 {
		t.Errorf("%+v", s)
	}
	if BootClock() == 0 {
		t.Error("no boot clock")
	}
	if id, err := BootID(); err != nil || len(id) != 36 {
		t.Errorf("boot id %q, %v", id, err)
	}
}

func TestNamesWithParenthesesAndSpaces(t *testing.T) {
	s, err := parseStat([]byte("42 (a) R (b c) S 7 42 9 0 -1 4194560 11 12 13 14 15 16 17 18 20 0 1 0 777 1000 25 184 0"))
	if err != nil || s.PID != 42 || s.State != 'S' || s.PPID != 7 || s.Session != 9 || s.User != 15 || s.StartTicks != 777 || s.RSSPages != 25 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "42", "42 (x) S 1", "x (y) S 1 1 1", "42 (x) S a b c d e f g h i j k l m n o p q r s t u v"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestTreeFindsSessionDescendantsAndMarked(t *testing.T) {
	all := []Stat{{PID: 10, PPID: 1, Session: 10}, {PID: 11, PPID: 10, Session: 10}, {PID: 12, PPID: 1, Session: 10},
		{PID: 13, PPID: 11, Session: 13}, {PID: 20, PPID: 1, Session: 20}, {PID: 21, PPID: 20, Session: 20}, {PID: 30, PPID: 1, Session: 30}}
	got := Tree(all, 10, 99, func(pid int) bool { return pid == 20 })
	var pids []int
	for _, s := range got {
		pids = append(pids, s.PID)
	}
	if !slices.Equal(pids, []int{10, 11, 12, 13, 20, 21}) {
		t.Errorf("got %v", pids)
	}
}

// What Tree gives gets killed: a run without a known process must never match
// the kernel's threads, init, or the shepherd with all its other children.
func TestTreeOfNothingIsNothing(t *testing.T) {
	all := []Stat{{PID: 1}, {PID: 2}, {PID: 3, PPID: 2}, {PID: 50, PPID: 1, Session: 1}, {PID: 60, PPID: 50, Session: 60}, {PID: 61, PPID: 60, Session: 61}}
	no := func(int) bool { return false }
	for _, root := range []int{-1, 0, 1} {
		if got := Tree(all, root, 60, no); len(got) != 0 {
			t.Errorf("root %d gives %v", root, got)
		}
	}
	if got := Tree(all, 0, 60, func(pid int) bool { return pid == 1 || pid == 60 }); len(got) != 0 {
		t.Errorf("a mark on init and on ourselves gives %v", got)
	}
}

func TestMarkAndChildren(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.Env = []string{"MUSTER_RUN=1.2.batch"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// The kernel fills in the environment a little after exec has begun.
	for environ := ""; environ == ""; {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/environ")
		if err != nil {
			t.Fatal(err)
		}
		environ = string(b)
	}
	if !HasEnv(cmd.Process.Pid, "MUSTER_RUN=1.2.batch") || HasEnv(cmd.Process.Pid, "MUSTER_RUN=1.2") {
		t.Error("the mark is not read exactly")
	}
	kids, err := Children()
	if err != nil || !slices.Contains(kids, cmd.Process.Pid) {
		t.Errorf("children %v, %v", kids, err)
	}
	all, err := All()
	if err != nil || !slices.ContainsFunc(all, func(s Stat) bool { return s.PID == cmd.Process.Pid }) {
		t.Errorf("%d processes, %v", len(all), err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) S 7 42 9 0 -1 4194560 11 12 13 14 15 16 17 18 20 0 1 0 777 1000 25 184 0"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseStat(b) })
}

func TestClocks(t *testing.T) {
	dir := t.TempDir()
	c := NewClocks()
	c.sys, c.proc = dir, dir+"/cpuinfo"
	if err := os.MkdirAll(dir+"/cpu1/cpufreq", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cpuinfo": "processor\t: 0\nmodel name\t: x : y\ncpu MHz\t\t: 2596.096\n\nprocessor\t: 1\ncpu MHz\t\t: 1.0\n", "cpu1/cpufreq/scaling_cur_freq": "3100000\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for cpu, want := range map[int]uint64{0: 2596, 1: 3100, 2: 0, -1: 0} {
		if got := c.MHz(cpu); got != want {
			t.Errorf("CPU %d: %d MHz, want %d", cpu, got, want)
		}
	}
	if s, err := ReadStat(os.Getpid()); err != nil || s.CPU < 0 {
		t.Errorf("this process ran on CPU %d, %v", s.CPU, err)
	}
}
