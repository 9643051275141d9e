package daemon

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/explain"
	"github.com/musterhpc/muster/scheduler/predict"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// ListNodes shows nodes.
func (s *nodeCalls) ListNodes(
	ctx context.Context,
	req *apiv1.ListNodesRequest,
) (*apiv1.ListNodesReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	out := &apiv1.ListNodesReply{Now: int64(now)}
	if s.private(privateNodes, caller) {
		return out, nil
	}
	planned := map[spec.NodeID]bool{}
	if view.Plan != nil {
		for i := range view.Plan.Jobs {
			for _, id := range view.Plan.Jobs[i].Nodes {
				planned[id] = true
			}
		}
	}
	add := func(node *state.Node) {
		out.Nodes = append(
			out.Nodes,
			wire.Node(view.State, node, s.nodeLive(req.GetMoment(), node), planned[node.ID]),
		)
	}
	if len(req.GetNodes()) == 0 {
		view.State.Nodes.Range(func(_ uint64, node *state.Node) bool {
			if req.GetFuture() || !wire.Future(node) {
				add(node)
			}
			return true
		})
		markReserved(view.State, now, out.Nodes)
		s.hideHolders(view.State, caller, out.Nodes)
		return out, nil
	}
	for _, expr := range req.GetNodes() {
		names, err := hostlist.Expand(expr)
		if err != nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
		}
		for _, name := range names {
			if node := view.State.Node(name); node != nil &&
				(req.GetFuture() || !wire.Future(node)) {
				add(node)
			} else {
				out.Unknown = append(out.Unknown, name)
			}
		}
	}
	markReserved(view.State, now, out.Nodes)
	s.hideHolders(view.State, caller, out.Nodes)
	return out, nil
}

// hideHolders takes from nodes which jobs hold their devices and which their faults struck,
// where the caller may not see these jobs. That a device is held stays.
func (s *nodeCalls) hideHolders(cluster *state.State, caller Caller, nodes []*apiv1.NodeInfo) {
	if !s.private(privateJobs, caller) {
		return
	}
	sees := s.visibleTo(caller)
	hidden := func(uid uint64) bool {
		job := cluster.Job(spec.JobUID(uid))
		return uid != 0 && (job == nil || !sees(job))
	}
	for _, node := range nodes {
		for _, gpu := range node.GetGpus() {
			if hidden(gpu.GetJobUid()) {
				gpu.JobUid, gpu.JobId = 0, 0
			}
		}
		for _, fault := range node.GetGpuFaults() {
			if hidden(fault.GetJobUid()) {
				fault.JobUid = 0
				fault.JobId = 0
				fault.Attempt = 0
			}
		}
	}
}

// nodeStates are the words of scontrol update state=.
func nodeState(word string) (event.NodeAdminState, bool) {
	switch strings.ToLower(word) {
	case "drain":
		return event.NodeDrain, true
	case "resume", "undrain", "idle":
		return event.NodeResume, true
	case "down":
		return event.NodeDown, true
	case "fail":
		return event.NodeFail, true
	}
	return 0, false
}

// powerCommand is the command of a state= that is about the power of nodes or
// their reboot; nil for another.
func powerCommand(req *apiv1.UpdateNodeRequest, names []string) scheduler.Command {
	word := strings.ToLower(req.GetState())
	switch word {
	case "fenced":
		return scheduler.DeclareFenced{Nodes: names}
	case "power_up":
		return scheduler.PowerNodes{Nodes: names, How: scheduler.PowerUp}
	case "power_down":
		return scheduler.PowerNodes{Nodes: names, How: scheduler.PowerDown}
	case "power_down_asap":
		return scheduler.PowerNodes{Nodes: names, How: scheduler.PowerDownASAP}
	case "power_down_force":
		return scheduler.PowerNodes{Nodes: names, How: scheduler.PowerDownForce}
	case "cancel_reboot":
		return scheduler.CancelReboots{Nodes: names}
	case "reboot", "reboot_asap":
		next, _ := nodeState(req.GetNextState())
		return scheduler.RebootNodes{
			Nodes:  names,
			ASAP:   word == "reboot_asap",
			Next:   next,
			Reason: req.GetReason(),
		}
	}
	return nil
}

