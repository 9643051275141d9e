package query

import (
	"slices"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec/hostlist"
)

// TestMainEntries: keys of nodes and partitions are not keys of the cluster,
// also where they have the same name.
func TestMainEntries(t *testing.T) {
	var got []string
	for _, e := range mainEntries([]*apiv1.ConfigEntry{{Key: "ClusterName", Value: "lab"}, {Key: "NodeName", Value: "n1", Record: "NodeName"}, {Key: "CPUs", Value: "8", Record: "NodeName"},
		{Key: "PartitionName", Value: "p", Record: "PartitionName"}, {Key: "DefMemPerCPU", Value: "500", Record: "PartitionName"}, {Key: "DefMemPerCPU", Value: "100"},
		{Key: "OverTimeLimit", Value: "1", Record: "PartitionName"}, {Key: "OverTimeLimit", Value: "2"}}) {
		got = append(got, e.GetKey()+"="+e.GetValue())
	}
	if want := []string{"ClusterName=lab", "DefMemPerCPU=100", "OverTimeLimit=2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestUpdateSettings: keys come with = or without, and the entity's key decides what
// the others are about.
func TestUpdateSettings(t *testing.T) {
	for _, c := range []struct {
		args         []string
		entity, name string
		rest         []setting
	}{
		{[]string{"JobId=3", "partition=p"}, "jobid", "3", []setting{{"partition", "p"}}},
		{[]string{"job", "3", "arraytaskthrottle", "2"}, "jobid", "3", []setting{{"arraytaskthrottle", "2"}}},
		{[]string{"job", "3", "comment=a=b"}, "jobid", "3", []setting{{"comment", "a=b"}}},
		{[]string{"nodename=ALL", "State=drain", `reason="two words"`}, "nodename", "ALL", []setting{{"State", "drain"}, {"reason", "two words"}}},
		{[]string{"reservationname=r", "partitionname=p"}, "reservationname", "r", []setting{{"partitionname", "p"}}},
		{[]string{"Partition=p", "State=UP"}, "partitionname", "p", []setting{{"State", "UP"}}},
		{[]string{"JobName=train", "TimeLimit=5"}, "jobname", "train", []setting{{"TimeLimit", "5"}}},
		{[]string{"JobName=train", "JobId=3"}, "jobid", "3", []setting{{"JobName", "train"}}},
		{[]string{"StepId=3.0", "TimeLimit=5"}, "stepid", "3.0", []setting{{"TimeLimit", "5"}}},
	} {
		list, err := readSettings(c.args)
		if err != nil {
			t.Fatalf("%q: %v", c.args, err)
		}
		entity, name, rest := entityOf(list)
		if entity != c.entity || name != c.name || !slices.Equal(rest, c.rest) {
			t.Errorf("%q: %s %s %v, want %s %s %v", c.args, entity, name, rest, c.entity, c.name, c.rest)
		}
	}
	if _, err := readSettings([]string{"jobid=3", "comment"}); err == nil {
		t.Error("a key without a value was accepted")
	}
}

// TestShownEntities: every entity is found by its names and by what they begin with.
func TestShownEntities(t *testing.T) {
	for typed, want := range map[string]string{"job": "jobs", "jobid": "jobs", "part": "partitions", "partitionname": "partitions", "nodename": "nodes", "nod": "nodes",
		"res": "reservations", "reservationname": "reservations", "lic": "licenses", "conf": "config", "hostl": "hostlistsorted", "hostlist": "hostlist", "hostn": "hostnames",
		"step": "steps", "daemons": "daemons", "ali": "aliases", "topo": "topology", "assoc": "assoc_mgr", "fed": "federation", "bbstat": "bbstat", "dwstat": "dwstat"} {
		if found := findShown(typed); found == nil || found.names[0] != want {
			t.Errorf("%s: %v, want %s", typed, found, want)
		}
	}
	for _, bad := range []string{"", "no", "jobidx", "frontend"} {
		if found := findShown(bad); found != nil {
			t.Errorf("%q is found as %s", bad, found.names[0])
		}
	}
}

// TestAlikeNodes: nodes with the same share of a job are one line, others keep their order.
func TestAlikeNodes(t *testing.T) {
	nodes := []*apiv1.NodeAlloc{
		{Name: "n1", Cpus: []uint64{1}, Mem: 500}, {Name: "n2", Cpus: []uint64{1}, Mem: 500},
		{Name: "n3", Cpus: []uint64{3}, Mem: 1000}, {Name: "n4", Cpus: []uint64{1}, Mem: 500},
	}
	var got []string
	for _, group := range alikeNodes(nodes) {
		got = append(got, hostlist.Fold(group.names)+" "+group.text)
	}
	want := []string{
		"n[1-2] CPU_IDs=0 Mem=500 GRES=",
		"n3 CPU_IDs=0-1 Mem=1000 GRES=",
		"n4 CPU_IDs=0 Mem=500 GRES=",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
