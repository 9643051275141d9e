package collector

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/collector/slurm"
	"github.com/musterhpc/muster/spec"
)

// TestObserver: a Slurm's snapshot comes out under Muster's names and both
// dialects, with the age of what could not be read.
func TestObserver(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	snap := &slurm.Snapshot{Cluster: "east", Version: "23.11.4", Partitions: []string{"gpu", "empty"},
		Jobs: []slurm.Job{
			{State: "RUNNING", User: "al\"ice", Account: "ml", Partition: "gpu", CPUs: 4, Mem: 1536, GPUs: 2, Nodes: 1, Tasks: 1,
				Reservation: "lic", Licenses: []slurm.Count{{Name: "matlab", N: 1}}},
			{State: "PENDING", Reason: "Priority", User: "bob", Account: "ml", Partition: "gpu", CPUs: 2, Tasks: 6, Eligible: 999_940},
			{Flags: []string{"COMPLETING"}, User: "bob", Account: "ml", Partition: "gpu", CPUs: 1, Tasks: 1},
		},
		Nodes: []slurm.Node{
			{Name: "n1", State: "MIXED", Partitions: []string{"gpu"}, GRES: "gpu:h100:8(S:0-1),nic:2", GRESUsed: "gpu:h100:2(IDX:0,3),nic:0", CPUs: 64, CPUsForJobs: 62, CPUAlloc: 4, Mem: 1000, MemFree: -1},
			{Name: "n2", State: "IDLE", Flags: []string{"DRAIN"}, Reason: "fan", ReasonAt: 5, Partitions: []string{"gpu", "later"}, CPUs: 64, CPUsForJobs: 64, Mem: 1000, MemFree: 7},
		},
		Reservations: []slurm.Reservation{{Name: "r", Nodes: "n[1-2]", Start: 1, End: 2}, {Name: "lic", Start: 1, End: 2_000_000, Licenses: []slurm.Count{{Name: "matlab", N: 2}}}},
		Licenses:     []slurm.License{{Name: "matlab", Total: 10, Used: 3, Reserved: 2}},
		Sched: slurm.Sched{Numbers: map[string]int64{"Main schedule statistics/Total cycles": 3, "Main schedule statistics/Mean cycle": 5,
			"Backfilling stats/Total cycles": 4, "Backfilling stats/Depth Mean (try depth)": 6}},
		Sections: []slurm.Section{{Name: "jobs", At: at}, {Name: "nodes", At: at.Add(-time.Minute), Err: errors.New("away")}, {Name: "fairshare", Err: errors.New("never")}},
	}
	mux := http.NewServeMux()
	MountObserver(mux, Observed{Latest: func() *slurm.Snapshot { return snap }, Now: func() spec.Instant { return spec.AtUnix(1_000_010) }, Version: "test"})
	text := func(path string) string {
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		body, err := io.ReadAll(rec.Body)
		if err != nil || rec.Code != http.StatusOK {
			t.Fatal(rec.Code, err)
		}
		return "\n" + string(body)
	}
	for path, want := range map[string]string{
		"/metrics": `muster_jobs{cluster="east",partition="gpu",state="pending"} 6
muster_jobs{cluster="east",partition="gpu",state="completing"} 1
muster_jobs{cluster="east",partition="empty",state="running"} 0
muster_partition_oldest_pending_seconds{cluster="east",partition="gpu"} 70
muster_account_gpus{cluster="east",account="ml"} 2
muster_nodes{cluster="east",state="drained"} 1
muster_gpus{cluster="east",type="h100",state="idle"} 6
muster_licenses{cluster="east",license="matlab",state="used"} 3
muster_licenses{cluster="east",license="matlab",state="reserved"} 1
muster_licenses{cluster="east",license="matlab",state="free"} 6
muster_reservation_nodes{cluster="east",reservation="lic",state="active"} 0
muster_reservation_nodes{cluster="east",reservation="r",state="inactive"} 0
muster_node_drained_since_timestamp_seconds{cluster="east",node="n2",reason="fan"} 5
slurm_cpus_idle{cluster="east"} 58
muster_source_up{cluster="east",collector="jobs"} 1
muster_source_up{cluster="east",collector="nodes"} 0
muster_source_age_seconds{cluster="east",collector="nodes"} 70
muster_build_info{cluster="east",version="test"} 1`,
		"/metrics/vpenso": `slurm_user_jobs_running{cluster="east",user="al\"ice"} 1
slurm_exporter_cache_age_seconds{cluster="east"} 70
slurm_reservation_nodes_mix{cluster="east",reservation="r"} 1
slurm_node_gres_total{cluster="east",node="n1",status="mixed",partition="gpu",gres_type="nic"} 2
slurm_info{cluster="east",type="slurm",binary="slurmctld",version="23.11.4"} 1`,
		"/metrics/scheduler": `slurm_schedule_cycle_tot{cluster="east"} 15
slurm_bf_depth_try_tot{cluster="east"} 24`,
		"/metrics/nodes": `slurm_node_memory_free_bytes{cluster="east",node="n2"} 7.340032e+06
slurm_nodes_drained{cluster="east"} 1`,
	} {
		got := text(path)
		for _, line := range strings.Split(want, "\n") {
			if !strings.Contains(got, "\n"+line+"\n") {
				t.Errorf("%s lacks %s", path, line)
			}
		}
	}
	if strings.Contains(text("/metrics"), `muster_source_age_seconds{cluster="east",collector="fairshare"}`) {
		t.Error("what was never read has an age")
	}
}