// nodeNames reads the names of nodes that there are; ALL is every node.
func nodeNames(cluster *state.State, expr string) ([]string, error) {
	var names []string
	if strings.EqualFold(expr, "all") {
		cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
			if !node.Removed {
				names = append(names, node.Spec.Name)
			}
			return true
		})
		return names, nil
	}
	names, err := hostlist.Expand(expr)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
	}
	for _, name := range names {
		if cluster.Node(name) == nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, name)
		}
	}
	return names, nil
}

// UpdateNode drains, resumes or sets nodes down, changes their power and what is
// known of them: all of it to all of them, or nothing.
func (s *nodeCalls) UpdateNode(
	ctx context.Context,
	req *apiv1.UpdateNodeRequest,
) (*apiv1.UpdateNodeReply, error) {
	actor, err := s.administratorCaller(ctx)
	if err != nil {
		return nil, err
	}
	cluster := s.currentView().State
	names, err := nodeNames(cluster, req.GetNodes())
	if err != nil {
		return nil, err
	}
	cmd, err := nodeChanges(cluster, names, req.GetSet())
	if err != nil {
		return nil, err
	}
	cmd.Power = powerCommand(req, names)
	known := false
	cmd.State, known = nodeState(req.GetState())
	if req.GetState() != "" && !known && cmd.Power == nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeState, req.GetState())
	}
	if req.GetState() == "" && len(req.GetSet()) == 0 {
		return nil, spec.Refuse(spec.CodeInvalidNodeState, req.GetState())
	}
	cmd.KeepInService = !strings.EqualFold(req.GetState(), "resume")
	if req.GetReason() != "" {
		cmd.Reason = &req.Reason
	}
	return &apiv1.UpdateNodeReply{}, s.commitCommand(
		ctx,
		&request{cmd: cmd, actor: actor},
	).err
}

// ListPartitions shows partitions.
func (s *partitionCalls) ListPartitions(
	ctx context.Context,
	req *apiv1.ListPartitionsRequest,
) (*apiv1.ListPartitionsReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	cluster := view.State
	out := &apiv1.ListPartitionsReply{Now: int64(now)}
	if s.private(privatePartitions, caller) {
		return out, nil
	}
	if len(req.GetPartitions()) == 0 {
		for i := range cluster.Parts.List {
			out.Partitions = append(out.Partitions, wire.Partition(cluster, &cluster.Parts.List[i]))
		}
		return out, nil
	}
	for _, name := range req.GetPartitions() {
		if partition := cluster.Parts.Find(name); partition != nil {
			out.Partitions = append(out.Partitions, wire.Partition(cluster, partition))
		} else {
			out.Unknown = append(out.Unknown, name)
		}
	}
	return out, nil
}

// GetConfig shows every key of the configuration in force.
func (s *controllerCalls) GetConfig(
	ctx context.Context,
	_ *apiv1.GetConfigRequest,
) (*apiv1.GetConfigReply, error) {
	if _, _, err := s.knownCaller(ctx); err != nil {
		return nil, err
	}
	cluster := s.C.View().State
	out := &apiv1.GetConfigReply{
		Cluster:    cluster.ClusterName,
		Version:    s.C.deps.Settings.Version,
		BootTime:   int64(s.C.started),
		Controller: s.C.deps.Settings.Host,
		Now:        int64(s.C.deps.Clock.Now()),
		NextJobId:  uint32(cluster.NextID),
		SlurmConf:  s.C.deps.Settings.SlurmConf,
		StateDir:   s.C.deps.Settings.StateDir,
		Port:       s.C.deps.Settings.Port,
		Log:        s.C.deps.Verbosity.describeLog(),
	}
	main := cluster.Config.MainTopology()
	out.Topologies = []*apiv1.TopologyInfo{topologyInfo(&main)}
	for i := range cluster.Config.Topologies {
		out.Topologies = append(out.Topologies, topologyInfo(&cluster.Config.Topologies[i]))
	}
	out.Topology = out.Topologies[0].GetSwitches()
	for _, kv := range cluster.Config.Raw {
		out.Entries = append(
			out.Entries,
			&apiv1.ConfigEntry{Key: kv.Key, Value: kv.Value, Record: kv.Record},
		)
	}
	return out, nil
}

func topologyInfo(topology *spec.Topology) *apiv1.TopologyInfo {
	out := &apiv1.TopologyInfo{Name: topology.Name, BlockSizes: topology.Sizes}
	for i := range topology.Switches {
		s := &topology.Switches[i]
		out.Switches = append(
			out.Switches,
			&apiv1.SwitchInfo{Name: s.Name, Level: s.Level, Nodes: s.Nodes, Switches: s.Switches},
		)
	}
	for i := range topology.Blocks {
		out.Blocks = append(
			out.Blocks,
			&apiv1.BlockInfo{Name: topology.Blocks[i].Name, Nodes: topology.Blocks[i].Nodes},
		)
	}
	return out
}

