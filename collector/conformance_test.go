package collector

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
)

// full is a picture in which every metric of every dialect has a series.
func full() *picture {
	p := newPicture("c", spec.AtUnix(2_000_000))
	for st := spec.Pending; st <= spec.OutOfMemory; st++ {
		r := jobRow{Base: st, Partition: "gpu", Account: "ml", User: "alice", QOS: "normal", Reason: "Dependency", Count: 1, CPUs: 4, Mem: 100, GPUs: 2, Nodes: 1, Eligible: 1}
		if st.Terminal() {
			r.Eff = &jobEff{cpuUsed: 10, cpuGiven: 40, memUsed: 1, memGiven: 4}
		}
		p.addJob(&r)
	}
	p.addJob(&jobRow{Base: spec.Cancelled, Completing: true, Partition: "gpu", Account: "ml", User: "alice", Count: 1, CPUs: 1})
	p.nodes = []nodeRow{
		{Name: "n1", Flags: nodeMixed, Busy: true, CPUs: 16, CPUsForJobs: 14, CPUAlloc: 4, Mem: 1000, MemForJobs: 900, MemAlloc: 100, MemFree: 500, GPUs: 8, GPUAlloc: 2,
			GRES: []gresRow{{"gpu", "h100", 8, 2, 0, 0}}},
		{Name: "n2", Flags: nodeIdle | nodeDrain, Reason: "fan", ReasonAt: spec.AtUnix(5), CPUs: 16, CPUsForJobs: 16, Mem: 1000, MemForJobs: 1000, MemFree: -1},
	}
	p.parts = []partRow{{Name: "gpu", nodes: []int32{0, 1}}}
	p.lics = []licenceRow{{Name: "matlab", Total: 10, Used: 3, Reserved: 2, Kept: 2}}
	p.resvs = []reservationRow{{Name: "r", State: "ACTIVE", Nodes: "n1", Start: 1, End: 2, NodeCount: 1, Cores: 16, members: []int32{0}}}
	p.shares = []shareRow{{Account: "ml", RawShares: 1, NormShares: 1, Factor: 0.5, HasFactor: true, HasUsage: true},
		{Account: "ml", User: "alice", RawShares: 1, NormShares: 1, Factor: 0.5, HasFactor: true, HasUsage: true}}
	p.sched = schedRow{Cycles: 2, CycleTotal: 3000, RPCs: []rpcRow{{"Cluster/Submit", 2, 4000}}, UserRPCs: []rpcRow{{"alice", 2, 4000}}}
	sum, n := 1.0, uint64(1)
	p.made = making{kind: "slurm", binary: "slurmctld", version: "22.05", parts: []part{{"jobs", 0.5, nil, 1}, {"nodes", 0.5, errors.New("x"), 0}},
		commands: []commands{{Name: "squeue", Seconds: &dto.Histogram{SampleSum: &sum, SampleCount: &n}, Errors: 1}}}
	return p.sortRows()
}

