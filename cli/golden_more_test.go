package cli

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// refusals makes the controller refuse what the lab's would.
func (w *world) refusals() {
	w.lab()
	w.nextID = 7
	w.reply[tool.MethodSubmit] = func(req proto.Message) (proto.Message, error) {
		q := req.(*apiv1.SubmitRequest)
		s := q.GetSpec()
		gres := func(name string, n int64) bool {
			for _, c := range s.GetPerNode() {
				if c.GetName() == name && (c.GetN() >= n || c.GetType() != "") {
					return true
				}
			}
			return false
		}
		no := func(code spec.Code, prefix string) (proto.Message, error) {
			return nil, &spec.Error{Kind: code, Prefix: prefix}
		}
		switch {
		case gres("gpu", 9):
			return no(spec.CodeNodeConfigUnavailable, "")
		case gres("tpu", 0):
			return no(spec.CodeInvalidGRES, "")
		case s.GetMemPerNode() > 16000:
			return no(spec.CodeNodeConfigUnavailable, "Memory specification can not be satisfied")
		case slices.Contains(s.GetPartitions(), "nosuch"):
			return no(spec.CodeInvalidPartition, "invalid partition specified: nosuch")
		case s.GetQos() == "nosuch":
			return no(spec.CodeInvalidQOS, "")
		case s.GetAccount() == "nosuch":
			return no(spec.CodeInvalidAccount, "")
		case s.GetConstraint() == "nofeature":
			return no(spec.CodeInvalidFeature, "")
		case s.GetNodes() == "node9":
			return no(spec.CodeInvalidNodeName, "")
		case len(s.GetArray()) > 0 && s.GetArray()[0].GetLast() > 20000:
			return no(spec.CodeInvalidArray, "")
		}
		return w.answer(req)
	}
}

// people is the lab's policy.
func (w *world) people() {
	w.lab()
	assoc := func(id uint32, account, user string, parent uint32, shares int64, qos ...string) *apiv1.Association {
		return &apiv1.Association{Id: id, Account: account, User: user, Parent: parent, Shares: shares, Qos: qos}
	}
	w.config = &apiv1.GetConfigReply{Entries: []*apiv1.ConfigEntry{{Key: "AccountingStorageTRES", Value: "gres/gpu"}, {Key: "SlurmctldPort", Value: "6817"}}}
	w.policy = &apiv1.PolicyReply{
		Cluster:  "peer",
		Qos:      []*apiv1.Qos{{Id: 1, Name: "normal"}, {Id: 2, Name: "gpucap", Priority: 10, MaxTresPerUser: []*apiv1.NamedCount{{Name: "gres/gpu", N: 4}}}},
		Accounts: []*apiv1.Account{{Name: "root", Description: "default root account", Organization: "root"}, {Name: "ml", Description: "ml team", Organization: "ml"}, {Name: "vision", Description: "vision team", Organization: "ml"}, {Name: "physics", Description: "physics", Organization: "phys"}},
		Users: []*apiv1.AccountingUser{{Name: "root", DefaultAccount: "root", AdminLevel: "Administrator"}, {Name: "bob", DefaultAccount: "physics"}, {Name: "carol", DefaultAccount: "vision"},
			{Name: "alice", DefaultAccount: "ml"}},
		Associations: []*apiv1.Association{assoc(1, "root", "", 0, 1, "normal"), assoc(2, "root", "root", 1, 1), assoc(3, "ml", "", 1, 50), assoc(4, "vision", "", 3, 20), assoc(5, "physics", "", 1, 30),
			assoc(6, "physics", "bob", 5, 1, "normal", "gpucap"), assoc(7, "vision", "carol", 4, 5), assoc(8, "ml", "alice", 3, 1, "normal", "gpucap")},
	}
}

