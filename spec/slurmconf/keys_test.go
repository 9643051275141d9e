package slurmconf

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/spec"
)

// Slurm 25.11's keys, by name. Every one must be in a table.
func TestEverySlurmKeyIsKnown(t *testing.T) {
	data, err := os.ReadFile("testdata/slurm-keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(data))
	if len(names) != 295 {
		t.Fatalf("%d keys, want 295", len(names))
	}
	known := map[string]bool{}
	for _, s := range Supported() {
		if s.File == "slurm.conf" {
			known[strings.ToLower(s.Key)] = true
		}
	}
	for _, n := range names {
		if !known[strings.ToLower(n)] {
			t.Errorf("%s is in no table", n)
		}
	}
}

func TestTablesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Supported() {
		id := s.File + " " + s.Record + " " + strings.ToLower(s.Key)
		if seen[id] {
			t.Errorf("%s is in the table twice", id)
		}
		seen[id] = true
		if (s.Status == "implemented") != (s.Why == "") || s.Status == "unknown" {
			t.Errorf("%s: %s, %q", id, s.Status, s.Why)
		}
	}
	checkSetters(t, topKeys())
	checkSetters(t, nodeKeys())
	checkSetters(t, partKeys())
	checkSetters(t, setKeys())
	checkSetters(t, downKeys())
	checkSetters(t, gresKeys())
	checkSetters(t, cgroupKeys())
	checkSetters(t, containerKeys())
	checkSetters(t, dbdKeys())
	for _, table := range [][]option{storeFlags(), gatherParams(), launchParams(), priorityFlags(), controllerParams(), agentParams(), selectParams(), dependencyParams(), topologyParams(), schedulerParams(), gresFlags()} {
		for i, o := range table {
			if (o.class == implemented) != (o.why == "") || o.class == 0 {
				t.Errorf("option %s: %s, %q", o.name, o.class, o.why)
			}
			if slices.ContainsFunc(table[:i], func(p option) bool { return p.name == o.name }) {
				t.Errorf("option %s is in the table twice", o.name)
			}
		}
	}
}

func checkSetters[T any](t *testing.T, keys []key[T]) {
	t.Helper()
	for _, k := range keys {
		if (k.set != nil) != (k.class == implemented) {
			t.Errorf("%s is %s, but has a setter: %v", k.name, k.class, k.set != nil)
		}
	}
}

const minimal = "ClusterName=c\nGresTypes=gpu\nNodeName=n[1-3] CPUs=4 RealMemory=8000\nPartitionName=p Nodes=n[1-3]\n"

// Each key of the main part answers as its class says, in any case of letters,
// and is silent for the values that ask for nothing.
func TestEveryKeyAnswers(t *testing.T) {
	worst := map[class]Severity{meaningless: Note, unsupported: Warning, refused: Error}
	for _, k := range topKeys() {
		if k.class == implemented {
			continue
		}
		for _, spelling := range []string{k.name, strings.ToUpper(k.name), strings.ToLower(k.name)} {
			_, ps := Read(conf(minimal+spelling+"=zzz\n"), "slurm.conf")
			if len(ps) != 1 || ps[0].Severity != worst[k.class] || ps[0].Key != k.name || ps[0].Line != 5 {
				t.Errorf("%s=zzz: %v", spelling, ps)
			}
		}
		for off := range strings.SplitSeq(k.off, "|") {
			if off == "" {
				continue
			}
			if _, ps := Read(conf(minimal+k.name+"="+strings.ToUpper(off)+"\n"), "slurm.conf"); len(ps) != 0 {
				t.Errorf("%s=%s: %v", k.name, off, ps)
			}
		}
	}
}

// Every implemented key of the main part refuses nonsense or keeps it: nothing
// is swallowed.
func TestImplementedKeysReadTheirValue(t *testing.T) {
	keepsAnyText := []string{"SlurmUser", "JobCompLoc", "ControlMachine", "SlurmctldHost"}
	for _, k := range topKeys() {
		if k.class != implemented || slices.Contains(keepsAnyText, k.name) {
			continue
		}
		_, ps := Read(conf(minimal+k.name+"=(zzz!\n"), "slurm.conf")
		if ps.Err() == nil && k.name != "ControlAddr" {
			t.Errorf("%s=(zzz! is accepted: %v", k.name, ps)
		}
	}
}

func conf(text string) fstest.MapFS { return fstest.MapFS{"slurm.conf": file(text)} }

