package slurmconf

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/spec"
)

var update = flag.Bool("update", false, "rewrite the expected results")

// tree loads a folder with the modes that its files have at a site.
func tree(t *testing.T, dir string) fstest.MapFS {
	t.Helper()
	fsys := fstest.MapFS{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		fsys[filepath.ToSlash(rel)] = file(string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

// file takes its mode from a first line such as "# mode 0644"; 0600 otherwise.
func file(data string) *fstest.MapFile {
	mode := uint64(0o600)
	if m, ok := strings.CutPrefix(data, "# mode "); ok {
		mode, _ = strconv.ParseUint(m[:4], 8, 32)
	}
	return &fstest.MapFile{Data: []byte(data), Mode: fs.FileMode(mode)}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update rewrites it)\n--- got\n%s--- want\n%s", path, got, want)
	}
}

// What sites really write, each with everything that is said about it and
// every value that differs from Slurm's defaults.
func TestSites(t *testing.T) {
	dirs, err := filepath.Glob("testdata/sites/*")
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			fsys := tree(t, dir)
			c, ps := ReadCluster(fsys, "etc/slurm/slurm.conf")
			var b strings.Builder
			b.WriteString(ps.String())
			fmt.Fprintf(&b, "usable: %v\n", ps.Err() == nil)
			c.Config.Raw = nil // printed by TestRawKeepsEverything
			nodes, parts := c.Config.Nodes, c.Config.Partitions
			c.Config.Nodes, c.Config.Partitions = nil, nil
			diff(&b, "Config", defaultSettings(), c.Config)
			for _, n := range nodes {
				oneLine(&b, "node", n)
			}
			for _, p := range parts {
				p.NodeNames = nil
				oneLine(&b, "partition", p)
			}
			diff(&b, "Control", Control{}, c.Control)
			diff(&b, "Agent", Agent{SampleEvery: 30 * spec.Second}, c.Agent)
			c.Cgroup.Settings = nil
			diff(&b, "Cgroup", *cgroupDefaults(), *c.Cgroup)
			for _, n := range nodes {
				if d := c.Gres.Detect(n.Name); d != "" {
					fmt.Fprintf(&b, "Gres.Detect(%s) = %s\n", n.Name, d)
				}
			}
			if _, ok := fsys["etc/slurm/slurmdbd.conf"]; ok {
				d, ps := ReadDBD(fsys, "etc/slurm/slurmdbd.conf")
				fmt.Fprintf(&b, "\n%susable: %v, has a secret: %v\n", ps, ps.Err() == nil, d.HasSecret)
			}
			if strings.Contains(b.String(), "hunter2") {
				t.Error("a password is in the output")
			}
			golden(t, filepath.Join(dir, "want.txt"), b.String())
		})
	}
}

// diff prints the leaves of got that differ from base, one a line.
func diff(b *strings.Builder, name string, base, got any) {
	before, after := map[string]string{}, map[string]string{}
	leaves(before, name, reflect.ValueOf(base))
	leaves(after, name, reflect.ValueOf(got))
	var lines []string
	for k, v := range after {
		if before[k] != v && (before[k] != "" || !zero(v)) {
			lines = append(lines, k+" = "+v+"\n")
		}
	}
	sort.Strings(lines)
	for _, l := range lines {
		b.WriteString(l)
	}
}

// oneLine prints the leaves of one thing that are not zero.
func oneLine(b *strings.Builder, what string, v any) {
	all := map[string]string{}
	leaves(all, "", reflect.ValueOf(v))
	var parts []string
	for k, v := range all {
		if !zero(v) {
			parts = append(parts, strings.TrimPrefix(k, ".")+"="+v)
		}
	}
	sort.Strings(parts)
	b.WriteString(what + " " + strings.Join(parts, " ") + "\n")
}

func zero(s string) bool { return s == "0" || s == `""` || s == "false" || s == "0s" }

func leaves(out map[string]string, name string, v reflect.Value) {
	switch x := v.Interface().(type) {
	case spec.Span:
		if x == spec.Infinite {
			out[name] = "infinite"
		} else {
			out[name] = strconv.FormatInt(x.Seconds(), 10) + "s"
		}
		return
	case fmt.Stringer:
		out[name] = x.String()
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				leaves(out, name+"."+f.Name, v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(out, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			leaves(out, name, v.Elem())
		}
	case reflect.String:
		out[name] = strconv.Quote(v.String())
	default:
		out[name] = fmt.Sprint(v.Interface())
	}
}

// Files that are wrong, each with the exact messages. The name says which
// reader: WHAT.slurm.conf, WHAT.gres.conf, WHAT.cgroup.conf, WHAT.job_container.conf,
// WHAT.slurmdbd.conf. "Include base" gives a slurm.conf what it needs besides what is wrong.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			kind := strings.Split(filepath.Base(path), ".")[1]
			name := kind + ".conf"
			fsys := fstest.MapFS{name: file(string(data)), "base": file("ClusterName=c\nGresTypes=gpu\nNodeName=n[1-3] CPUs=4 RealMemory=8000\nPartitionName=p Nodes=n[1-3]\n")}
			var ps Problems
			switch kind {
			case "slurm":
				_, ps = Read(fsys, name)
			case "gres":
				_, ps = ReadGres(fsys, name)
			case "job_container":
				_, ps = ReadJobContainer(fsys, name)
			case "cgroup":
				_, ps = ReadCgroup(fsys, name)
			case "slurmdbd":
				_, ps = ReadDBD(fsys, name)
			default:
				t.Fatalf("no reader for %s", kind)
			}
			if len(ps.AtLeast(Warning)) == 0 {
				t.Error("nothing is wrong with it")
			}
			golden(t, strings.TrimSuffix(path, ".conf")+".want", ps.String())
		})
	}
}