// Reconfigure reads the configuration files again and adopts them whole, or
// not at all.
func (s *controllerCalls) Reconfigure(
	ctx context.Context,
	_ *apiv1.ReconfigureRequest,
) (*apiv1.ReconfigureReply, error) {
	actor, err := s.administratorCaller(ctx)
	if err != nil {
		return nil, err
	}
	config, warnings, err := s.C.deps.Reload()
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if config.ClusterName != s.C.View().State.ClusterName {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"ClusterName cannot change while the ledger lives",
		)
	}
	config, err = s.C.writableConfig(config)
	if err != nil {
		return nil, err
	}
	if old := s.C.View().State.Config; !sameConfig(old, config.KeepDynamic(old)) {
		if rep := s.C.writer.commitCommand(
			ctx, &request{cmd: scheduler.Configure{Config: config}, actor: actor},
		); rep.err != nil {
			return nil, rep.err
		}
		for i := range old.FileNodes {
			warnings = append(warnings, "node "+old.FileNodes[i].Name+
				" was changed with scontrol update, and has its weight and features again as slurm.conf says")
		}
		for i := range old.FileParts {
			warnings = append(warnings, "partition "+old.FileParts[i].Name+
				" was changed with scontrol update, and is again as slurm.conf has it")
		}
	}
	warnings = append(warnings, s.C.hub.rereadConfigs(ctx)...)
	return &apiv1.ReconfigureReply{Warnings: warnings}, nil
}

// GetCliFilter gives the script that sees the options of commands that submit.
func (s *controllerCalls) GetCliFilter(
	ctx context.Context,
	_ *apiv1.GetCliFilterRequest,
) (*apiv1.GetCliFilterReply, error) {
	if _, _, err := s.knownCaller(ctx); err != nil {
		return nil, err
	}
	filter := s.C.View().State.Config.CliFilter
	if filter == nil {
		return &apiv1.GetCliFilterReply{}, nil
	}
	return &apiv1.GetCliFilterReply{Path: filter.Path, Text: filter.Text}, nil
}

// Diag shows the controller's figures.
func (s *controllerCalls) Diag(
	ctx context.Context,
	req *apiv1.DiagRequest,
) (*apiv1.DiagReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	now := s.diagnose()
	if req.GetAnew() {
		if !s.isOperator(caller) {
			return nil, spec.Refuse(spec.CodeAccessDenied, "")
		}
		s.C.counted.Store(now)
	}
	if base := s.C.counted.Load(); base != nil {
		now = diagSince(base, now)
	}
	if s.private(privateJobs, caller) || s.private(privateUsage, caller) {
		// How often somebody asks says when he works, and that he does.
		now.Callers = slices.DeleteFunc(now.GetCallers(), func(figure *apiv1.CallFigure) bool {
			return figure.GetName() != caller.User
		})
	}
	return now, nil
}

// diagnose gathers the figures since the controller began, and those of jobs since the ledger
// did.
func (s *controllerCalls) diagnose() *apiv1.DiagReply {
	view := s.C.View()
	totals := &view.State.Totals
	running := int64(0)
	view.State.Active.Range(func(uid uint64, _ struct{}) bool {
		if view.State.Job(spec.JobUID(uid)).State.Active() {
			running++
		}
		return true
	})
	diagReply := &apiv1.DiagReply{
		Now:              int64(s.C.deps.Clock.Now()),
		Seq:              view.State.Seq,
		StartedAt:        int64(s.C.started),
		JobsSubmitted:    totals.Submitted,
		JobsStarted:      totals.Started,
		JobsBackfilled:   totals.Backfilled,
		JobsCompleted:    totals.Ended[spec.Completed],
		JobsCancelled:    totals.Ended[spec.Cancelled],
		JobsFailed:       totals.Ended[spec.Failed] + totals.Ended[spec.NodeFailed] + totals.Ended[spec.OutOfMemory] + totals.Ended[spec.TimedOut],
		Pending:          int64(view.State.Waiting.Len()),
		Running:          running,
		Passes:           view.Pass.Passes,
		QuickPasses:      view.Pass.QuickPasses,
		PassLast:         int64(view.Pass.Last),
		PassMax:          int64(view.Pass.Max),
		PassTotal:        int64(view.Pass.Total),
		PassDepth:        view.Pass.Depth,
		PassExit:         view.Pass.Exit,
		DroppedProposals: view.Pass.Dropped,
		LogPosition:      view.Writer.LogPosition,
		AppendLast:       int64(view.Writer.AppendLast),
		AccountedSeq:     view.AccountedSeq,
		Agents:           int64(s.C.hub.countConnected()),
		StaleReports:     view.Writer.StaleReports,
		PastFrom:         int64(s.C.moments.firstMoment()),
	}
	if s.C.deps.Calls != nil {
		s.C.deps.Calls.EachMethod(func(name string, count, nanos uint64) {
			figure := &apiv1.CallFigure{Name: name, Count: count, Nanos: nanos}
			diagReply.Methods = append(diagReply.Methods, figure)
		})
		s.C.deps.Calls.EachUser(func(name string, count, nanos uint64) {
			figure := &apiv1.CallFigure{Name: name, Count: count, Nanos: nanos}
			diagReply.Callers = append(diagReply.Callers, figure)
		})
	}
	byName := func(a, b *apiv1.CallFigure) int { return strings.Compare(a.GetName(), b.GetName()) }
	slices.SortFunc(diagReply.Methods, byName)
	slices.SortFunc(diagReply.Callers, byName)
	return diagReply
}

