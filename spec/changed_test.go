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
		return c.WithPartition(&PartitionSpec{Name: name, State: PartitionDown}, false)
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

	back := run.WithPartition(&file().Partitions[0], false).WithPartition(&file().Partitions[1], true)
	if !reflect.DeepEqual(back, file()) {
		t.Errorf("changed back: %+v, want what the file says", back)
	}
	if got := run.WithPartition(&PartitionSpec{Name: "c"}, true); got != run {
		t.Errorf("a partition that is not there: %+v", got)
	}
}

// TestKeepChangedNodes: so do changed nodes, those that were added while the
// cluster ran aside.
func TestKeepChangedNodes(t *testing.T) {
	file := func(nodes ...string) *Config {
		return &Config{Nodes: []NodeSpec{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}, Partitions: []PartitionSpec{{Name: "a", State: PartitionUp, Nodes: "n1", NodeNames: nodes}}}
	}
	added := file("n1").WithNode(NodeSpec{Name: "d1", Dynamic: true}, []string{"a"})
	more := added.Partitions[0]
	more.NodeNames = []string{"n1", "n3", "d1"}
	run := added.WithPartition(&more, true)
	if len(run.FileParts) != 1 || !reflect.DeepEqual(run.FileParts[0].NodeNames, []string{"n1"}) || !reflect.DeepEqual(run.PartNodes, []string{"a"}) {
		t.Errorf("what the file says is not kept: %+v %v", run.FileParts, run.PartNodes)
	}
	closed := more
	closed.State = PartitionDown
	for _, x := range []*Config{run, run.WithPartition(&closed, false), added.WithPartition(&closed, false).WithPartition(&closed, true)} {
		if got := file("n1").KeepDynamic(x).KeepChanged(x); !reflect.DeepEqual(got, x) {
			t.Errorf("the same file: %+v, want %+v", got, x)
		}
	}
	if got := file("n2").KeepChanged(run); !reflect.DeepEqual(got, file("n2")) {
		t.Errorf("another file: %+v", got)
	}
	if got := run.WithPartition(&added.Partitions[0], true); !reflect.DeepEqual(got, added) {
		t.Errorf("changed back: %+v", got)
	}
}
