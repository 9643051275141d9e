package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzColumns reads the first line of a dump.
func FuzzColumns(f *testing.F) {
	f.Add("JobIDRaw|Cluster|State|Start|End|AllocTRES")
	f.Add("JobID%20|-|-|Submit")
	f.Fuzz(func(t *testing.T, text string) {
		list := strings.Split(text, "|")
		out, err := parseColumns(list)
		if err == nil && len(out) != len(list) {
			t.Fatalf("%q has %d columns, %d are read", text, len(list), len(out))
		}
	})
}

// FuzzTRES reads the amounts of a dump.
func FuzzTRES(f *testing.F) {
	for _, text := range []string{"cpu=4,mem=1000M,node=1,gres/gpu=2", "billing=9223372036854775807", "mem=1.5T", "energy=x", "gpu:h100:2(S:0-1)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parseTRES(text)
		if err != nil && err.Error() == "" {
			t.Fatalf("%q is refused without a word", text)
		}
		if n := parseGRES(text); n < 0 {
			t.Fatalf("%q are %d GPUs", text, n)
		}
		if id, ok := parseIDs(text, text); ok && id.id == 0 {
			t.Fatalf("%q is job 0", text)
		}
	})
}

// FuzzSlurmrestd reads answers of slurmrestd: whatever is in one, each of its jobs and steps is
// one line of as many columns as there are, which can be read or is refused with a word.
func FuzzSlurmrestd(f *testing.F) {
	answers, err := filepath.Glob("testdata/slurmrestd_*.json")
	if err != nil || len(answers) == 0 {
		f.Fatal("no recorded answers: ", err)
	}
	for _, path := range answers {
		answer, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(answer))
	}
	f.Add(`{"errors":[{"error":"no"}],"jobs":null}`)
	f.Add(`{"jobs":[{"job_id":7,"name":"a|b\nc","state":{"current":["RUNNING"]},` +
		`"time":{"start":{"set":true,"number":1e99}},"steps":[{"step":{"id":{"step_id":"batch"}}}]}]}`)
	columns, err := parseColumns(restColumns())
	if err != nil {
		f.Fatal(err)
	}
	width := len(restColumns())
	f.Fuzz(func(t *testing.T, answer string) {
		reader := run{Config: Config{Delimiter: "|"}}
		reader.lines = newLines(columns, clocks{loc: time.UTC}, func() *job { return &job{} })
		err := readJobs(strings.NewReader(answer), func(j *restJob) error {
			text := j.sacctLines()
			if lines := strings.Count(text, "\n"); lines != 1+len(j.Steps) {
				t.Fatalf("a job of %d steps is %d lines: %q", len(j.Steps), lines, text)
			}
			for line := range strings.Lines(text) {
				cells := reader.splitLine(nil, []byte(strings.TrimSuffix(line, "\n")))
				if len(cells) != width {
					t.Fatalf("%d of %d columns: %q", len(cells), width, line)
				}
				if _, _, err := reader.lines.parseLine(cells); err != nil && err.Error() == "" {
					t.Fatalf("%q is refused without a word", line)
				}
			}
			return nil
		})
		if err != nil && err.Error() == "" {
			t.Fatalf("%q is refused without a word", answer)
		}
	})
}