// diagSince is what has happened between two times. The longest pass is that since the
// controller began, since it is not known when it was.
func diagSince(base, now *apiv1.DiagReply) *apiv1.DiagReply {
	diagReply := proto.CloneOf(now)
	diagReply.StartedAt = base.GetNow()
	diagReply.JobsSubmitted -= base.GetJobsSubmitted()
	diagReply.JobsStarted -= base.GetJobsStarted()
	diagReply.JobsBackfilled -= base.GetJobsBackfilled()
	diagReply.JobsCompleted -= base.GetJobsCompleted()
	diagReply.JobsCancelled -= base.GetJobsCancelled()
	diagReply.JobsFailed -= base.GetJobsFailed()
	diagReply.Passes -= base.GetPasses()
	diagReply.QuickPasses -= base.GetQuickPasses()
	diagReply.PassTotal -= base.GetPassTotal()
	diagReply.DroppedProposals -= base.GetDroppedProposals()
	diagReply.StaleReports -= base.GetStaleReports()
	diagReply.Methods = callsSince(base.GetMethods(), diagReply.GetMethods())
	diagReply.Callers = callsSince(base.GetCallers(), diagReply.GetCallers())
	return diagReply
}

// callsSince takes away what was counted before, and leaves out what was not called since.
func callsSince(base, now []*apiv1.CallFigure) []*apiv1.CallFigure {
	before := map[string]*apiv1.CallFigure{}
	for _, figure := range base {
		before[figure.GetName()] = figure
	}
	var callFigures []*apiv1.CallFigure
	for _, figure := range now {
		figure.Count -= before[figure.GetName()].GetCount()
		figure.Nanos -= before[figure.GetName()].GetNanos()
		if figure.GetCount() > 0 {
			callFigures = append(callFigures, figure)
		}
	}
	return callFigures
}

// Ping tells that the controller is there.
func (s *controllerCalls) Ping(context.Context, *apiv1.PingRequest) (*apiv1.PingReply, error) {
	cluster := s.C.View().State
	pingReply := &apiv1.PingReply{
		Host:        s.C.deps.Settings.Host,
		Role:        "leader",
		Version:     s.C.deps.Settings.Version,
		Now:         int64(s.C.deps.Clock.Now()),
		Seq:         cluster.Seq,
		Cluster:     cluster.ClusterName,
		ClusterUuid: cluster.UUID[:],
	}
	for i := range cluster.Policy.Clusters {
		pingReply.Clusters = append(
			pingReply.Clusters, wire.KnownCluster(&cluster.Policy.Clusters[i]),
		)
	}
	return pingReply, nil
}

// Shutdown ends the controller; jobs go on.
func (s *controllerCalls) Shutdown(
	ctx context.Context,
	_ *apiv1.ShutdownRequest,
) (*apiv1.ShutdownReply, error) {
	actor, err := s.administratorCaller(ctx)
	if err != nil {
		return nil, err
	}
	if s.C.deps.Shutdown == nil {
		return nil, spec.Refuse(spec.CodeDisabled, "this controller is stopped by what started it")
	}
	s.C.deps.Logger.Info("a shutdown was asked for", "by", actor.Name)
	s.C.deps.Shutdown()
	return &apiv1.ShutdownReply{}, nil
}

