package cli

import (
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// explained is a job over a limit, and one that waits for nodes.
func (w *world) explained() {
	w.capped()
	over := labJob(22, "over", "alice", spec.Pending, gpus(5), prio(8396), waits("QOSMaxGRESPerUser"), edit(func(j *apiv1.JobInfo) { j.Submit, j.Spec.Qos = at("01:25:50"), "gpucap" }))
	held := labJob(16, "gpu-qoscap", "alice", spec.Running, gpus(1), ran("01:45:47", "", "node1"))
	w.reply[tool.MethodWhy] = func(req proto.Message) (proto.Message, error) {
		switch req.(*apiv1.WhyRequest).GetJob() {
		case "22":
			return &apiv1.WhyReply{Job: over, Now: w.now, Seq: 9, Ahead: 2,
				Reason:   &apiv1.Reason{Code: "QOSMaxGRESPerUser", Tres: "gres/gpu", Limit: 4, Used: 4, Asked: 5, Subject: "qos/gpucap", Blocker: 16},
				Blockers: []*apiv1.JobInfo{held},
				Nodes:    []*apiv1.NodeVerdict{{Nodes: "node1", Count: 1, Why: "gres/gpu", Free: 4, Need: 5}, {Nodes: "node2", Count: 1, Why: "fits"}, {Nodes: "node[3-4]", Count: 2, Why: "state:drained"}},
				Advice:   []*apiv1.Advice{{Change: "--gres=gpu:4", Start: at("02:45:47"), Gain: 4 * hour}, {Change: "--qos=normal", Start: w.now}}}, nil
		case "4", "5":
			return &apiv1.WhyReply{Job: labJob(4, "gpu-small", "alice", spec.Running, ran("01:44:41", "", "node1")), Now: w.now}, nil
		}
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	w.reply[tool.MethodAcctReasons] = func(req proto.Message) (proto.Message, error) {
		span := func(code, from, to string, asked int64, restarts uint32) *apiv1.ReasonPeriod {
			p := &apiv1.ReasonPeriod{Reason: &apiv1.Reason{Code: code, Asked: asked}, From: at(from), Restarts: restarts}
			if to != "" {
				p.To = at(to)
			}
			return p
		}
		switch req.(*apiv1.ReasonsQuery).GetJob() {
		case "22":
			return &apiv1.ReasonsReply{Periods: []*apiv1.ReasonPeriod{span("Priority", "01:25:50", "01:40:00", 0, 0), span("QOSMaxGRESPerUser", "01:40:00", "", 0, 0)}}, nil
		case "4":
			return &apiv1.ReasonsReply{Periods: []*apiv1.ReasonPeriod{{From: at("01:25:50"), To: at("01:25:50") + tool.Second/2}, span("Priority", "01:25:50", "01:30:00", 0, 0), span("Resources", "01:30:00", "01:35:00", 1, 0),
				span("Resources", "01:35:00", "01:40:00", 2, 0), span("BeginTime", "01:42:00", "01:44:41", 0, 1)}}, nil
		case "2_1": // forgotten by the controller
			return &apiv1.ReasonsReply{Now: w.now, Seq: 12, Run: &apiv1.AcctRow{JobId: 3, ArrayJobId: 2, ArrayTask: 1, Name: "sweep", User: "bob", State: "FAILED", ExitCode: 3,
				Partition: "gpu", Submit: at("01:00:00"), Start: at("01:02:00"), End: at("01:10:00"), NodeList: "node1"},
				Periods: []*apiv1.ReasonPeriod{span("Licenses", "01:00:00", "01:02:00", 0, 0)}}, nil
		case "5":
			return nil, spec.Refuse(spec.CodeDatabaseUnreachable, "accounting (db1:9000): connection refused")
		}
		return &apiv1.ReasonsReply{Now: w.now, Seq: 12}, nil
	}
	w.diag = &apiv1.DiagReply{Now: at("02:06:24"), StartedAt: at("02:05:51"), Seq: 120, AccountedSeq: 118, JobsSubmitted: 7, JobsStarted: 6, JobsCompleted: 5, Pending: 1, Running: 0, Passes: 4,
		PassLast: 850_000, PassMax: 900_000, PassTotal: 3_400_000, PassDepth: 1, JobsBackfilled: 2, Agents: 2, LogPosition: 33, AppendLast: 2_000_000}
	f := func(x float64) *apiv1.Cell { return &apiv1.Cell{Kind: &apiv1.Cell_Float{Float: x}} }
	w.report = &apiv1.ReportReply{Cluster: "peer", Start: at("00:00:00"), End: w.now,
		Columns: []*apiv1.ReportColumn{{Name: "cluster", Kind: "text"}, {Name: "cpu_efficiency", Kind: "float", Unit: "ratio"}, {Name: "memory_waste", Kind: "float", Unit: "byte-hours"},
			{Name: "gpu_occupancy", Kind: "float", Unit: "ratio"}, {Name: "throughput", Kind: "float", Unit: "jobs per hour"}},
		Rows: []*apiv1.ReportRow{{Cells: []*apiv1.Cell{{Kind: &apiv1.Cell_Text{Text: "peer"}}, f(0.4321), f(3 << 30), {Kind: &apiv1.Cell_Null{Null: true}}, f(12.5)}}}}
}
