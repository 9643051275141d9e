package replay

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// traces is the folder of real workloads, or the test is skipped.
func traces(t testing.TB) string {
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		dir = "../../../shared/traces"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("SKIPPED: the real workloads are not here: set MUSTER_TRACES (%v)", err)
	}
	return dir
}

func readTrace(t testing.TB, name string) *Trace {
	f, err := os.Open(filepath.Join(traces(t), name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := ReadSWF(z)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestGoldens(t *testing.T) {
	for _, g := range []struct {
		file, rule string
		exact      bool // the time limit is the run time
	}{
		{"KTH-SP2.easy.swf.gz", "easy", false},
		{"KTH-SP2.easy-clairvoyant.swf.gz", "easy", true},
		{"pyss-py27.KTH-cln.fcfs.swf.gz", "fcfs", false},
		{"pyss-py27.KTH-cln.easy.swf.gz", "easy", false},
		{"pyss-py27.KTH-cln.easy_sjbf.swf.gz", "easy-sjbf", false},
		{"pyss-py27.KTH-cln.conservative.swf.gz", "conservative", false},
	} {
		t.Run(g.file, func(t *testing.T) {
			tr := readTrace(t, filepath.Join("easy", g.file))
			for i := range tr.Rows {
				if g.exact {
					tr.Rows[i].Limit = max(tr.Rows[i].Run, 1)
				}
			}
			rule, err := RuleNamed(g.rule)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			res, err := Run(context.Background(), tr.Workload(Machine{CPUs: 100}.Config(rule.Priority())), rule, nil)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			wrong, first := 0, ""
			for i := range tr.Rows {
				if got := seconds(res.Jobs[i].Wait()); got != tr.Rows[i].Wait {
					if wrong++; wrong == 1 {
						first = fmt.Sprintf("job %d submitted at %d waits %d, want %d (refused %v)", tr.Rows[i].ID, tr.Rows[i].Submit, got, tr.Rows[i].Wait, res.Jobs[i].Refused)
					}
				}
			}
			t.Logf("%v %+v", took, res.Summarise())
			if wrong > 0 {
				t.Errorf("%d of %d starts differ; the first: %s", wrong, len(tr.Rows), first)
			}
		})
	}
}
