package wire

import (
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// EventTopic is what an event is about. It decides who may see the event: whoever
// may see the same by the commands that show the present.
type EventTopic uint8

// The topics.
const (
	TopicSecret      EventTopic = iota // tokens and certificates: administrators
	TopicCluster                       // the cluster as a whole: everybody
	TopicJob                           // a job: whoever may see the job
	TopicNode                          // whoever may see nodes
	TopicPartition                     // whoever may see partitions
	TopicReservation                   // whoever may see the reservation
	TopicUse                           // the use of all: whoever may see use
	TopicPolicy                        // changes of accounts, QOS and limits: operators
	NumTopics                          // how many topics there are
)

// TopicOf is the topic of a kind of event. A kind that is not named here is for
// administrators.
//
//muster:table one line for each kind
func TopicOf(kind event.Kind) EventTopic {
	switch kind {
	case event.KindClusterCreated, event.KindClusterVersionRaised, event.KindConfigAdopted, event.KindEpochBegan:
		return TopicCluster
	case event.KindTokenIssued, event.KindTokenSpent, event.KindCertificateIssued, event.KindCertificateRevoked,
		event.KindCertificatesDropped, event.KindHistoryLost, event.KindUserTokenIssued, event.KindUserTokensEnded:
		return TopicSecret
	case event.KindQOSPut, event.KindQOSRemoved, event.KindAccountPut, event.KindAccountRemoved, event.KindUserPut, event.KindUserRemoved,
		event.KindAssociationPut, event.KindAssociationRemoved, event.KindWCKeyPut, event.KindWCKeyRemoved,
		event.KindResourcePut, event.KindResourceRemoved, event.KindUsageCleared,
		event.KindClusterPut, event.KindClusterRemoved:
		return TopicPolicy
	case event.KindCrontabPut, event.KindTriggerPut, event.KindTriggerRemoved: // programs are their user's affair, as scripts are
		return TopicSecret
	case event.KindUsageAged, event.KindSharesNoted:
		return TopicUse
	case event.KindReservationPut, event.KindReservationRemoved:
		return TopicReservation
	case event.KindPartitionPut, event.KindPartitionAdded, event.KindPartitionGone:
		return TopicPartition
	case event.KindNodeRegistered, event.KindNodeStateSet, event.KindNodeLost, event.KindNodeReturned, event.KindFenceTried,
		event.KindGPUFaulted, event.KindNodePowered, event.KindNodeReboot, event.KindNodeAdded, event.KindNodeDeleted,
		event.KindNodeChanged, event.KindForeignHoldTaken, event.KindForeignHoldReleased:
		return TopicNode
	case event.KindJobSubmitted, event.KindJobEligible, event.KindReasonsChanged, event.KindJobHeld, event.KindJobReleased,
		event.KindJobUpdated, event.KindArrayTaskSplit, event.KindJobStarted, event.KindJobEndRequested, event.KindJobSignalled,
		event.KindJobEnded, event.KindJobNodeDone, event.KindJobRequeued, event.KindJobPurged, event.KindStepStarted,
		event.KindStepEnded, event.KindStepNodeDone, event.KindStepEndRequested, event.KindStepSignalled, event.KindJobsAccruing,
		event.KindJobPrepared, event.KindImagePinned, event.KindJobNoted, event.KindJobEpilogOver, event.KindJobPodsOver, event.KindJobSuspended, event.KindJobResumed, event.KindJobReady,
		event.KindRunFenced, event.KindJobShrunk, event.KindStepUpdated:
		return TopicJob
	}
	return TopicSecret
}

// EventPart is an event, or what it says of one job where it is about several.
type EventPart struct {
	Job         spec.JobUID // 0 unless the topic is TopicJob
	Nodes       []string    // that it names, in order
	Reservation string
	Fields      []*apiv1.EventField
}

// EventParts takes an event apart. name gives the name of a job that is mentioned
// beside the one that the event is about; it is empty for one that the reader
// must not know of. Only what is listed here leaves the controller: hashes of
// scripts, the numbers of requests and tickets do not.
func EventParts(e event.Event, name func(spec.JobUID) string) []EventPart {
	switch TopicOf(e.Kind()) {
	case TopicJob:
		return jobParts(e, name)
	case TopicNode:
		return []EventPart{nodePart(e, name)}
	case TopicSecret,
		TopicCluster,
		TopicPartition,
		TopicReservation,
		TopicUse,
		TopicPolicy,
		NumTopics:
	}
	return []EventPart{clusterPart(e)}
}

// facts collects the fields of an event. What is zero is left out.
type facts []*apiv1.EventField

func (f *facts) text(name, value string) {
	if value != "" {
		*f = append(*f, &apiv1.EventField{Name: name, Value: &apiv1.EventField_Text{Text: value}})
	}
}

func (f *facts) addList(name string, values []string) { f.text(name, strings.Join(values, ",")) }

func (f *facts) addNumber(name string, n int64) {
	if n != 0 {
		*f = append(*f, &apiv1.EventField{Name: name, Value: &apiv1.EventField_Number{Number: n}})
	}
}

func (f *facts) addTime(name string, at spec.Instant) {
	if at != 0 {
		*f = append(
			*f,
			&apiv1.EventField{Name: name, Value: &apiv1.EventField_Time{Time: int64(at)}},
		)
	}
}

func (f *facts) addSpan(name string, d spec.Span) {
	if d != 0 {
		*f = append(*f, &apiv1.EventField{Name: name, Value: &apiv1.EventField_Span{Span: Span(d)}})
	}
}

func (f *facts) addTruth(name string, on bool) {
	if on {
		*f = append(*f, &apiv1.EventField{Name: name, Value: &apiv1.EventField_Yes{Yes: true}})
	}
}

// addExit is how a process ended, as Slurm prints it.
func (f *facts) addExit(name string, status spec.ExitStatus) {
	f.text(name, strconv.Itoa(int(status.Code))+":"+strconv.Itoa(int(status.Signal)))
}

func (f *facts) addReason(reason spec.Reason) {
	if reason.Code == "" || reason.Code == spec.ReasonNone {
		return
	}
	f.text("reason", reason.String())
	f.text("limited", reason.TRES)
	f.text("subject", reason.Subject)
	f.addNumber("limit", reason.Limit)
	f.addNumber("used", reason.Used)
	f.addNumber("asked", reason.Asked)
	f.addTime("until", reason.Until)
}

// addUsage is what processes have used. GPUs are left to the accounting commands.
func (f *facts) addUsage(usage *spec.Usage) {
	f.addSpan("cpu_time", usage.UserCPU+usage.SystemCPU)
	f.addNumber("peak_rss_bytes", usage.PeakRSS)
	f.addTruth("oom_killed", usage.OOMKilled)
}

// addResult is how a script or step ended on a node.
func (f *facts) addResult(result *event.StepResult) {
	if result == nil {
		return
	}
	if result.Unknown {
		f.addTruth("exit_unknown", true)
	} else {
		f.addExit("exit", result.Exit)
	}
	f.text("detail", result.Detail)
}

// closePart closes the collection.
func (f *facts) closePart(job spec.JobUID, nodes ...string) EventPart {
	return EventPart{Job: job, Nodes: nodes, Fields: *f}
}

// jobParts takes an event about jobs apart.
//
//muster:table one case for each kind
func jobParts(e event.Event, name func(spec.JobUID) string) []EventPart {
	f := facts{}
	switch e := e.(type) {
	case *event.JobSubmitted:
		f.addSpec(e.Spec)
		f.text("tres", e.Req.String())
		f.addTime("eligible", e.Eligible)
		f.addReason(e.Reason)
		if e.Het.Follows() {
			f.text("component_of", name(e.Het.Leader))
		}
		f.text("job_submit", strings.Join(e.ByScript, "; "))
		if e.Adopted != nil {
			f.addTime("adopted_from", e.Adopted.At)
		}
		return []EventPart{f.closePart(e.UID)}
	case *event.JobEligible:
		return []EventPart{f.closePart(e.UID)}
	case *event.JobsAccruing:
		return onePartEach(e.UIDs)
	case *event.ReasonsChanged:
		parts := make([]EventPart, len(e.Jobs))
		for i := range e.Jobs {
			of := facts{}
			of.addReason(e.Jobs[i].Reason)
			of.addTime("promised_start", e.Jobs[i].Promise)
			if blocker := e.Jobs[i].Reason.Blocker; blocker != 0 {
				of.text("blocker", name(blocker))
			}
			parts[i] = of.closePart(e.Jobs[i].UID)
		}
		return parts
	case *event.JobHeld:
		f.text("by", holderWord(e.By))
		return []EventPart{f.closePart(e.UID)}
	case *event.JobReleased:
		return []EventPart{f.closePart(e.UID)}
	case *event.JobUpdated:
		f.addList("changed", e.Changed)
		f.text("job_submit", strings.Join(e.ByScript, "; "))
		f.addSpec(e.Spec)
		f.text("tres", e.Req.String())
		return []EventPart{f.closePart(e.UID)}
	case *event.ArrayTaskSplit:
		f.addNumber("task", e.Task)
		return []EventPart{f.closePart(e.UID)}
	case *event.JobStarted:
		return []EventPart{startPart(e)}
	case *event.JobEndRequested:
		f.addNumber("attempt", int64(e.Attempt))
		f.text("cause", endCauseWord(e.Cause))
		f.addTruth("requeue", e.Requeue)
		f.text("hold", holderWord(e.Hold))
		f.text("detail", e.Detail)
		f.text("for", other(e.For, name))
		f.addSpan("grace", e.Grace)
		return []EventPart{f.closePart(e.UID)}
	case *event.JobSignalled:
		f.addNumber("attempt", int64(e.Attempt))
		f.addNumber("signal", int64(e.Signal))
		f.text("scope", [...]string{"steps", "batch", "full"}[min(e.Scope, event.SignalFull)])
		f.addTruth("warning", e.Warning)
		return []EventPart{f.closePart(e.UID)}
	case *event.JobEnded:
		f.addNumber("attempt", int64(e.Attempt))
		f.text("state", e.State.String())
		f.addExit("exit", e.Exit)
		f.addExit("derived_exit", e.Derived)
		f.addReason(e.Reason)
		f.addTime("ended", e.At)
		return []EventPart{f.closePart(e.UID)}
	case *event.JobNodeDone:
		f.addNumber("attempt", int64(e.Attempt))
		f.addResult(e.Batch)
		f.addUsage(&e.Usage)
		f.addTruth("lost", e.Lost)
		f.addTruth("unfenced", e.Unfenced)
		f.addTime("fenced_by", e.FencedBy)
		return []EventPart{f.closePart(e.UID, e.Node)}
	case *event.JobRequeued:
		f.addNumber("attempt", int64(e.Attempt))
		if e.State != spec.Pending {
			f.text("state", e.State.String())
		}
		f.addExit("exit", e.Exit)
		f.addTime("begin", e.Begin)
		f.text("hold", holderWord(e.Hold))
		f.addReason(e.Reason)
		f.addTime("ended", e.At)
		return []EventPart{f.closePart(e.UID)}
	case *event.JobPurged:
		return onePartEach(e.UIDs)
	case *event.JobPrepared:
		f.addNumber("attempt", int64(e.Attempt))
		return []EventPart{f.closePart(e.UID)}
	case *event.ImagePinned:
		f.addNumber("attempt", int64(e.Attempt))
		f.text("node", e.Node)
		f.text("image", e.Image)
		f.text("digest", e.Digest)
		return []EventPart{f.closePart(e.UID)}
	case *event.JobNoted:
		for _, text := range [...]struct {
			name string
			text *string
		}{{"comment", e.Comment}, {"admin_comment", e.Admin}, {"system_comment", e.System}, {"extra", e.Extra}} {
			if text.text != nil {
				f.text(text.name, *text.text)
			}
		}
		if e.Derived != nil {
			f.addExit("derived", *e.Derived)
		}
		return []EventPart{f.closePart(e.UID)}
	case *event.JobPodsOver:
		f.addNumber("attempt", int64(e.Attempt))
		return []EventPart{f.closePart(e.UID)}
	case *event.JobEpilogOver:
		f.addNumber("attempt", int64(e.Attempt))
		return []EventPart{f.closePart(e.UID)}
	case *event.JobSuspended:
		f.addNumber("attempt", int64(e.Attempt))
		f.addTruth("yields_cpus", e.Yields)
		f.addTruth("resumes_by_itself", e.Auto)
		f.text("for", other(e.For, name))
		return []EventPart{f.closePart(e.UID)}
	case *event.JobResumed:
		f.addNumber("attempt", int64(e.Attempt))
		return []EventPart{f.closePart(e.UID)}
	case *event.JobReady:
		f.addNumber("attempt", int64(e.Attempt))
		return []EventPart{f.closePart(e.UID)}
	case *event.JobShrunk:
		f.addNumber("attempt", int64(e.Attempt))
		return []EventPart{f.closePart(e.UID, e.Nodes...)}
	case *event.RunFenced:
		f.addNumber("attempt", int64(e.Attempt))
		f.text("by", e.By.String())
		f.addResult(e.Batch)
		f.addUsage(&e.Usage)
		return []EventPart{f.closePart(e.UID, e.Node)}
	}
	return []EventPart{stepPart(e)}
}

// stepPart writes an event about a step.
func stepPart(e event.Event) EventPart {
	f := facts{}
	of := func(attempt uint32, step spec.StepID) {
		f.addNumber("attempt", int64(attempt))
		f.text("step", step.String())
	}
	switch e := e.(type) {
	case *event.StepStarted:
		of(e.Attempt, e.Step)
		f.text("name", e.Name)
		f.addNumber("tasks", int64(e.Tasks))
		f.text("tres", e.TRES.String())
		return f.closePart(e.UID, e.Nodes...)
	case *event.StepEnded:
		of(e.Attempt, e.Step)
		f.text("state", e.State.String())
		f.addResult(&e.Result)
		f.addUsage(&e.Usage)
		f.addTime("ended", e.At)
		return f.closePart(e.UID)
	case *event.StepNodeDone:
		of(e.Attempt, e.Step)
		f.addResult(&e.Result)
		f.addUsage(&e.Usage)
		return f.closePart(e.UID, e.Node)
	case *event.StepUpdated:
		of(e.Attempt, e.Step)
		f.addSpan("time_limit", e.Limit)
		return f.closePart(e.UID)
	case *event.StepEndRequested:
		of(e.Attempt, e.Step)
		f.text("cause", endCauseWord(e.Cause))
		return f.closePart(e.UID)
	case *event.StepSignalled:
		of(e.Attempt, e.Step)
		f.addNumber("signal", int64(e.Signal))
		return f.closePart(e.UID)
	}
	return EventPart{}
}

// addSpec writes what a job asks for, as squeue and scontrol show it.
func (f *facts) addSpec(job *spec.JobSpec) {
	if job == nil {
		return
	}
	f.text("name", job.Name)
	f.addList("partition", job.Partitions)
	f.text("qos", job.QOSText())
	if query := job.Queue.Array; query != nil {
		f.text("array", query.Tasks.String())
		f.addNumber("array_throttle", int64(query.Throttle))
	}
	f.addSpan("time_limit", job.Time.Limit)
	f.addTime("begin", job.Time.Begin)
	if job.Queue.Dependency != nil {
		f.text("dependency", job.Queue.Dependency.String())
	}
	f.text("reservation", job.Place.Reservation)
	f.text("comment", job.Comment)
}

// startPart writes the start of an attempt with what it was given.
func startPart(e *event.JobStarted) EventPart {
	f := facts{}
	f.addNumber("attempt", int64(e.Attempt))
	var nodes []string
	if allocation := e.Alloc; allocation != nil {
		f.text("partition", allocation.Partition)
		f.text("tres", allocation.TRES.String())
		f.text("reservation", allocation.Reservation)
		f.text("qos", allocation.QOS)
		nodes = allocation.NodeNames()
	}
	f.addSpan("time_limit", e.Limit)
	f.addTruth("backfill", e.Backfill)
	f.addNumber("priority", int64(e.Priority))
	if e.Adopted != nil {
		f.addTime("adopted_from", e.Adopted.At)
	}
	return f.closePart(e.UID, nodes...)
}

// onePartEach is an event that says the same of several jobs.
func onePartEach(jobs []spec.JobUID) []EventPart {
	parts := make([]EventPart, len(jobs))
	for i, uid := range jobs {
		parts[i].Job = uid
	}
	return parts
}

// other is the name of another job; empty for none.
func other(uid spec.JobUID, name func(spec.JobUID) string) string {
	if uid == 0 {
		return ""
	}
	return name(uid)
}

// nodePart writes an event about nodes.
//
//muster:table one case for each kind
func nodePart(e event.Event, name func(spec.JobUID) string) EventPart {
	f := facts{}
	switch e := e.(type) {
	case *event.NodeRegistered:
		inventory := &e.Inventory
		f.text("version", inventory.AgentVersion)
		f.text("os", inventory.OS)
		f.addNumber("cpus", inventory.CPUs)
		f.addNumber("memory_mib", inventory.Mem)
		f.addNumber("gpus", int64(len(inventory.GPUs)))
		f.addTime("booted", inventory.BootedAt)
		f.text("degraded", inventory.Degraded)
		f.text("invalid", e.Invalid)
		return f.closePart(0, e.Node)
	case *event.NodeStateSet:
		f.text("state", adminWord(e.State))
		f.text("reason", e.Reason)
		f.addTime("resume_at", e.ResumeAt)
		return f.closePart(0, e.Node)
	case *event.NodeLost:
		f.addTime("last_seen", e.LastSeen)
		f.text("why", e.Why)
		return f.closePart(0, e.Node)
	case *event.NodeReturned:
		return f.closePart(0, e.Node)
	case *event.FenceTried:
		f.addNumber("try", int64(e.Try))
		f.text("why", e.Why)
		return f.closePart(0, e.Node)
	case *event.GPUFaulted:
		f.text("gpu", e.Fault.UUID)
		f.text("fault", e.Fault.Kind.String())
		f.addNumber("xid", e.Fault.XID)
		f.text("class", e.Fault.Class)
		f.text("detail", e.Fault.Text)
		f.addNumber("count", int64(e.Fault.Count))
		f.text("held_by", other(e.Fault.Job, name))
		f.addSpan("idle", e.Fault.Idle)
		return f.closePart(0, e.Node)
	case *event.NodePowered:
		f.text("to", powerWord(e.To))
		f.text("why", e.Why)
		f.addTruth("failed", e.Failed)
		return f.closePart(0, e.Nodes...)
	case *event.NodeReboot:
		f.text("phase", [...]string{"", "wanted", "issued", "over"}[min(e.Phase, event.RebootOver)])
		f.addTruth("asap", e.ASAP)
		f.text("next_state", adminWord(e.Next))
		f.text("reason", e.Reason)
		return f.closePart(0, e.Node)
	case *event.NodeAdded:
		f.addNumber("cpus", e.Node.CPUs)
		f.addNumber("memory_mib", e.Node.Mem)
		f.text("gres", GRESText(e.Node.GRES))
		f.addList("features", e.Node.Features)
		f.addList("partition", e.Partitions)
		return f.closePart(0, e.Node.Name)
	case *event.NodeDeleted:
		return f.closePart(0, e.Node)
	case *event.NodeChanged:
		f.addNumber("weight", int64(e.Weight))
		f.addList("features", e.Features)
		f.addList("available_features", e.Available)
		f.text("comment", e.Comment)
		f.text("extra", e.Extra)
		f.text("reason", e.Reason)
		return f.closePart(0, e.Node)
	case *event.ForeignHoldTaken:
		f.text("hold", e.Hold.Name())
		f.addNumber("milli_cpu", e.Hold.MilliCPU)
		f.addNumber("memory_mib", e.Hold.Mem)
		f.addNumber("gpus", int64(len(e.Hold.GPUs)))
		f.addNumber("priority", e.Hold.Priority)
		return f.closePart(0, e.Node)
	case *event.ForeignHoldReleased:
		f.text("hold", e.ID)
		f.text("why", e.Why)
		return f.closePart(0, e.Node)
	}
	return EventPart{}
}

// clusterPart writes an event that is neither about jobs nor about nodes.
//
//muster:table one case for each kind
func clusterPart(e event.Event) EventPart {
	f := facts{}
	part := EventPart{}
	switch e := e.(type) {
	case *event.ClusterCreated:
		f.text("cluster", e.Name)
		f.addNumber("version", int64(e.Version))
	case *event.ClusterVersionRaised:
		f.addNumber("version", int64(e.Version))
	case *event.ConfigAdopted:
		if config := e.Config; config != nil {
			f.text("cluster", config.ClusterName)
			f.addNumber("node_count", int64(len(config.Nodes)))
			f.addNumber("partition_count", int64(len(config.Partitions)))
		}
	case *event.EpochBegan:
		f.text("controller", e.Host)
		f.text("version", e.Version)
	case *event.HistoryLost:
		f.text("witness", e.Witness)
		f.addNumber("seen_seq", int64(e.Seen.Seq))
	case *event.TokenIssued:
		f.text("machine", e.Node)
		f.text("role", e.Role)
		f.addTime("expires", e.Expires)
	case *event.TokenSpent:
		f.text("machine", e.Node)
	case *event.UserTokenIssued:
		f.text("token", e.ID)
		f.text("user", e.User)
		f.addNumber("uid", int64(e.UID))
		f.addTime("expires", e.Expires)
		f.text("scope", e.Scope)
	case *event.UserTokensEnded:
		f.text("user", e.User)
		f.text("tokens", strings.Join(e.IDs, ","))
		f.text("reason", e.Reason)
	case *event.CertificateIssued:
		f.text("machine", e.Name)
		f.text("role", e.Role)
		f.text("serial", e.Serial)
		f.addTime("expires", e.Expires)
	case *event.CertificateRevoked:
		f.text("serial", e.Serial)
		f.text("reason", e.Reason)
	case *event.CertificatesDropped:
		f.addNumber("count", int64(len(e.Serials)))
	case *event.PartitionPut:
		f.addPartition(&e.Partition)
	case *event.PartitionAdded:
		f.addPartition(&e.Partition)
	case *event.PartitionGone:
		f.text("partition", e.Name)
	case *event.ReservationPut:
		reservation := &e.Reservation
		part.Reservation = reservation.Name
		f.text("reservation", reservation.Name)
		f.addTime("start", reservation.Start)
		f.addTime("end", reservation.End)
		f.text("reserved_nodes", hostlist.Fold(reservation.Nodes))
		f.addList("users", reservation.Users)
		f.addList("accounts", reservation.Accounts)
		f.text("flags", reservation.Flags.String())
	case *event.ReservationRemoved:
		part.Reservation = e.Name
		f.text("reservation", e.Name)
		f.text("why", e.Why)
	case *event.TriggerPut:
		f.addNumber("trigger", int64(e.Trigger.ID))
		f.text("on", e.Trigger.Kind.String())
		f.text("user", e.Trigger.User)
		f.addNumber("runs_due", int64(len(e.Trigger.Pulls)))
	case *event.TriggerRemoved:
		f.addNumber("trigger", int64(e.ID))
		f.text("why", e.Why)
	case *event.CrontabPut:
		f.text("user", e.Crontab.User)
		f.addNumber("jobs", int64(len(e.Crontab.Entries)))
		f.addTruth("removed", e.Crontab.Text == "")
	case *event.UsageAged:
		f.addTruth("reset", e.Reset)
	case *event.SharesNoted:
		f.addNumber("associations", int64(len(e.Shares)))
	default:
		f.addPolicy(e)
	}
	part.Fields = f
	return part
}

func (f *facts) addPartition(partition *spec.PartitionSpec) {
	f.text("partition", partition.Name)
	f.text("state", partition.State.String())
	f.text("partition_nodes", partition.Nodes)
	f.addSpan("max_time", partition.MaxTime)
}

// addPolicy writes a change of the policy: what was changed. sacctmgr has the
// limits.
func (f *facts) addPolicy(e event.Event) {
	switch e := e.(type) {
	case *event.QOSPut:
		f.text("qos", e.QOS.Name)
	case *event.QOSRemoved:
		f.text("qos", e.Name)
	case *event.AccountPut:
		f.text("account", e.Account.Name)
		f.text("parent", e.Account.Parent)
		f.addList("coordinators", e.Account.Coordinators)
	case *event.AccountRemoved:
		f.text("account", e.Name)
	case *event.UserPut:
		f.text("user", e.User.Name)
		f.text("default_account", e.User.DefaultAccount)
		f.text("admin_level", e.User.AdminLevel)
	case *event.UserRemoved:
		f.text("user", e.Name)
	case *event.AssociationPut:
		f.addNumber("association", int64(e.Association.ID))
		f.text("account", e.Association.Account)
		f.text("user", e.Association.User)
		f.text("partition", e.Association.Partition)
	case *event.AssociationRemoved:
		f.addNumber("association", int64(e.ID))
	case *event.WCKeyPut:
		f.text("wckey", e.Key.Name)
		f.text("user", e.Key.User)
	case *event.WCKeyRemoved:
		f.addNumber("wckey_id", int64(e.ID))
	case *event.ResourcePut:
		f.text("resource", e.Resource.Name)
		f.text("server", e.Resource.Server)
	case *event.ClusterPut:
		f.text("cluster", e.Name)
		f.text("socket", e.Socket)
	case *event.ClusterRemoved:
		f.text("cluster", e.Name)
	case *event.ResourceRemoved:
		f.text("resource", e.Name)
		f.text("server", e.Server)
	case *event.UsageCleared:
		f.addNumber("association", int64(e.Assoc))
		f.addNumber("qos_id", int64(e.QOS))
	}
}

func holderWord(hold spec.Hold) string {
	switch hold {
	case spec.HeldByUser:
		return "user"
	case spec.HeldByAdmin:
		return "administrator"
	case spec.HeldMaxRequeue:
		return "max_requeue"
	case spec.HeldSpecialExit:
		return "special_exit"
	case spec.NotHeld:
	}
	return ""
}

func endCauseWord(cause event.EndCause) string {
	switch cause {
	case event.EndCancel:
		return "cancel"
	case event.EndTimeLimit:
		return "time_limit"
	case event.EndPreempt:
		return "preempt"
	case event.EndRequeue:
		return "requeue"
	case event.EndNodeLost:
		return "node_lost"
	case event.EndLaunchFailed:
		return "launch_failed"
	case event.EndDeadline:
		return "deadline"
	case event.EndOutOfMemory:
		return "out_of_memory"
	case event.EndLeader:
		return "leader_over"
	case event.EndBoot:
		return "boot_failed"
	}
	return "unknown"
}

func adminWord(state event.NodeAdminState) string {
	switch state {
	case event.NodeResume:
		return "resume"
	case event.NodeDrain:
		return "drain"
	case event.NodeDown:
		return "down"
	case event.NodeFail:
		return "fail"
	}
	return ""
}

func powerWord(power event.PowerState) string {
	switch power {
	case event.PowerOn:
		return "on"
	case event.PowerDownWish:
		return "power_down"
	case event.PowerDownASAP:
		return "power_down_asap"
	case event.PoweringDown:
		return "powering_down"
	case event.PoweredDown:
		return "powered_down"
	case event.PowerUpWish:
		return "power_up"
	case event.PoweringUp:
		return "powering_up"
	}
	return "unknown"
}

// ActorKindName is who acted, in a word.
func ActorKindName(kind event.ActorKind) string {
	switch kind {
	case event.ActorUser:
		return "user"
	case event.ActorNode:
		return "node"
	case event.ActorSystem:
	}
	return "system"
}
