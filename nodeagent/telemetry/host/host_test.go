package host_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// tree makes a file system of name, content pairs.
func tree(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1] + "\n")}
	}
	return m
}

func proc() fstest.MapFS {
	return tree(
		"sys/kernel/hostname", "gpu01.cluster.example",
		"sys/kernel/random/boot_id", "989bb41b-6457-49cc-86d7-dfe5aab8d1c9",
		"sys/kernel/osrelease", "6.1.0-25-amd64",
		"sys/kernel/version", "#1 SMP Debian",
		"stat", "cpu  10557 3 4498 161528 666 1 133 34 0 0\ncpu0 1 2 3 4\nintr 1\nbtime 1795232172",
		"meminfo", "MemTotal:       24684092 kB\nMemFree:        23225912 kB\nMemAvailable:   24152428 kB\nHugePages_Total:       0",
		"uptime", "889.85 1615.28",
		"loadavg", "1.33 0.48 0.22 5/106 2951",
		"self/status", "Name:\tx\nCpus_allowed_list:\t0-127",
		"cpuinfo", "processor\t: 0\nmodel name\t: Example CPU\nphysical id\t: 0\ncore id\t: 0",
	)
}

// sys makes a topology: sockets of cores of threads, numbered as Linux does.
func sys(sockets, cores, threads int) fstest.MapFS {
	m := fstest.MapFS{}
	n := 0
	for th := range threads {
		for s := range sockets {
			for c := range cores {
				dir := fmt.Sprintf("devices/system/cpu/cpu%d/topology/", th*sockets*cores+s*cores+c)
				m[dir+"physical_package_id"] = &fstest.MapFile{Data: []byte(fmt.Sprintln(s))}
				m[dir+"core_id"] = &fstest.MapFile{Data: []byte(fmt.Sprintln(c))}
				n++
			}
		}
	}
	m["devices/system/cpu/online"] = &fstest.MapFile{Data: fmt.Appendf(nil, "0-%d\n", n-1)}
	return m
}

func source(sys fs.FS) host.Source {
	return host.Source{Proc: proc(), Sys: sys, Etc: tree("os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\""), TmpFS: "/tmp", Arch: "x86_64",
		Statfs: func(string) (int64, int64, error) { return 100 << 30, 60 << 30, nil }}
}

func TestRead(t *testing.T) {
	s := sys(2, 32, 2)
	s["devices/system/node/online"] = &fstest.MapFile{Data: []byte("0-1\n")}
	s["devices/system/node/node1/cpulist"] = &fstest.MapFile{Data: []byte("32-63,96-127\n")}
	s["devices/system/node/node1/meminfo"] = &fstest.MapFile{Data: []byte("Node 1 MemTotal:       12342046 kB\nNode 1 MemFree: 1 kB\n")}
	inv, err := host.Read(source(s))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := inv.String(), "NodeName=gpu01 CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=24105 TmpDisk=102400"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if inv.OS != "Linux 6.1.0-25-amd64 #1 SMP Debian" || inv.Distro != "Debian GNU/Linux 12 (bookworm)" || inv.BootID != "989bb41b-6457-49cc-86d7-dfe5aab8d1c9" ||
		inv.BootTime != spec.AtUnix(1795232172) || inv.Uptime != 889*spec.Second+850*spec.Millisecond || inv.LoadCenti != [3]int64{133, 48, 22} || inv.CPUModel != "Example CPU" {
		t.Errorf("%+v", inv)
	}
	if len(inv.NUMA) != 2 || inv.NUMA[1].MemoryMiB != 12052 || len(inv.NUMA[1].CPUs) != 64 || inv.NUMA[0].CPUs != nil {
		t.Errorf("%+v", inv.NUMA)
	}
	if inv.Allowed != nil || len(inv.Notes) != 0 {
		t.Errorf("%v %v", inv.Allowed, inv.Notes)
	}
}