// steps is what accounting has of a job with steps.
func (w *world) steps() {
	w.lab()
	tres := &apiv1.Tres{Cpu: 2, Mem: 1000, Node: 1}
	row := func(step, name, state string, code, signal int32) *apiv1.AcctRow {
		return &apiv1.AcctRow{Uid: 111, JobId: 111, ArrayTask: -1, Step: step, Name: name, Account: "ml", State: state, ExitCode: code, ExitSignal: signal, AllocTres: tres, ReqCpus: 2, NodeList: "node2"}
	}
	job := row("", "steps", "COMPLETED", 0, 0)
	job.User, job.Partition = "alice", "gpu"
	gpu := &apiv1.Tres{Cpu: 1, Mem: 500, Node: 1, Billing: 1, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 3}}}
	batch := &apiv1.Tres{Cpu: 1, Mem: 500, Node: 1, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 3}}}
	w.acct = []*apiv1.AcctRow{job, row("batch", "batch", "COMPLETED", 0, 0), row("0", "hostname", "COMPLETED", 0, 0), row("1", "sh", "FAILED", 4, 0), row("2", "sh", "CANCELLED", 0, 9),
		{Uid: 112, JobId: 112, ArrayTask: -1, Name: "gpuenv", ReqMem: 500, AllocTres: gpu, ReqTres: gpu}, {Uid: 112, JobId: 112, ArrayTask: -1, Step: "batch", AllocTres: batch}}
	w.scripts = &apiv1.AcctScriptReply{Scripts: []*apiv1.AcctScript{{Row: &apiv1.AcctRow{JobId: 112}, Missing: true}}}
	w.reply[tool.MethodAcctRows] = func(req proto.Message) (proto.Message, error) {
		out := &apiv1.AcctReply{Cluster: "peer"}
		for _, r := range w.acct {
			for _, j := range req.(*apiv1.AcctQuery).GetJobs() {
				job, step, stepped := strings.Cut(j, ".")
				if job == tool.Itoa(r.GetJobId()) && (!stepped || step == r.GetStep()) {
					out.Rows = append(out.Rows, r)
				}
			}
		}
		return out, nil
	}
}