// scrapePath reads what a list of families serves.
func scrapePath(t *testing.T, list []family, pic *picture) map[string]*dto.MetricFamily {
	t.Helper()
	h := pageHandler(newPage(list, nil, func() *scrape { return &scrape{src: &Source{}, pic: pic, now: pic.at.Add(spec.Minute)} }))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	got, err := parser.TextToMetricFamilies(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// names expands "a_{b,c}" as a shell does; nested braces are not used.
func names(text string) []string {
	var out []string
	for _, word := range strings.Fields(text) {
		head, rest, ok := strings.Cut(word, "{")
		if !ok {
			out = append(out, word)
			continue
		}
		list, tail, _ := strings.Cut(rest, "}")
		for _, m := range strings.Split(list, ",") {
			out = append(out, head+m+tail)
		}
	}
	return out
}

const nativeJobNames = `{bootfail,cancelled,completed,completing,configuring,cpus_alloc,deadline,expediting,failed,fed_requeued,finished,hold,memory_alloc,node_failed,outofmemory,pending,powerup_node,preempted,requeued,resizing,revoked,running,signaling,stageout,started,suspended,timeout,gpus_alloc}`

// dialectWants is what other programs call these figures: names by path and
// labels. What is not named here must not be served there, and the reverse.
func dialectWants() map[string]map[string]string {
	return map[string]map[string]string{
		endpointVpenso: {
			"": `slurm_cpus_{alloc,idle,other,total} slurm_gpus_{alloc,idle,other,total,utilization}
				slurm_nodes_{alloc,comp,down,drain,err,fail,idle,maint,mix,resv,inval,planned,other,total}
				slurm_queue_{pending,pending_dependency,running,suspended,cancelled,completing,completed,configuring,failed,timeout,preempted,node_fail}
				slurm_jobs_{pending,running,suspended,completing,completed,configuring,failed,timeout,preempted,node_fail,cancelled} slurm_jobs_cores_{running,pending}
				slurm_scheduler_{threads,queue_size,dbd_queue_size,last_cycle,mean_cycle,cycle_per_minute,backfill_last_cycle,backfill_mean_cycle,backfill_depth_mean}
				slurm_scheduler_backfilled_jobs_since_{start,cycle}_total slurm_scheduler_backfilled_heterogeneous_total
				slurm_scheduler_jobs_{submitted,started,completed,canceled,failed} slurm_exporter_cache_age_seconds`,
			"node,status":                     `slurm_node_cpu_{alloc,idle,other,total} slurm_node_mem_{alloc,total}`,
			"node,status,partition":           `slurm_node_status`,
			"node,status,partition,gres_type": `slurm_node_gres_{total,used}`,
			"node,reason":                     `slurm_node_drain_reason_info`,
			"node":                            `slurm_node_drain_since_timestamp_seconds`,
			"partition":                       `slurm_partition_cpus_{allocated,idle,other,total} slurm_partition_gpus_{allocated,idle} slurm_partition_jobs_{pending,running}`,
			"account":                         `slurm_account_{jobs_pending,jobs_running,jobs_suspended,cpus_running,gpus_running,fairshare} slurm_account_fairshare_{norm_shares,norm_usage,raw_shares,raw_usage_cpu_seconds}`,
			"user":                            `slurm_user_{jobs_pending,jobs_running,jobs_suspended,cpus_running,gpus_running} slurm_user_rpc_stats slurm_user_rpc_stats_{avg_time,total_time}`,
			"account,user":                    `slurm_user_fairshare slurm_user_fairshare_{norm_shares,norm_usage,raw_shares,raw_usage_cpu_seconds} slurm_job_{cpu_efficiency_avg,mem_efficiency_avg,count_completed,cpu_hours_allocated}`,
			"user,partition":                  `slurm_cores_{pending,running,suspended,cancelled,completed,failed,timeout,preempted,node_fail}`,
			"reservation_name,state,users,nodes,partition,flags": `slurm_reservation_info`,
			"reservation_name":    `slurm_reservation_{start_time_seconds,end_time_seconds,node_count,core_count}`,
			"reservation":         `slurm_reservation_nodes_{alloc,idle,mix,down,drain,planned,other,healthy}`,
			"license":             `slurm_license_{total,used,free,reserved}`,
			"operation":           `slurm_rpc_stats slurm_rpc_stats_{avg_time,total_time}`,
			"type,binary,version": `slurm_info`,
			"collector":           `slurm_exporter_collector_{success,duration_seconds}`,
			"command":             `slurm_exporter_command_duration_seconds slurm_exporter_command_errors_total`,
		},
		endpointNodes: {
			"node": `slurm_node_cpus slurm_node_cpus_{alloc,effective,idle} slurm_node_memory_bytes slurm_node_memory_{alloc,effective,free}_bytes slurm_node_gpus slurm_node_gpus_alloc`,
			"":     `slurm_nodes slurm_nodes_{alloc,blocked,completing,cloud,down,drain,drained,draining,dyn_future,dyn_normal,external,fail,future,idle,invalid_reg,maint,mixed,noresp,planned,power_down,power_up,powered_down,powering_up,reboot_issued,reboot_req,resv,unknown}`,
		},
		endpointJobs: {"": `slurm_jobs slurm_jobs_` + nativeJobNames + ` slurm_jobs_nodes_alloc`},
		endpointPartitions: {
			"": `slurm_partitions`,
			"partition": `slurm_partition_jobs slurm_partition_jobs_` + nativeJobNames + ` slurm_partition_jobs_{max_job_nodes,max_job_nodes_nohold,min_job_nodes,min_job_nodes_nohold,wait_part_node_limit}
				slurm_partition_nodes slurm_partition_cpus slurm_partition_gpus
				slurm_partition_nodes_{alloc,blocked,cg,cloud,cpus_efctv,cpus_idle,cpus_alloc,down,drain,drained,draining,dyn_future,dyn_normal,external,fail,future,idle,invalid_reg,maint,mem_alloc,mem_avail,mem_free,mem_tot,mixed,no_resp,planned,power_down,power_up,powered_down,powering_down,powering_up,reboot_issued,reboot_requested,resv,unknown}`,
		},
		endpointUsers: {
			"username": `slurm_user_jobs slurm_user_jobs_` + nativeJobNames + ` slurm_user_jobs_nodes_alloc`,
			"account":  `slurm_account_jobs slurm_account_jobs_` + nativeJobNames + ` slurm_account_jobs_nodes_alloc`,
		},
		endpointScheduler: {"": `slurm_agent_{cnt,queue_size,thread_cnt} slurm_bf_{depth_mean,mean_cycle,mean_table_sz,queue_len_mean,try_depth_mean}
			slurm_backfilled_{het_jobs,jobs} slurm_bf_{active,cycle_cnt,cycle_last,cycle_max,cycle_tot,depth_tot,depth_try_tot,last_depth,last_depth_try,queue_len,queue_len_tot,table_size,table_size_tot,when_last_cycle}
			slurm_sdiag_jobs_{canceled,completed,failed,pending,running,started,submitted} slurm_sdiag_job_states_ts slurm_last_backfilled_jobs slurm_sdiag_latency
			slurm_schedule_cycle_{cnt,depth,last,max,tot} slurm_schedule_queue_len slurm_sched_exit_{end,max_depth,max_job_start,lic,rpc_cnt,timeout}
			slurm_bf_exit_{end,max_job_start,max_job_test,state_changed,table_limit,timeout} slurm_sched_mean_cycle slurm_sched_mean_depth_cycle
			slurm_server_thread_cnt slurm_slurmdbd_queue_size slurm_last_proc_req_start slurm_sched_stats_timestamp`},
	}
}

// TestConformance holds both dialects to their names, types and labels,
// complete in both directions.
func TestConformance(t *testing.T) {
	nativeCount := 0
	for path, list := range dialects() {
		got, wants := scrapePath(t, list, full()), map[string]string{}
		for labels, text := range dialectWants()[path] {
			for _, n := range names(text) {
				wants[n] = labels
			}
		}
		for name, f := range got {
			labels, ok := wants[name]
			if !ok {
				t.Errorf("%s: serves %s, which the dialect does not have", path, name)
				continue
			}
			delete(wants, name)
			want := []string{"cluster"}
			if labels != "" {
				want = append(want, strings.Split(labels, ",")...)
			}
			for _, m := range f.GetMetric() {
				var have []string
				for _, l := range m.GetLabel() {
					have = append(have, l.GetName())
				}
				slices.Sort(have)
				slices.Sort(want)
				if !slices.Equal(have, want) {
					t.Errorf("%s: %s has labels %v, want %v", path, name, have, want)
				}
			}
			kind := dto.MetricType_GAUGE
			switch name {
			case "slurm_exporter_command_duration_seconds":
				kind = dto.MetricType_HISTOGRAM
			case "slurm_exporter_command_errors_total":
				kind = dto.MetricType_COUNTER
			}
			if f.GetType() != kind {
				t.Errorf("%s: %s is a %s", path, name, f.GetType())
			}
		}
		for name := range wants {
			t.Errorf("%s: does not serve %s", path, name)
		}
		if path != endpointVpenso {
			nativeCount += len(got)
		}
	}
	// The newest release has 229 definitions; the 30 over users serve accounts too.
	if nativeCount != 229+30 {
		t.Errorf("%d native names, want 259", nativeCount)
	}
}

// TestUnitsOfTheNativeDialect: what the original gets wrong is right here.
func TestUnitsOfTheNativeDialect(t *testing.T) {
	p := full()
	p.nodes[0].CPUs, p.nodes[0].CPUsForJobs, p.nodes[0].CPUAlloc = 70_000, 70_000, 66_000
	p.nodes[1].Flags |= nodePoweringUp
	value := func(list []family, name string, label string) float64 {
		t.Helper()
		for _, m := range scrapePath(t, list, p)[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					return m.GetGauge().GetValue()
				}
			}
		}
		t.Fatalf("%s has no series with %q", name, label)
		return 0
	}
	for _, tc := range []struct {
		list        []family
		name, label string
		want        float64
	}{
		{nativeNodes(), "slurm_node_memory_bytes", "n1", 1000 << 20},
		{nativeNodes(), "slurm_node_memory_free_bytes", "n1", 500 << 20},
		{nativeJobs(), "slurm_jobs_memory_alloc", "c", 200 << 20},
		{nativeUsers(), "slurm_user_jobs_memory_alloc", "alice", 200 << 20},
		{nativePartitions(), "slurm_partition_nodes_cpus_alloc", "gpu", 66_000},
		{nativeNodes(), "slurm_nodes_powering_up", "c", 1},
		{nativePartitions(), "slurm_partition_nodes_powering_down", "gpu", 0},
		{nativePartitions(), "slurm_partition_nodes_mem_tot", "gpu", 2000 << 20},
		{vpensoFamilies(), "slurm_node_mem_total", "n1", 1000}, // MB, as that dialect has it
		{vpensoFamilies(), "slurm_gpus_utilization", "c", 0.25},
		{vpensoFamilies(), "slurm_queue_pending_dependency", "c", 1},
		{vpensoFamilies(), "slurm_job_cpu_efficiency_avg", "alice", 0.25},
		{vpensoFamilies(), "slurm_scheduler_mean_cycle", "c", 1.5},
		{vpensoFamilies(), "slurm_nodes_drain", "c", 1},
	} {
		if got := value(tc.list, tc.name, tc.label); got != tc.want {
			t.Errorf("%s is %g, want %g", tc.name, got, tc.want)
		}
	}
}

