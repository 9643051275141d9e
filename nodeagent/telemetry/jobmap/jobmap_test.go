package jobmap_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/jobmap"
)

// exporter reads the folder as a stock dcgm-exporter does: files named by GPU
// or GPU.instance, one job a line.
func exporter(t require, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	name := regexp.MustCompile(`^\d+(\.\d+)?$`)
	for _, e := range entries {
		if !name.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = strings.TrimSuffix(string(text), "\n")
	}
	return out
}

type require interface {
	Helper()
	Fatal(args ...any)
}

func TestWriteFollowsTheJobs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(t.TempDir(), strconv.Itoa(rapid.IntRange(0, 1<<30).Draw(rt, "dir")), "map")
		d, err := jobmap.Open(path)
		if err != nil {
			rt.Fatal(err)
		}
		names := []string{"0", "1", "2.1", "2.2", "10"}
		seen := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			want := map[string]string{}
			for name := range seen {
				want[name] = "" // a file never disappears
			}
			var list []telemetry.Mapping
			for _, name := range names {
				if !rapid.Bool().Draw(rt, "there") {
					continue
				}
				m := telemetry.Mapping{Name: name, Job: rapid.SampledFrom([]uint64{0, 0, 7, 8, 1 << 40}).Draw(rt, "job")}
				list, seen[name], want[name] = append(list, m), true, ""
				if m.Job != 0 {
					want[name] = strconv.FormatUint(m.Job, 10)
				}
			}
			if err := d.Write(list); err != nil {
				rt.Fatal(err)
			}
			got := exporter(rt, path)
			if len(got) != len(want) {
				rt.Fatalf("the exporter finds %v, not %v", got, want)
			}
			for name, job := range want {
				if got[name] != job {
					rt.Fatalf("GPU %s is mapped to %q, not %q", name, got[name], job)
				}
			}
		}
	})
}

func TestOpenEmptiesWhatAnEarlierAgentLeft(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"0": "17\n", "3.1": "18\n", "notes.txt": "keep me"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jobmap.Open(dir); err != nil {
		t.Fatal(err)
	}
	if got := exporter(t, dir); got["0"] != "" || got["3.1"] != "" || len(got) != 2 {
		t.Errorf("left: %v", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "notes.txt")); err != nil || string(text) != "keep me" {
		t.Errorf("a file that is no mapping was touched: %q, %v", text, err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := jobmap.Open(filepath.Join(file, "map")); err == nil || !strings.Contains(err.Error(), "the folder of job mappings") {
		t.Errorf("a folder below a file: %v", err)
	}
}