// usage is what the service reports of the lab's day.
func (w *world) usage() {
	w.lab()
	w.at = time.Unix(0, at("02:00:00")).UTC()
	text := func(s string) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Text{Text: s}} }
	num := func(n int64) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Int{Int: n}} }
	col := func(name, unit string) *apiv1.ReportColumn {
		kind := "int"
		if unit == "" {
			kind = "text"
		}
		return &apiv1.ReportColumn{Name: name, Kind: kind, Unit: unit}
	}
	const sec = "TRES-seconds"
	w.reply[tool.MethodAcctReport] = func(req proto.Message) (proto.Message, error) {
		q := req.(*apiv1.ReportQuery)
		out := &apiv1.ReportReply{Start: q.GetStart(), End: q.GetEnd(), Cluster: "peer"}
		gpu := slices.Contains(q.GetTres(), "gres/gpu")
		row := func(cells ...any) {
			r := &apiv1.ReportRow{Cells: []*apiv1.Cell{text("peer")}}
			for _, c := range cells {
				switch v := c.(type) {
				case string:
					r.Cells = append(r.Cells, text(v))
				case int:
					r.Cells = append(r.Cells, num(int64(v)))
				case float64:
					r.Cells = append(r.Cells, &apiv1.Cell{Kind: &apiv1.Cell_Float{Float: v}})
				}
			}
			out.Rows = append(out.Rows, r)
		}
		columns := func(names ...string) {
			out.Columns = append(out.Columns, col("Cluster", ""))
			for _, n := range names {
				out.Columns = append(out.Columns, col(n, ""))
			}
		}
		switch q.GetReport() {
		case "cluster utilization":
			columns("TRES Name")
			out.Columns = append(out.Columns, col("Allocated", sec), col("Down", sec), col("PLND Down", sec), col("Idle", sec), col("Planned", sec), col("Reported", sec),
				col("OverCommitted", sec), &apiv1.ReportColumn{Name: "TresCount", Kind: "int"})
			row("cpu", 31417, 0, 0, 0, 0, 31417, 0, 16)
			if gpu {
				row("gres/gpu", 250, 0, 0, 19390, 0, 19640, 0, 16)
			}
		case "job sizesbyaccount", "job sizesbyaccountandwckey":
			columns("Account", "TRES Name")
			groups, used, unit := []string{"0-49 CPUs", "50-249 CPUs", "250-499 CPUs", "500-999 CPUs", ">= 1000 CPUs"}, []any{7040, 0, 0, 0, 0}, sec
			if len(q.GetGrouping()) > 0 {
				groups, used = []string{"0-1 CPUs", "2-7 CPUs", ">= 8 CPUs"}, []any{6290, 0, 750}
			}
			if q.GetCount() {
				used[0], unit = 5682, "jobs"
			}
			for _, g := range groups {
				out.Columns = append(out.Columns, col(g, unit))
			}
			out.Columns = append(out.Columns, &apiv1.ReportColumn{Name: "% of cluster", Kind: "float", Unit: "percent"}, col("Total", sec))
			if !strings.Contains(q.GetReport(), "wckey") {
				row(append(append([]any{"root", "cpu"}, used...), 100.0, 7040)...)
			}
		case "reservation utilization":
			columns("Name", "Start", "End", "TRES Name")
			out.Columns = append(out.Columns, col("Allocated", sec), col("Idle", sec))
		default:
			tree := strings.Contains(q.GetReport(), "account") && !strings.HasPrefix(q.GetReport(), "cluster user")
			columns(map[bool][]string{true: {"Account", "Login", "Proper Name"}, false: {"Login", "Proper Name", "Account"}}[tree]...)
			out.Columns = append(out.Columns, col("TRES Name", ""), col("Used", sec), col("Energy", "joules"), &apiv1.ReportColumn{Name: "Depth", Kind: "int"}, col("Total", sec))
			for _, r := range usageOf(tree, gpu) {
				for _, tres := range append([]string(nil), q.GetTres()...) {
					row(r.names[0], r.names[1], r.names[2], tres, map[bool]int{true: r.gpu, false: r.cpu}[tres == "gres/gpu"], 0, r.depth, 31424)
				}
				if len(q.GetTres()) == 0 {
					row(r.names[0], r.names[1], r.names[2], "cpu", r.cpu, 0, r.depth, 31424)
				}
			}
		}
		return out, nil
	}
}

type usedBy struct {
	names           [3]string // in the order of the columns
	cpu, gpu, depth int
}

// usageOf is who used the lab, as a tree or from the top.
func usageOf(tree, byGPU bool) []usedBy {
	if tree {
		return []usedBy{{[3]string{"root", "", ""}, 72735, 240, 0}, {[3]string{"root", "root", "root"}, 71856, 0, 1}, {[3]string{"ml", "", ""}, 631, 60, 1},
			{[3]string{"ml", "alice", ""}, 631, 60, 2}, {[3]string{"physics", "", ""}, 248, 180, 1}, {[3]string{"physics", "bob", ""}, 248, 180, 2}}
	}
	list := []usedBy{{[3]string{"root", "root", "root"}, 71856, 0, 0}, {[3]string{"alice", "", "ml"}, 631, 60, 0}, {[3]string{"bob", "", "physics"}, 248, 180, 0}}
	if byGPU {
		list[0], list[2] = list[2], list[0]
	}
	return list
}

