package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatIfOfAnImportedHistory imports another cluster's sacct and replays it
// under two configurations: on one node the jobs run one after the other, on two
// beside each other.
func TestWhatIfOfAnImportedHistory(t *testing.T) {
	c := start(t)
	write := func(name, text string) string {
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const job = "|peer|batch|normal|phys|ann|COMPLETED|0:0|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T10:06:40|60|1|4|4|cpu=4,mem=1000M,node=1|cpu=4,mem=1000M,node=1\n"
	dump := write("dump", "JobIDRaw|Cluster|Partition|QOS|Account|User|State|ExitCode|Submit|Eligible|Start|End|TimelimitRaw|NNodes|AllocCPUS|ReqCPUS|ReqTRES|AllocTRES\n7"+job+"8"+job)
	conf := "ClusterName=peer\nSlurmctldHost=h\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nAccountingStorageEnforce=associations,limits,qos\nPartitionName=batch Nodes=ALL Default=YES MaxTime=1-0 State=UP\n"
	old := write("old.conf", conf+"NodeName=n1 CPUs=4 RealMemory=4000 State=UNKNOWN\n")
	other := write("new.conf", conf+"NodeName=n[1-2] CPUs=4 RealMemory=4000 State=UNKNOWN\n")
	c.must("import", "sacct", "--dir", c.dir, "--cluster", "peer", "--file", dump, "--zone", "UTC")
	ask := []string{"whatif", "--dir", c.dir, "--cluster", "peer", "--old", old, "--conf", other, "--from", "2026-02-28", "--to", "2026-03-03", "--json"}
	var got struct {
		Jobs     int
		Cluster  string
		Old, New struct {
			Jobs int
			Wait float64 `json:"mean_wait_seconds"`
		}
	}
	if err := json.Unmarshal([]byte(c.must(ask...)), &got); err != nil {
		t.Fatal(err)
	}
	if got.Jobs != 2 || got.Cluster != "peer" || got.Old.Jobs != 2 || got.New.Jobs != 2 || got.Old.Wait != 50 || got.New.Wait != 0 {
		t.Errorf("%+v", got)
	}
	ask[4] = "nosuch"
	if _, errs, code := c.run(ask...); code != 1 || !strings.Contains(errs, `there is no cluster "nosuch"`) {
		t.Errorf("a cluster that was not imported: exit %d, %s", code, errs)
	}
}
