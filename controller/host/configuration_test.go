package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhpc/muster/spec"
)

// TestConfigFiles: a node is given slurm.conf and what lies beside it, as it lies there, in the order
// of the names.
func TestConfigFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"slurm.conf": "ClusterName=c\nNodeName=n1\nPartitionName=p Nodes=n1\n", "gres.conf": "Name=gpu\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	name, files, err := ConfigFiles(filepath.Join(dir, "slurm.conf"))()
	if err != nil || filepath.Base(name) != "slurm.conf" || len(files) != 2 {
		t.Fatalf("%s, %v, %v", name, files, err)
	}
	first := files[0]
	if filepath.Base(first.GetName()) != "gres.conf" || string(first.GetData()) != "Name=gpu\n" || first.GetMode() != 0o640 {
		t.Errorf("the first file is %v", first)
	}
	if _, _, err := ConfigFiles(filepath.Join(dir, "none.conf"))(); err == nil {
		t.Error("a configuration that is not there has no error")
	}
}

// TestOffsetEast: the offset is that of the instant, on either side of a change of the clocks.
func TestOffsetEast(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	before := time.Local
	time.Local = berlin
	t.Cleanup(func() { time.Local = before })
	for month, want := range map[time.Month]spec.Span{time.January: spec.Hour, time.July: 2 * spec.Hour} {
		at := spec.AtUnix(time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC).Unix())
		if got := OffsetEast(at); got != want {
			t.Errorf("%v: %v east, want %v", month, got, want)
		}
	}
}