// moreScenarios are those of the tools that change things and of accounting.
//
//muster:table one entry for each scenario
func moreScenarios() map[string]scenario {
	return map[string]scenario{
		"refused": {(*world).refusals, map[string][]string{"s2_gpu_toobig.txt": {
			"sbatch --job-name=gpu-toobig --gres=gpu:16 -N1 --wrap 'sleep 1'", "sbatch --test-only --gres=gpu:16 -N1 --wrap 'sleep 1'", "sbatch -N3 --wrap hostname",
			"sbatch -N1 -n99 --wrap hostname", "sbatch --mem=64G -N1 --wrap hostname", "sbatch -p nosuch --wrap hostname", "sbatch --qos=nosuch --wrap hostname", "sbatch -A nosuch --wrap hostname",
			"sbatch --gres=tpu:1 --wrap hostname", "sbatch --gres=gpu:x --wrap hostname", "sbatch -t abc --wrap hostname", "sbatch --mem=abc --wrap hostname", "sbatch -n 0 --wrap hostname",
			"sbatch --dependency=foo:1 --wrap hostname", "sbatch --array=5-1 --wrap hostname", "sbatch --array=0-50000 --wrap hostname", "sbatch --array=abc --wrap hostname",
			"sbatch -C nofeature --wrap hostname", "sbatch -w node9 --wrap hostname", "sbatch --begin=tomorrowish --wrap hostname", "sbatch /nonexistent.sh", "sbatch --bogus --wrap hostname",
		}, "version_sbatch.txt": nil}},
		"denied": {func(w *world) {
			w.capped()
			w.results = []*apiv1.JobResult{{Job: "87_1", Error: &apiv1.Error{Code: 2002, Text: spec.CodeAccessDenied.String()}}, {Job: "87_2", Error: &apiv1.Error{Code: 2002, Text: spec.CodeAccessDenied.String()}}}
		}, map[string][]string{"s6_scancel.txt": {"scancel 87"}}},
		"held": {func(w *world) {
			w.results = []*apiv1.JobResult{{Job: "64", Error: &apiv1.Error{Code: 2002, Text: spec.CodeAccessDenied.String()}}}
		}, map[string][]string{"s6_hold.txt": {"scontrol release 64", "scontrol update jobid=64 timelimit=2-0"}}},
		"disabled": {func(w *world) {
			w.results = []*apiv1.JobResult{{Job: "65", Error: &apiv1.Error{Code: 2037, Text: spec.CodeDisabled.String()}}}
		}, map[string][]string{"s6_requeue.txt": {"scontrol requeue 65"}}},
		"idle node": {func(w *world) {
			w.reply[tool.MethodUpdateNode] = func(req proto.Message) (proto.Message, error) {
				if req.(*apiv1.UpdateNodeRequest).GetReason() == "x" {
					return nil, spec.Refuse(spec.CodeAccessDenied, "")
				}
				return nil, spec.Refuse(spec.CodeInvalidNodeState, "")
			}
		}, map[string][]string{"s5_resume.txt": {"scontrol update nodename=node1 state=drain reason=x"}}},
		"maintenance": {func(w *world) {
			w.reserved = []*apiv1.ReservationInfo{{Name: "maint", Start: at("02:47:36"), End: at("03:47:36"), Nodes: []string{"node1", "node2"}, Cores: 16,
				Flags: "MAINT,SPEC_NODES,ALL_NODES", Tres: &apiv1.Tres{Cpu: 16}, Users: []string{"root"}}}
		}, map[string][]string{"s5b_resv.txt": {"scontrol create reservation reservationname=maint starttime=now+1hour duration=60 users=root flags=maint nodes=ALL", "scontrol show reservation", "sinfo -T",
			"scontrol delete reservationname=maint"}}},
		"people": {(*world).people, map[string][]string{
			"sacctmgr_show_account.txt": {"sacctmgr show account -P"}, "sacctmgr_show_user.txt": {"sacctmgr show user -P"}, "sacctmgr_show_user_default.txt": {"sacctmgr show user"},
			"sacctmgr_show_assoc.txt": {"sacctmgr show assoc -P"}, "sacctmgr_show_assoc_default.txt": {"sacctmgr show assoc"}, "sacctmgr_show_assoc_tree.txt": {"sacctmgr show assoc tree format=cluster,account,user,share,qos"},
			"sacctmgr_show_qos.txt": {"sacctmgr show qos -P"}, "sacctmgr_show_qos_fmt.txt": {"sacctmgr show qos format=name,priority,maxtrespu"}, "sacctmgr_show_tres.txt": {"sacctmgr show tres -P"},
			"sacctmgr_del_missing.txt": {"sacctmgr -i delete user nosuch"}, "sacctmgr_problem.txt": {"sacctmgr show problem"}, "sacctmgr_runaway.txt": {"sacctmgr -i show runaway"},
		}},
		"none of these": {func(*world) {}, map[string][]string{"sacctmgr_coord_etc.txt": {"sacctmgr show coordinator", "sacctmgr show wckey", "sacctmgr show resource", "sacctmgr show reservation", "sacctmgr show federation"}}},
		"shares":        {func(w *world) { w.shares("root") }, map[string][]string{"s3_sshare.txt": {"sshare -l", "sshare -a -l", "sshare -a -P"}}},
		"bounded":       {(*world).bounded, map[string][]string{"s3_assoc_mgr.txt": {"scontrol show assoc_mgr qos=gpucap flags=qos"}}},
		"limited":       {(*world).limited, nil},
		"priorities":    {(*world).priorities, map[string][]string{"s3_sprio.txt": {"sprio -l", "sprio", "sprio -w", "sprio -n"}}},
		"bad QOS": {func(w *world) {
			w.people()
			w.reply[tool.MethodChangePolicy] = func(proto.Message) (proto.Message, error) {
				return nil, spec.Refuse(spec.CodeBadRequest, "You gave a bad qos 'nope'. Valid QOS's are normal,gpucap")
			}
		}, map[string][]string{"sacctmgr_add_badqos.txt": {"sacctmgr -i add user dave account=ml qos=nope"}}},
		"steps": {(*world).steps, map[string][]string{"sacct_brief.txt": {"sacct -j 111 -b", "sacct -j 111 -n -o jobid,state", "sacct -j 111.1", "sacct -j 111 --parsable --delimiter=, -o jobid,state",
			"sacct -j 999999", "sacct -j 111 -o nosuchfield", "sacct -s BADSTATE", "sacct -S notatime", "sacct -j 112 --units=G -o jobid,reqmem,alloctres%60", "sacct -j 112 -B", "sacct -c -j 112"}}},
		"usage": {(*world).usage, map[string][]string{
			"sreport_cluster_util.txt": {"sreport cluster utilization start=2026-11-21 end=2026-11-22", "sreport -t hours cluster utilization start=2026-11-21 end=2026-11-22",
				"sreport -T cpu,gres/gpu -t minutes cluster utilization start=2026-11-21 end=2026-11-22"},
			"sreport_user_top.txt": {"sreport user top start=2026-11-21 end=2026-11-22", "sreport -P -t seconds user topusage start=2026-11-21 end=2026-11-22 TopCount=3",
				"sreport -T gres/gpu user top start=2026-11-21 end=2026-11-22"},
			"sreport_acctutil.txt": {"sreport cluster AccountUtilizationByUser start=2026-11-21 end=2026-11-22", "sreport -t percent cluster AccountUtilizationByUser start=2026-11-21 end=2026-11-22",
				"sreport -T gres/gpu,cpu -P cluster AccountUtilizationByUser start=2026-11-21 end=2026-11-22 tree"},
			"sreport_sizes.txt": {"sreport job sizesbyaccount start=2026-11-21 end=2026-11-22", "sreport job sizesbyaccount printjobcount start=2026-11-21 end=2026-11-22",
				"sreport -P job sizesbyaccount grouping=2,8 start=2026-11-21 end=2026-11-22", "sreport job sizesbyaccountandwckey start=2026-11-21 end=2026-11-22"},
			"sreport_misc.txt":     {"sreport reservation utilization start=2026-11-21 end=2026-11-22"},
			"sreport_userutil.txt": {"sreport cluster UserUtilizationByAccount start=2026-11-21 end=2026-11-22"},
		}},
	}
}