// TestFormatsAndBadLabels: values that nobody should have given survive every
// format, compressed or not.
func TestFormatsAndBadLabels(t *testing.T) {
	const evil = "a\"b\\c\nd\U0001F680"
	p := full()
	p.nodes[1].Reason = evil
	p.nodes[0].Name = "bad\xff"
	h := pageHandler(newPage(vpensoFamilies(), nil, func() *scrape { return &scrape{src: &Source{}, pic: p, now: p.at} }))
	for accept, want := range map[string]string{
		"text/plain": "text/plain", "application/openmetrics-text;version=1.0.0": "application/openmetrics-text", "text/plain;version=1.0.0;escaping=allow-utf-8": "text/plain",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": "application/vnd.google.protobuf",
	} {
		for _, enc := range []string{"", "gzip"} {
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.Header.Set("Accept", accept)
			req.Header.Set("Accept-Encoding", enc)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			if !strings.HasPrefix(rec.Header().Get("Content-Type"), want) || rec.Header().Get("Content-Encoding") != enc {
				t.Errorf("%s, %q: answered as %s, %q", accept, enc, rec.Header().Get("Content-Type"), rec.Header().Get("Content-Encoding"))
			}
			if enc == "" { // the same as the library writes
				theirs := httptest.NewRecorder()
				h.(*server).other.ServeHTTP(theirs, req)
				if theirs.Body.String() != rec.Body.String() || theirs.Header().Get("Content-Type") != rec.Header().Get("Content-Type") {
					t.Errorf("%s: promhttp writes something else, as %s", accept, theirs.Header().Get("Content-Type"))
				}
			}
			if enc == "" && strings.HasPrefix(want, "application/openmetrics") && !strings.HasSuffix(rec.Body.String(), "# EOF\n") {
				t.Errorf("%s does not end as OpenMetrics", accept)
			}
		}
	}
	got := scrapePath(t, vpensoFamilies(), p)
	found := ""
	for _, l := range got["slurm_node_drain_reason_info"].GetMetric()[0].GetLabel() {
		if l.GetName() == "reason" {
			found = l.GetValue()
		}
	}
	if found != evil {
		t.Errorf("the reason came back as %q", found)
	}
}

// TestDialectsAreInTheCatalogue: the catalogue knows every path.
func TestDialectsAreInTheCatalogue(t *testing.T) {
	c, err := catalogue.New(Metrics())
	if err != nil {
		t.Fatal(err)
	}
	for path, list := range dialects() {
		if n := len(c.Served(path)); n != len(list) {
			t.Errorf("%s: %d in the catalogue, %d served", path, n, len(list))
		}
	}
}