func TestRawKeepsEverything(t *testing.T) {
	f, ps := Read(fstest.MapFS{
		"etc/slurm.conf": file("clustername = C1\nMailDomain=\"a b\"\ninclude more.conf\nJobCompPass=hunter2\n"),
		"etc/more.conf":  file("\nNodeName=n1 \\\n CPUs=2\n"),
	}, "etc/slurm.conf")
	want := []Setting{
		{"clustername", "C1", "etc/slurm.conf", 1}, {"MailDomain", "a b", "etc/slurm.conf", 2},
		{"NodeName", "n1", "etc/more.conf", 2}, {"CPUs", "2", "etc/more.conf", 3}, {"JobCompPass", Secret, "etc/slurm.conf", 4},
	}
	if !slices.Equal(f.Settings, want) {
		t.Errorf("got  %v\nwant %v", f.Settings, want)
	}
	if len(f.Config.Raw) != len(want) || f.Config.Raw[4] != (spec.KeyValue{Key: "JobCompPass", Value: Secret}) {
		t.Errorf("Raw: %v", f.Config.Raw)
	}
	if v, ok := f.Value("MAILDOMAIN"); v != "a b" || !ok {
		t.Errorf("Value: %q, %v", v, ok)
	}
	if _, ok := f.Value("Prolog"); ok {
		t.Error("Value of a key that is not there")
	}
	if strings.Contains(ps.String(), "hunter2") {
		t.Errorf("a password is in %v", ps)
	}
}

// Passwords stay out of every message, however the line is broken.
func TestSecretsStaySecret(t *testing.T) {
	for _, line := range []string{"StoragePass=hunter2", "StoragePass=\"hunter2", "StoragePass=\"x\"hunter2", "StoragePass=x hunter2",
		"storagepass = hunter2", "StoragePass=hun\"ter2", "StoragePass=hunter2\nStoragePass=hunter2", "StoragePass= hunter2 x=hunter2",
		"StoragePass=x hunter2=3 hunter2"} {
		d, ps := ReadDBD(fstest.MapFS{"d": file(line + "\n")}, "d")
		for _, s := range d.Settings {
			if strings.Contains(s.Value, "hunter2") {
				t.Errorf("%q: kept as %v", line, s)
			}
		}
		if strings.Contains(ps.String(), "hunter2") {
			t.Errorf("%q: %v", line, ps)
		}
	}
}

func TestSecretModes(t *testing.T) {
	for mode, bad := range map[fs.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o602: true, 0o604: true} {
		fsys := fstest.MapFS{
			"slurmdbd.conf": {Data: []byte("DbdHost=x\nInclude secret.conf\n"), Mode: 0o644},
			"secret.conf":   {Data: []byte("StoragePass=hunter2\n"), Mode: mode},
		}
		d, ps := ReadDBD(fsys, "slurmdbd.conf")
		if (ps.Err() != nil) != bad || !d.HasSecret {
			t.Errorf("mode %04o: %v", mode, ps)
		}
	}
}

func TestUnreadable(t *testing.T) {
	for name, want := range map[string]string{
		"nosuch.conf":  "nosuch.conf: error: does not exist\n",
		"dir":          "dir: error: is not a regular file\n",
		"/etc/x.conf":  "/etc/x.conf: error: is no path in a file system whose root is /; write it without the leading /\n",
		"big.conf":     "big.conf: error: is larger than 16 MiB\n",
		"endless.conf": "endless.conf:1: error: Include: more than 64 files or 8 levels of Include\n",
	} {
		fsys := fstest.MapFS{"dir/x": file(""), "big.conf": {Data: make([]byte, maxFile+1)}, "endless.conf": file("Include 0\n")}
		for i := range 12 {
			fsys[string(rune('0'+i))] = file("Include " + string(rune('1'+i)) + "\n")
		}
		_, ps := Read(fsys, name)
		if name == "endless.conf" {
			if ps.Err() == nil || !strings.Contains(ps.String(), "8 levels of Include") {
				t.Errorf("%s: %v", name, ps)
			}
			continue
		}
		if got := ps.String(); got != want {
			t.Errorf("%s:\n got %swant %s", name, got, want)
		}
	}
}

func TestProblems(t *testing.T) {
	ps := Problems{{"a", 2, "K", Note, "n"}, {"a", 1, "", Error, "e"}, {"a", 2, "K", Note, "n"}, {"A", 9, "K", Warning, "w"}}.sortedByLine()
	if got, want := ps.String(), "A:9: warning: K: w\na:1: error: e\na:2: note: K: n\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if err := ps.Err(); err == nil || err.Error() != "a:1: error: e" {
		t.Errorf("Err: %v", err)
	}
	if err := ps.AtLeast(Warning)[:1].Err(); err != nil {
		t.Errorf("a warning alone is no error: %v", err)
	}
}