// Why explains a job.
func (s *jobCalls) Why(ctx context.Context, req *apiv1.WhyRequest) (*apiv1.WhyReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	sees := s.visibleTo(caller)
	list, err := visibleTargets(view.State, req.GetJob(), sees)
	if err != nil {
		return nil, err
	}
	job := view.State.Job(list[0].UID)
	show := wire.NewShower(view, now, true)
	whyReply := &apiv1.WhyReply{
		Job:       s.showJob(show, view, job),
		Reason:    wire.Reason(job.Reason),
		Now:       int64(now),
		Seq:       view.State.Seq,
		GpuFaults: wire.FaultsOf(view.State, job),
	}
	if job.State != spec.Pending {
		return whyReply, nil
	}
	explanation, err := explain.Job(view, job, now)
	if err != nil {
		return nil, err
	}
	whyReply.PlannedStart = whyReply.Job.PlannedStart
	whyReply.PlannedNodes = whyReply.Job.PlannedNodes
	whyReply.PlannedEstimate = whyReply.Job.PlannedEstimate
	whyReply.Ahead, whyReply.Guarantee = int32(explanation.Ahead), explanation.Guarantee
	whyReply.Prediction, whyReply.PromisedStart = predictionOf(view.State, job), int64(job.Promised)
	whyReply.EarlyStart = int64(explanation.Early)
	whyReply.Promises = promisesOf(view.State, job.Partition())
	if explanation.Free != 0 && whyReply.Reason.Until == 0 {
		whyReply.Reason.Until = int64(explanation.Free)
	}
	if s.private(privateNodes, caller) {
		explanation.Nodes, explanation.Holds = nil, nil
	}
	for i := range explanation.Holds {
		hold := &explanation.Holds[i]
		whyReply.Holds = append(
			whyReply.Holds,
			&apiv1.WaitedHold{
				Node:     hold.Node,
				Name:     hold.Name(),
				MilliCpu: hold.MilliCPU,
				Mem:      hold.Mem,
				Gpus:     uint32(len(hold.GPUs)),
				Since:    int64(hold.Since),
			},
		)
	}
	for _, verdict := range explanation.Nodes {
		whyReply.Nodes = append(
			whyReply.Nodes,
			&apiv1.NodeVerdict{
				Nodes: hostlist.FoldSorted(verdict.Names),
				Count: uint32(len(verdict.Names)),
				Why:   verdict.Why,
				Free:  verdict.Free,
				Need:  verdict.Need,
			},
		)
	}
	for _, uid := range explanation.Blockers {
		if b := view.State.Job(uid); b != nil && sees(b) {
			whyReply.Blockers = append(whyReply.Blockers, show.Job(b))
		}
	}
	for _, advice := range explanation.Advice {
		whyReply.Advice = append(
			whyReply.Advice,
			&apiv1.Advice{
				Change: advice.Change, Start: int64(advice.Start), Gain: int64(advice.Gain),
			},
		)
	}
	return whyReply, nil
}

// promisesOf counts how the promised starts of a partition were kept; nil if none has come due.
func promisesOf(cluster *state.State, partition string) *apiv1.PromisesKept {
	for i := range cluster.Totals.Parts {
		if cluster.Totals.Parts[i].Name != partition {
			continue
		}
		promises := &cluster.Totals.Parts[i].Promises
		if promises.Kept+promises.Broken == 0 {
			return nil
		}
		return &apiv1.PromisesKept{
			Partition: partition,
			Kept:      promises.Kept,
			Broken:    promises.Broken,
			Late:      int64(promises.Late),
		}
	}
	return nil
}

// predictionOf says how long a job will probably run; nil where no similar runs of
// its user are known.
func predictionOf(cluster *state.State, job *state.Job) *apiv1.RunPrediction {
	limit := job.Spec.Time.Limit
	if partition := cluster.Parts.Find(job.Partition()); partition != nil {
		limit = partition.Spec.TimeLimit(limit)
	}
	prediction := predict.Run(cluster, job, limit)
	if !prediction.Known() {
		return nil
	}
	return &apiv1.RunPrediction{
		Length:   int64(prediction.Length),
		Shortest: int64(prediction.Shortest),
		Longest:  int64(prediction.Longest),
		Runs:     uint32(prediction.Samples),
		Similar:  prediction.Level.String(),
	}
}
