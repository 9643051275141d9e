package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a bug that somebody could have written: one text of a file of the
// repository replaced by another. What the simulator does not have is found by
// tests of the scheduler.
type mutant struct {
	name, file, old, new string
	// tests of scheduler that must find it, or of another folder that stands before
	// them; empty: the simulator does.
	tests string
}

// mutants are bugs that must be found. A row whose text is not in its file
// exactly once is stale and fails the drill.
//
//muster:table one row for each planted bug
func mutants() []mutant {
	return []mutant{
		{"a report of an older attempt is accepted", "scheduler/decide/jobs.go",
			"return job.Attempt == report.Run.Attempt && job.Epoch == report.Epoch", "return true", ""},
		{"a proposal is not checked against what is free now", "scheduler/decide/starts.go",
			"if !available(node, allocation, start.Alloc.Share, d.t.Config.Sched.Memory) {", "if node == nil {", ""},
		{"a node that was drained meanwhile gets a job", "scheduler/decide/starts.go",
			"node == nil || node.Spec.Name != allocation.Name || !node.Usable() {", "node == nil || node.Spec.Name != allocation.Name {", ""},
		{"one task too many of a throttled array runs", "scheduler/eligible/array.go",
			"most > 0 && array.Running >= most {", "most > 0 && array.Running > most {", ""},
		{"a job that was held meanwhile starts", "scheduler/decide/starts.go",
			"!job.IsUnheld() || job.Begin > d.t.Now {\n\t\treturn false\n\t}\n\tif eligible.FencingWait(",
			"job.State != spec.Pending || job.Begin > d.t.Now {\n\t\treturn false\n\t}\n\tif eligible.FencingWait(", ""},
		{"afterok takes a failed job for a good one", "scheduler/eligible/dependency.go",
			"ok := target.State == spec.Completed && target.Exit.OK()", "ok := target.State.Terminal()", ""},
		{"afterany does not wait for the end", "scheduler/eligible/dependency.go",
			"\tcase spec.AfterAny:\n\t\tif done {\n\t\t\treturn Satisfied, 0\n\t\t}", "\tcase spec.AfterAny:\n\t\treturn Satisfied, 0", ""},
		{"a running job is not told to end when it is cancelled", "scheduler/decide/jobs.go",
			"\treturn d.RequestEnd(j, event.EndCancel, false, spec.NotHeld, \"\")", "\treturn nil", ""},
		{"time limits are not enforced", "scheduler/decide/tick.go",
			"case !job.Configuring() && end != spec.FarFuture && end.Add(d.graceOf(job)) <= d.t.Now:", "case end == 0:", ""},
		{"a reboot does not take the jobs of a node away", "scheduler/decide/nodes.go",
			"rebooted := node.Inv != nil && node.Inv.BootID != command.Inventory.BootID", "rebooted := false", ""},
		{"the verdict does not give licences back", "ledger/state/apply_end.go",
			"\t\ts.Licenses = addCounts(s.Licenses, job.Alloc.Licenses, -1)\n\t}\n\ts.tally(job, func(array *Array) {\n\t\tif wasActive {\n\t\t\tarray.Running--\n\t\t\treturn", "\t}\n\ts.tally(job, func(array *Array) {\n\t\tif wasActive {\n\t\t\tarray.Running--\n\t\t\treturn", ""},
		{"a node forgets too few of its jobs", "ledger/state/apply_end.go",
			"\tnode.give(allocation, job.Alloc.Share > 0, job.Yields)\n", "\t_ = allocation\n", ""},
		{"a suspended job goes on though others have its CPUs", "scheduler/decide/jobs.go", "d.t.InItsPlace(job) != \"\" ||", "", ""},
		{"a suspended job that ends takes the CPUs of others along", "ledger/state/apply_node.go", "\tcase yields:\n\t\tgone = nil\n", "", ""},
		{"a snapshot loses who holds a job", "ledger/state/job.go",
			"Hold     spec.Hold     `cbor:\"10,keyasint,omitempty\"`", "Hold     spec.Hold     `cbor:\"-\"`", ""},
		{"a requeued job starts as the attempt that it was", "scheduler/commit/start.go",
			"Attempt: job.Attempt +\n\t\t\t1, Alloc", "Attempt: max(job.Attempt, 1), Alloc", ""},
		{"the end of one node of several counts as the end of all", "scheduler/commit/end.go",
			"if !job.Done.Has(i) && job.Alloc.Nodes[i].Name != node {", "if i < 0 {", "TestScripts|TestRandomWorlds"},
		{"an account takes back more than it is guaranteed", "scheduler/guarantee/guarantee.go",
			"\t\tmore := n\n", "\t\tmore := int64(0)\n", ""},
		{"a partition that is down starts jobs", "scheduler/eligible/partition.go",
			"case partition.Spec.State == spec.PartitionDown:", "case partition.Spec.State == spec.PartitionDown && false:", ""},
		{"a node with jobs is powered down as if it were idle", "scheduler/decide/power.go",
			"times.IdleAfter > 0 && node.Unused() && node.Inv", "times.IdleAfter > 0 && node.Inv", ""},
		{"a component is preempted without the others", "scheduler/commit/het.go",
			"(!job.Het.Leads() && !e.Requeue && e.Cause != event.EndPreempt)", "(!job.Het.Leads() && !e.Requeue)", "TestScripts/het_preempt_cancel"},
		{"the components of a heterogeneous job start where one of them cannot", "scheduler/pass/het.go",
			"\t\tcase reason == nil:\n\t\t\treason = p.refuseTogether(parts)\n", "\t\tcase reason == nil:\n\t\t\tparts = parts[:1]\n", "TestHetJobs"},
		{"what is freed for a job is anybody's", "scheduler/pass/claims.go",
			"\tp.placeClaimants(list)\n", "\tlist = nil\n", "TestPreemption|TestScripts/preempt_claim"},
		{"the cores of a reservation are anybody's", "scheduler/timeline/reservation.go",
			"CPU: reservation.CoresOf(node.Spec.Name) * max(node.Spec.ThreadsPerCore, 1)", "CPU: 0", "TestRandomWorlds|TestScripts/reservation_cores"},
		{"the GPUs of a reservation are anybody's", "scheduler/timeline/reservation.go",
			"GPU: reservation.GPUsOf(node.Spec.Name),\n\t}", "GPU: 0}", "TestScripts/reservation_gpus"},
		{"a job in several QOS is held to the limits of the best one only", "scheduler/eligible/qos.go",
			"\tif name == \"\" || job.Spec.QOS == name {\n\t\treturn job\n", "\tif name != \"\\x00\" {\n\t\treturn job\n", "TestScripts/several_qos"},
		{"a node under a job is deleted", "scheduler/decide/dynamic.go",
			"case len(node.Jobs) > 0:", "case len(node.Jobs) < 0:", "TestScripts/dynamic_nodes"},
		{"a hold goes because its pod was not seen", "copilot/copilot.go",
			"return now == nil || now.UID != release.Hold || now.Over", "return true", ""},
		{"a hold goes while its pod may still be let through to it", "copilot/copilot.go",
			"case here != \"\" && h.node != here:", "case h.node != here:", ""},
		{"a pod's CPUs are those of a job", "ledger/state/apply_foreign.go",
			"taken := s.cpusOfJobs(node).Or(node.HeldCPU)", "taken := node.HeldCPU", ""},
		{"a pod's GPU is that of a job", "scheduler/decide/foreign.go",
			"< command.GPUs && node.FreeWhole(i) &&", "< command.GPUs &&", ""},
		{"a hold gives back CPUs that other pods need", "scheduler/decide/foreign.go",
			"spec.WholeCPUs(node.HeldMilli()-node.Holds[at].MilliCPU, d.coreStep(node))", "spec.WholeCPUs(node.HeldMilli()-node.Holds[at].MilliCPU-1000, d.coreStep(node))", ""},
		{"a node under a pod is deleted", "scheduler/decide/dynamic.go",
			"case len(node.Holds) > 0:", "case len(node.Holds) < 0:", ""},
		{"a job of pods is over because one was not seen", "copilot/podjobs.go",
			"over := Over{Job: job, Why: reason, Confirm: are.unseen}", "over := Over{Job: job, Why: reason}", ""},
		{"pods are deleted because another of the gang was not seen", "copilot/podjobs.go",
			"gone := are.unseen\n", "gone := map[string]string(nil)\n", ""},
		{"pods are deleted because another of the gang has ended well and was not seen", "copilot/podjobs.go",
			"return now == nil || now.UID != uid\n", "return now == nil || now.UID != uid || now.Over\n", ""},
		{"the pods of a gang are not kept", "copilot/podjobs.go",
			"case len(job.Places) > 1 && !pod.Kept:", "case len(job.Places) > 99:", ""},
		{"a pod of a gang that has ended well and was removed is lost", "copilot/podjobs.go",
			"return !p.Deleting || p.End.Ended <= p.Deleted", "return !p.Deleting", ""},
		{"a pod is let go of while its gang runs", "copilot/podjobs.go",
			"if pod.Kept && !r.taken[pod.UID] && (pod.Over || pod.Gone) {", "if pod.Kept && (pod.Over || pod.Gone) {", ""},
		{"connector: a pod names whose jobs it is of", "kube/executor/jobs.go",
			"s.fail(\"%s is not for pods to say: it is for their namespace or PriorityClass\", key)", "_ = key", "kube/executor TestUnsupportedPods"},
		{"connector: a pod that runs is taken for one that is gone", "kube/executor/jobs.go",
			"grace != nil && *grace == 0 &&", "grace != nil &&", "kube/executor TestKeptPod"},
		{"connector: a pod seems to be deleted when its grace is over", "kube/executor/jobs.go",
			"at -= spec.Instant(spec.Span(*grace) * spec.Second)", "_ = *grace", "kube/executor TestKeptPod"},
		{"connector: the last container that failed gives the exit", "kube/executor/jobs.go",
			"end.FinishedAt.Before(&failed.FinishedAt)", "!end.FinishedAt.Before(&failed.FinishedAt)", "kube/executor TestEndOfPod"},
		{"connector: a volume is reached from every node", "kube/executor/jobs.go",
			"if reachable[name] {", "if reachable[name] || true {", "kube/executor TestRequestOfPod"},
		{"connector: a pod with host ports is scheduled", "kube/executor/jobs.go",
			"if port.HostPort != 0 && !p.Spec.HostNetwork {", "if port.HostPort < 0 {", "kube/executor TestUnsupportedPods"},
		{"connector: a Node that is not ready admits pods", "kube/executor/pods.go",
			"node.DeletionTimestamp != nil || !ready(node)", "node.DeletionTimestamp != nil", "kube/executor TestAdmits"},
		{"connector: a cordoned Node admits pods", "kube/executor/pods.go",
			"node.Spec.Unschedulable && !toleratesCordon(p)", "node.Spec.Unschedulable && false", "kube/executor TestAdmits"},
		{"connector: a pod at somebody else's gate gets a hold", "kube/executor/pods.go",
			"out.Gated = len(gates) == 1 && gates[0].Name == Gate", "out.Gated = len(gates) >= 1", "kube/executor TestPodOf"},
		{"connector: the pin of a pod is an alternative to what it requires", "kube/executor/pods.go",
			"out[i].MatchFields = append(out[i].MatchFields, pin)", "out[i].MatchFields = nil", "kube/executor TestPin"},
		{"connector: GPUs of several types are one claim", "kube/claims/claims.go",
			"if len(types) > 1 {", "if len(types) > 9 {", "kube/claims TestOf"},
		{"connector: a refusal of one controller is asked of the next", "kube/muster/client.go",
			"case !errors.Is(err, ErrAway):\n\t\t\treturn err\n", "case false:\n", "kube/muster TestLead"},
		{"connector: its token opens one more method", "internal/transport/authz/table.go",
			"{\"Cluster/ListHolds\", forOperators(), \"\"}", "{\"Cluster/ListHolds\", forConnectors(), \"\"}", "kube/muster TestLeastPrivilege"},
		{"the silence of a node ends its pods in the books", "scheduler/decide/fencing.go",
			"if !job.Spec.Runner().EndsWithNode() && !job.Configuring() {", "if job.Configuring() && false {", ""},
		{"a pod that is submitted again is another job", "scheduler/decide/pods.go",
			"\t\t\tif job == nil {\n", "\t\t\tif job == nil || !job.State.Terminal() {\n", ""},
		{"a gang with a larger leader is not one job for those who bind it", "copilot/nodes.go",
			"if job.Het != nil {", "if job.Het != nil && false {", ""},
		{"the pods of a node have the same devices", "spec/pods.go",
			"from, to := k*len(node.GPUs)/tasks, (k+1)*len(node.GPUs)/tasks", "from, to := 0*k, len(node.GPUs)/tasks", ""},
		{"a job of pods is forgotten while they are there", "scheduler/decide/tick.go",
			"podsLeft := job.Spec.Pods != nil && !job.PodsOver", "podsLeft := job.Spec.Pods != nil && job.PodsOver && false", ""},
		{"a job starts again while its earlier attempt may live", "scheduler/eligible/fencing.go",
			"if job.Unfenced == 0 || cluster.Config.RequeueUnfenced {", "if job.Unfenced < 99 || cluster.Config.RequeueUnfenced {", ""},
		{"a run on a silent node counts as over", "scheduler/commit/end.go",
			"Lost: lost, Unfenced: done.Unfenced,", "Lost: lost,", ""},
		{"a node takes jobs beside a run that was given up there", "ledger/state/node.go",
			"\tif len(n.Unfenced) > 0 {\n", "\tif len(n.Unfenced) > 99 {\n", ""},
		{"a node that came back counts as fenced", "scheduler/decide/nodes.go",
			"if before != \"\" && before != command.Inventory.BootID {", "if before != \"\" {", ""},
		{"an answer to a heartbeat lengthens the leases of runs that were given up", "nodeagent/plan/lease.go",
			"if l.Seq > newest.After {", "if l.Seq > 0 {", ""},
		{"the controller believes in the end of a lease without slack", "scheduler/decide/fencing.go",
			"unanswered >= spec.LeaseBound(debt.Lease)", "unanswered >= debt.Lease", ""},
		{"a fence program that failed counts as one that did its work", "scheduler/decide/fencing.go",
			"if command.Failed == \"\" {", "if command.Failed != \"-\" {", ""},
		{"a batch counts as chosen when it is on the leader's own disk", "sim/controller.go",
			"count := counts[len(counts)-c.w.group.majority()]", "count := counts[len(counts)-1]", ""},
		{"a leader counts copies of an earlier term's entries", "sim/controller.go",
			"if count > c.chosen && c.m.log[count-1].term == c.term {", "if count > c.chosen {", "sim TestOlderEntriesAreChosenWithOwn"},
		{"a snapshot is installed over newer state", "sim/group.go",
			"case same == len(message.entries):", "case same == len(message.entries) && message.snap == nil:", "sim TestSnapshotIsTakenOnlyWhereItIsNeeded"},
		{"a member answers before its disk has what it was sent", "sim/group.go",
			"\tm.disk.write(func() { m.keepEntries(message) })\n", "\tm.answerAppend(message.from, message.term, len(message.entries))\n\tm.disk.write(func() { m.keepEntries(message) })\n", ""},
		{"a leader acknowledges what its disk has not taken", "sim/controller.go",
			"\tc.m.disk.write(func() { c.keepBatch(last) })\n", "\tc.m.disk.write(func() { c.keepBatch(last) })\n\tfor _, b := range c.flying {\n\t\tc.orderEffects(b)\n\t}\n", ""},
		{"a leader whose disk hangs leads on", "sim/controller.go",
			"c.w.now.Sub(c.m.disk.since) > longestWrite {", "c.w.now.Sub(c.m.disk.since) > spec.Hour {", "sim TestALeaderWhoseDiskHangsGivesUp"},
		{"a member votes for one that lacks what was chosen", "sim/group.go",
			"return his > mine || (his == mine && len(candidate.log) >= len(m.log))", "return his >= mine || candidate != nil", ""},
		{"a leader that was overtaken still starts jobs", "sim/controller.go",
			"\tc.replicate()\n\tc.advance()\n}\n\n// noteCopy", "\tc.replicate()\n\tc.advance()\n\tfor _, b := range c.waiting {\n\t\tc.orderEffects(b)\n\t}\n}\n\n// noteCopy", ""},
		{"a leader that was overtaken lengthens leases", "sim/fencing.go",
			"if c.w.profile.Fencing != fencesByLease || !c.confirmsLead() {", "if c.w.profile.Fencing != fencesByLease {", "sim TestOvertakenLeaderLengthensNoLease"},
		{"what goes beyond floors is not shared by weight", "scheduler/pass/class.go",
			"case class.share != other.share && class.rank>>32 == other.rank>>32:", "case class.share < other.share && class.share > other.share:", "TestShares"},
		{"a GPU of which somebody has a part is given whole", "scheduler/decide/starts.go",
			"return node.FreeWhole(i)", "return !node.UsedGPU.Has(i)", "TestWhatWasTakenMeanwhileIsNotGivenAgain"},
		{"more parts of a GPU are given than it has", "scheduler/decide/starts.go",
			"if !node.TakesShare(&allocation.Shares[i]) {", "if i < 0 {", "TestWhatWasTakenMeanwhileIsNotGivenAgain"},
		{"a node that was reserved meanwhile gets a job", "scheduler/decide/starts.go",
			"if !view.Clear(allocation.ID, d.t.Now, d.t.Now.Add(start.Limit)) ||\n\t\t\t!part", "if !part", "TestWhatWasTakenMeanwhileIsNotGivenAgain"},
		{"licences that were taken meanwhile are given again", "scheduler/decide/starts.go",
			"return licenses == nil && d.", "return (licenses == nil || true) && d.", "TestWhatWasTakenMeanwhileIsNotGivenAgain"},
		{"the limits of a QOS are not looked at again when a job starts", "scheduler/decide/starts.go",
			"bound.Before(spec.TRES{}, start.Limit) != nil ||\n\t\tbound.After(start.Alloc, start.Limit) != nil", "bound.Before(spec.TRES{}, 0) != nil", "TestWhatWasTakenMeanwhileIsNotGivenAgain"},
		{"of a heterogeneous job the components start that still can", "scheduler/decide/starts.go",
			"\t\t\td.res.Stale += len(list)\n\t\t\treturn nil\n", "\t\t\tlist = list[:i]\n\t\t\tbreak\n", "TestWhatWasTakenMeanwhileIsNotGivenAgain"},
		{"who was to make room and was gone at once is back when the other starts elsewhere", "scheduler/pass/pass.go",
			" && !p.wasReplaced(&pr)", "", "TestScripts/preempt_booting"},
		{"GPUs of any type are given for one type", "scheduler/place/devices.go",
			"(count.Type == \"\" || node.GPUs[i].Type == count.Type) &&\n\t\t\t!hasDevice(taken, node.GPUs[i].UUID)", "!hasDevice(taken, node.GPUs[i].UUID)", "TestRandomWorlds"},
		{"several GPUs of a node are in parts where only one may be", "scheduler/place/share.go",
			"if !shape.Kinds[at].One {", "if at >= 0 {", "TestPlannedStartsAreEarliest|TestRandomWorlds/parts"},
		{"a job runs into a reservation that has not begun when it starts", "scheduler/timeline/reservation.go",
			"return w.From < to && from < w.To },\n\t\t\t)\n\t})\n}\n\n// Inside", "return w.From <= from && from < w.To },\n\t\t\t)\n\t})\n}\n\n// Inside", "TestWhatWasTakenMeanwhileIsNotGivenAgain"},
		{"a prediction is longer than the time limit", "scheduler/predict/predict.go",
			"min(max(similar[rank], spec.Second), request.Limit)", "max(similar[rank], spec.Second)", "scheduler/predict TestFrom"},
		{"the oldest similar runs decide, not the newest", "scheduler/predict/predict.go",
			"lengths = append(lengths, past[i].Length)", "lengths = append(lengths, past[len(past)-1-i].Length)", "scheduler/predict TestFrom"},
		{"a prediction is remembered though its user has had another run", "scheduler/predict/predict.go",
			"request == m.request && sameRuns(past, m.past)", "request == m.request", "scheduler/predict TestMemo"},
		{"gaps are filled by predictions however long the first job has waited", "scheduler/pass/predicted.go",
			"p.now.Sub(job.Eligible) > maxPredictedWait", "p.now.Sub(job.Eligible) > 99*maxPredictedWait", "sim/replay TestFirmJobsAreNotDelayedForever"},
		{"running jobs count as gone when they were predicted to end", "scheduler/pass/pass.go",
			"Limit:    run.limit,", "Limit:    run.planned,", "sim/replay TestPredictionsEndNoJob"},
	}
}

