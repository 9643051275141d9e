package slurmconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

// fuzz runs a reader on any bytes: it must not panic, must report every
// problem inside the file, and must give the same answer twice.
func fuzz(f *testing.F, suffix string, read func(fstest.MapFS) (any, Problems)) {
	for _, pattern := range []string{"testdata/bad/*." + suffix + ".conf", "testdata/sites/*/etc/slurm/" + suffix + ".conf"} {
		files, _ := filepath.Glob(pattern)
		for _, p := range files {
			data, err := os.ReadFile(p)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(data))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		fsys := fstest.MapFS{"x.conf": file(text), "base": file(minimal)}
		_, ps := read(fsys)
		lines := strings.Count(text, "\n") + 1
		for _, p := range ps {
			if p.File == "x.conf" && (p.Line < 0 || p.Line > lines) || p.Text == "" || p.Severity < Note || p.Severity > Error {
				t.Fatalf("%+v in a file of %d lines", p, lines)
			}
			if strings.ContainsAny(p.String(), "\n\x00") {
				t.Fatalf("a problem of more than one line: %q", p)
			}
		}
		if _, again := read(fsys); again.String() != ps.String() {
			t.Fatalf("two answers:\n%s\n%s", ps, again)
		}
	})
}

func FuzzSlurm(f *testing.F) {
	fuzz(f, "slurm", func(fsys fstest.MapFS) (any, Problems) { return Read(fsys, "x.conf") })
}

func FuzzGres(f *testing.F) {
	fuzz(f, "gres", func(fsys fstest.MapFS) (any, Problems) {
		g, ps := ReadGres(fsys, "x.conf")
		nodes := []spec.NodeSpec{{Name: "a1", GRES: []spec.GRESSpec{{Name: "gpu", N: 4}}}}
		return g, append(ps, g.Merge(nodes)...)
	})
}

func FuzzCgroup(f *testing.F) {
	fuzz(f, "cgroup", func(fsys fstest.MapFS) (any, Problems) { return ReadCgroup(fsys, "x.conf") })
}

func FuzzDBD(f *testing.F) {
	fuzz(f, "slurmdbd", func(fsys fstest.MapFS) (any, Problems) { return ReadDBD(fsys, "x.conf") })
}

// wired are nodes that a topology may name.
func wired() (nodes []spec.NodeSpec) {
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		nodes = append(nodes, spec.NodeSpec{Name: name})
	}
	return nodes
}

func addTopologies(f *testing.F) {
	f.Add("SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=top Switches=s[1-2] LinkSpeed=1\n")
	f.Add("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4\n")
	f.Add("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1,n1,x\n")
}

func FuzzTopology(f *testing.F) {
	addTopologies(f)
	fuzz(f, "topology", func(fsys fstest.MapFS) (any, Problems) {
		switches, ps := ReadTopology(fsys, "x.conf", wired())
		return switches, ps
	})
}

func FuzzBlocks(f *testing.F) {
	addTopologies(f)
	fuzz(f, "topology", func(fsys fstest.MapFS) (any, Problems) {
		blocks, _, ps := ReadBlocks(fsys, "x.conf", wired())
		return blocks, ps
	})
}

// What is written is what is read, however the line is laid out.
func TestLayoutDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.Int64Range(1, 512).Draw(t, "cpus")
		mem := rapid.Int64Range(100, 4<<20).Draw(t, "memory")
		gpus := rapid.Int64Range(0, 16).Draw(t, "gpus")
		reason := rapid.StringMatching(`[a-z #=\[\],]{1,20}`).Draw(t, "reason")
		fields := rapid.Permutation([]string{
			fmt.Sprintf("CPUs=%d", cpus), fmt.Sprintf("RealMemory=%d", mem), fmt.Sprintf("Gres=gpu:%d", gpus),
			fmt.Sprintf("Reason=%q", reason), "State=DOWN",
		}).Draw(t, "order")
		var b strings.Builder
		b.WriteString("GresTypes=gpu\nPartitionName=p Nodes=ALL\nClusterName=c\nNodeName=n1")
		for _, f := range fields {
			b.WriteString(rapid.SampledFrom([]string{" ", "\t", " \\\n", "\\\r\n   ", " \\ # note\n\t", " \\   \n \t "}).Draw(t, "gap"))
			key, val, _ := strings.Cut(f, "=")
			key = rapid.SampledFrom([]string{key, strings.ToUpper(key), strings.ToLower(key)}).Draw(t, "case")
			b.WriteString(key + rapid.SampledFrom([]string{"=", " = ", "= ", "\t="}).Draw(t, "equals") + val)
		}
		b.WriteString(rapid.SampledFrom([]string{"", "\n", " # end", " # a \\\n", "\r\n# x\r\n"}).Draw(t, "end"))
		f, ps := Read(conf(b.String()), "slurm.conf")
		if len(ps) != 0 {
			t.Fatalf("%s\n%v", b.String(), ps)
		}
		n := f.Config.Nodes[0]
		if len(f.Config.Nodes) != 1 || n.CPUs != cpus || n.Mem != mem || n.GRES[0].N != gpus || n.Reason != reason || n.State != "DOWN" {
			t.Fatalf("%s\n%+v", b.String(), n)
		}
	})
}

// Every misspelling by one letter of every key is found and explained.
func TestMisspellings(t *testing.T) {
	var names []string
	for _, k := range topKeys() {
		names = append(names, k.name)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "key")
		at := rapid.IntRange(0, len(name)-1).Draw(t, "at")
		wrong := name[:at] + name[at+1:]
		if rapid.Bool().Draw(t, "change") {
			wrong = name[:at] + "q" + name[at+1:]
		}
		_, ps := Read(conf(minimal+wrong+"=1\n"), "slurm.conf")
		table := newTable("", topKeys())
		if _, real := table.findKey(wrong); real {
			return
		}
		if len(ps) == 0 || ps[0].Severity != Error || ps[0].Line != 5 {
			t.Fatalf("%s: %v", wrong, ps)
		}
		if len(name) > 6 && !strings.Contains(ps[0].Text, "did you mean") && !strings.Contains(ps[0].Text, "belongs to") {
			t.Fatalf("%s: no help in %v", wrong, ps)
		}
	})
}

func BenchmarkRead10000Nodes(b *testing.B) {
	var s strings.Builder
	s.WriteString("ClusterName=big\nGresTypes=gpu\n")
	for rack := range 100 {
		fmt.Fprintf(&s, "NodeName=r%dn[001-100] Sockets=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=1000000 Gres=gpu:h100:8 Feature=h100,rack%d\n", rack, rack)
	}
	s.WriteString("PartitionName=all Nodes=ALL Default=YES\nNodeSet=first Feature=rack0\nPartitionName=one Nodes=first\n")
	fsys := conf(s.String())
	b.ReportAllocs()
	for b.Loop() {
		if f, ps := Read(fsys, "slurm.conf"); len(f.Config.Nodes) != 10_000 || len(ps) != 0 {
			b.Fatal(len(f.Config.Nodes), ps)
		}
	}
}
