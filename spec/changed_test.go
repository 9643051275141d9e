package spec

import (
	"reflect"
	"testing"
)

// TestKeepChanged: what was changed while the cluster ran outlives a file that
// says the same of the partition as then, and no other file; nodes are always
// the file's.
func TestKeepChanged(t *testing.T) {
	file := func() *Config {
		return &Config{Partitions: []PartitionSpec{{Name: "a", State: PartitionUp, Nodes: "n1", NodeNames: []string{"n1"}}, {Name: "b", State: PartitionUp, MaxTime: Minute}}}
	}
	down := func(c *Config, name string) *Config {
		return c.WithPartition(&PartitionSpec{Name: name, State: PartitionDown})
	}
	run := down(down(file(), "a"), "b")
	if got := run.Partitions[0]; got.State != PartitionDown || !reflect.DeepEqual(got.NodeNames, []string{"n1"}) || got.Nodes != "n1" {
		t.Errorf("changed: %+v", got)
	}
	if len(run.FileParts) != 2 || run.FileParts[0].State != PartitionUp || run.FileParts[0].NodeNames != nil {
		t.Errorf("what the file says is not kept: %+v", run.FileParts)
	}
	if got := file().KeepChanged(run); !reflect.DeepEqual(got, run) {
		t.Errorf("the same file: %+v, want %+v", got, run)
	}

	next := file()
	next.Partitions[0].Nodes, next.Partitions[0].NodeNames = "n[1-2]", []string{"n1", "n2"}
	next.Partitions[1].MaxTime = Hour
	want := down(next, "a")
	if got := next.KeepChanged(run); !reflect.DeepEqual(got, want) {
		t.Errorf("another file: %+v, want %+v", got, want)
	}
	next.Partitions = next.Partitions[1:]
	if got := next.KeepChanged(run); !reflect.DeepEqual(got, next) {
		t.Errorf("a file without the partition: %+v", got)
	}

	back := run.WithPartition(&file().Partitions[0]).WithPartition(&file().Partitions[1])
	if !reflect.DeepEqual(back, file()) {
		t.Errorf("changed back: %+v, want what the file says", back)
	}
	if got := run.WithPartition(&PartitionSpec{Name: "c"}); got != run {
		t.Errorf("a partition that is not there: %+v", got)
	}
}