// Each text that a bug is planted in is there once, and so the drill is not
// stale when somebody runs it.
func TestMutantsAreCurrent(t *testing.T) {
	for _, m := range mutants() {
		text, err := os.ReadFile(filepath.Join("..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: %s has the text %q %d times", m.name, m.file, m.old, n)
		}
	}
}

// TestMutants plants each bug in turn, compiles the simulator with it, or the
// scheduler's tests, and runs seeds until one fails. It takes minutes: `make mutants` runs it.
func TestMutants(t *testing.T) {
	if os.Getenv("MUSTER_MUTANTS") == "" {
		t.Skip("set MUSTER_MUTANTS=1, or run make mutants")
	}
	only := os.Getenv("MUSTER_MUTANT")
	for _, m := range mutants() {
		if only != "" && !strings.Contains(m.name, only) {
			continue
		}
		t.Run(m.name, func(t *testing.T) { m.plant(t) })
	}
}

func (m *mutant) plant(t *testing.T) {
	file, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has the text %q %d times: the row is stale", m.file, m.old, n)
	}
	dir := t.TempDir()
	bad, overlay := filepath.Join(dir, "bad.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(bad, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	over, err := json.Marshal(map[string]map[string]string{"Replace": {file: bad}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, over, 0o600); err != nil {
		t.Fatal(err)
	}
	prog, pkg, tests := filepath.Join(dir, "drill.test"), "../scheduler", m.tests
	folder, named, elsewhere := strings.Cut(tests, " ")
	switch {
	case tests == "":
		pkg, tests = ".", "^TestSeeds$"
	case elsewhere:
		pkg, tests = "../"+folder, named
	}
	build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", prog, pkg)
	if inner, ok := strings.CutPrefix(pkg, "../kube/"); ok { // a module of its own
		build = exec.Command("go", "test", "-c", "-overlay", overlay, "-o", prog, "./"+inner)
		build.Dir = "../kube"
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("it does not compile: %v\n%s", err, out)
	}
	run := exec.Command(prog, "-test.run", tests, "-test.count", "1", "-test.short")
	run.Dir = pkg
	run.Env = append(os.Environ(), "MUSTER_SIM_SEEDS=150", "MUSTER_SIM_NOSHRINK=1")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("it is not found:\n%s", out)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, ": seed ") || m.tests != "" && strings.Contains(line, "--- FAIL: ") {
			t.Log("found:", strings.TrimSpace(line))
			return
		}
	}
	t.Errorf("the simulator failed, but named no seed:\n%s", out)
}