func TestOddMachines(t *testing.T) {
	uneven := sys(1, 4, 2)
	uneven["devices/system/cpu/online"] = &fstest.MapFile{Data: []byte("0-6\n")}
	none := tree()
	dies := sys(1, 2, 1) // two dies whose cores have the same numbers
	for c := range 2 {
		dir := fmt.Sprintf("devices/system/cpu/cpu%d/topology/", c)
		dies[dir+"core_id"] = &fstest.MapFile{Data: []byte("0\n")}
		dies[dir+"die_id"] = &fstest.MapFile{Data: fmt.Appendln(nil, c)}
	}
	for name, c := range map[string]struct {
		sys                     fs.FS
		info                    string
		cpus, socks, cores, thr int
		note                    string
	}{
		"a thread is offline": {uneven, "", 7, 1, 4, 2, "the CPUs are uneven: 7 online"},
		"no /sys":             {none, "processor: 0\nphysical id: 0\ncore id: 0\n\nprocessor: 1\nphysical id: 1\ncore id: 0\n", 2, 2, 1, 1, ""},
		"neither":             {none, "processor: 0\nBogoMIPS: 50\n\nprocessor: 1\nBogoMIPS: 50\n", 2, 1, 2, 1, ""},
		"dies":                {dies, "", 2, 1, 2, 1, ""},
	} {
		src := source(c.sys)
		p := proc()
		if c.info != "" {
			p["cpuinfo"] = &fstest.MapFile{Data: []byte(c.info)}
		}
		src.Proc = p
		inv, err := host.Read(src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if inv.CPUs != c.cpus || inv.Sockets != c.socks || inv.CoresPerSocket != c.cores || inv.ThreadsPerCore != c.thr {
			t.Errorf("%s: %s", name, inv)
		}
		if notes := strings.Join(inv.Notes, "; "); !strings.Contains(notes, c.note) || (c.note == "" && notes != "") {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

func TestContainer(t *testing.T) {
	src := source(sys(1, 8, 1))
	p := proc()
	p["self/status"] = &fstest.MapFile{Data: []byte("Cpus_allowed_list:\t2-3,900\n")}
	src.Proc = p
	src.Statfs = func(string) (int64, int64, error) { return 0, 0, errors.New("no such file") }
	inv, err := host.Read(src)
	if err != nil || inv.CPUs != 8 || !reflect.DeepEqual(inv.Allowed, []int{2, 3}) {
		t.Errorf("%+v %v", inv, err)
	}
	if got := strings.Join(inv.Notes, "; "); got != "the agent may use 2 of the node's 8 CPUs; TmpDisk is unknown: no such file" {
		t.Errorf("notes %q", got)
	}
}

func TestMissingAndDamagedFiles(t *testing.T) {
	for file, content := range map[string]string{
		"sys/kernel/hostname": "", "sys/kernel/random/boot_id": "", "cpuinfo": "", "stat": "cpu 1 2", "meminfo": "MemTotal: lots kB",
		"uptime": "soon", "loadavg": "1.0 2.0",
	} {
		src := source(sys(1, 1, 1))
		p := proc()
		if content == "" {
			delete(p, file)
		} else {
			p[file] = &fstest.MapFile{Data: []byte(content)}
		}
		src.Proc = p
		_, err := host.Read(src)
		if !errors.Is(err, host.ErrHost) || !strings.Contains(err.Error(), file[strings.LastIndex(file, "/")+1:]) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestStats(t *testing.T) {
	s, err := host.ReadStats(source(sys(1, 2, 1)))
	if err != nil {
		t.Fatal(err)
	}
	want := host.Stats{CPUs: 2, UserNS: 105_570_000_000, NiceNS: 30_000_000, SystemNS: 44_980_000_000, IdleNS: 1_615_280_000_000,
		IOWaitNS: 6_660_000_000, IRQNS: 10_000_000, SoftIRQNS: 1_330_000_000, StealNS: 340_000_000, MemoryBytes: 24684092 << 10,
		MemoryAvailable: 24152428 << 10, LoadCenti: [3]int64{133, 48, 22}, BootTime: spec.AtUnix(1795232172), TmpDiskBytes: 100 << 30, TmpDiskAvailable: 60 << 30}
	if s != want {
		t.Errorf("\n got %+v\nwant %+v", s, want)
	}
}

// The machine the tests run on is a node too.
func TestThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("not a Linux machine")
	}
	inv, err := host.Read(host.This(os.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if inv.CPUs < 1 || inv.CPUs < runtime.NumCPU() || inv.Sockets < 1 || inv.RealMemoryMiB < 64 || len(inv.BootID) != 36 || inv.Uptime <= 0 || inv.TmpDiskMiB <= 0 {
		t.Errorf("%+v", inv)
	}
	s, err := host.ReadStats(host.This(os.TempDir()))
	if err != nil || s.MemoryAvailable <= 0 || s.MemoryAvailable > s.MemoryBytes || s.IdleNS+s.UserNS <= 0 || s.CPUs != inv.CPUs || s.BootTime != inv.BootTime {
		t.Errorf("%+v %v", s, err)
	}
	t.Log(inv)
}

func FuzzParsers(f *testing.F) {
	p := proc()
	for _, name := range []string{"stat", "meminfo", "uptime", "loadavg", "cpuinfo"} {
		f.Add(string(p[name].Data))
	}
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, s string) {
		if st, err := host.ParseStat(s); err == nil && (st.UserNS < 0 || st.StealNS < 0 || st.BootTime < 0) {
			t.Errorf("stat %+v", st)
		}
		if m, err := host.ParseMeminfo(s); err == nil && (m.TotalBytes <= 0 || m.AvailableBytes < 0) {
			t.Errorf("meminfo %+v", m)
		}
		if up, err := host.ParseUptime(s); err == nil && up < 0 {
			t.Errorf("uptime %d", up)
		}
		if l, err := host.ParseLoadavg(s); err == nil && min(l[0], l[1], l[2]) < 0 {
			t.Errorf("load %v", l)
		}
		if list, err := host.ParseList(s); err == nil {
			for i := 1; i < len(list); i++ {
				if list[i] <= list[i-1] {
					t.Errorf("list %v", list)
				}
			}
		}
		host.ParseCPUInfo(s)
	})
}

func BenchmarkReadStats(b *testing.B) {
	src := host.This(os.TempDir())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := host.ReadStats(src); err != nil {
			b.Fatal(err)
		}
	}
}
