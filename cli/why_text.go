package cli

import (
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// quantity writes an amount of a TRES for people: 4 GPUs, 16 GiB memory.
func quantity(tres string, n int64) string {
	plural := func(one string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %ss", n, one)
	}
	kind, name, _ := strings.Cut(tres, "/")
	switch kind {
	case "cpu":
		return plural("CPU")
	case "mem":
		return format.Units(n, 'M', format.Convert{}) + " of memory"
	case "node":
		return plural("node")
	case "time":
		return span(n * second)
	case "billing":
		return plural("billing unit")
	case "energy":
		return fmt.Sprintf("%d J", n)
	case "gres":
		name, typ, typed := strings.Cut(name, ":")
		if name == "gpu" {
			name = "GPU"
		}
		if typed {
			name = typ + " " + name
		}
		return plural(name)
	case "license":
		return plural(name + " licence")
	case "tmp":
		return format.Units(n, 'M', format.Convert{}) + " of temporary disk"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", n, tres))
}

// who writes whose limit it is: qos/gpucap, assoc/ml/alice, partition/gpu.
func who(subject string) string {
	parts := strings.Split(subject, "/")
	switch {
	case len(parts) == 2 && parts[0] == "qos":
		return "QOS " + parts[1]
	case len(parts) == 2 && parts[0] == "partition":
		return "partition " + parts[1]
	case parts[0] == "assoc" && len(parts) >= 3 && parts[2] != "":
		return parts[2] + " in account " + parts[1]
	case parts[0] == "assoc" && len(parts) >= 2:
		return "account " + parts[1]
	case subject == "":
		return "the site"
	}
	return subject
}

// because says in plain words what the reason means, with its numbers.
//
//muster:table one case for each reason
func (v *whyView) because(rep *apiv1.WhyReply) []string {
	r, j := rep.GetReason(), rep.GetJob()
	blocker := ""
	for _, b := range rep.GetBlockers() {
		if b.GetUid() == r.GetBlocker() && r.GetBlocker() != 0 {
			blocker = "job " + v.id(jobRow{JobInfo: b, task: -1}) + " (" + b.GetSpec().GetName() + " of " + b.GetUser() + ")"
		}
	}
	switch spec.ReasonCode(r.GetCode()) {
	case "", spec.ReasonNone:
		return []string{"No pass has looked at it yet; the next one will within moments."}
	case spec.ReasonPriority:
		if blocker != "" {
			return []string{"It would have to overtake " + blocker + ", which comes before it and waits too; it may start earlier only where that delays nobody."}
		}
		return []string{"Jobs that come before it wait too; it may start earlier only where that delays none of them."}
	case "ReservationDeleted":
		return []string{"The reservation that it asks for is gone: change it with scontrol update jobid=" + itoa(j.GetJobId()) + " reservationname=."}
	case "ReservationInvalid":
		return []string{"It does not fit into its reservation: too many nodes, or a longer time limit than is left of it."}
	case spec.ReasonReservation:
		return []string{"Its reservation begins " + v.when(rep.GetReason().GetUntil()) + "."}
	case spec.ReasonResources:
		if rep.GetReason().GetSubject() == "switches" {
			return []string{"No choice of so few switches has what it needs; from " + v.when(rep.GetReason().GetUntil()) + " on any nodes will do."}
		}
		out := []string{"It is its turn, but what it needs is in use now (below, node by node)."}
		if blocker != "" {
			out = append(out, "What it is planned to get is held by "+blocker+".")
		}
		if j.GetHetSize() > 1 {
			other := (j.GetHetOffset() + 1) % j.GetHetSize()
			out = append(out, fmt.Sprintf("Its %d components start together; muster why %d+%d shows the nodes as the next of them sees them.", j.GetHetSize(), j.GetHetJobId(), other))
		}
		return out
	case spec.ReasonDependency:
		return dependencyText(or(j.GetDependency(), j.GetSpec().GetDependency()))
	case spec.ReasonDependencyNever:
		return []string{"What it waits for can never come true any more: " + or(j.GetDependency(), j.GetSpec().GetDependency()) + ".",
			"Cancel it (scancel " + itoa(j.GetJobId()) + ") and submit it without that dependency."}
	case spec.ReasonBeginTime:
		return []string{"It was asked not to begin before " + v.when(firstOf(r.GetUntil(), j.GetSpec().GetBegin(), j.GetStart())) + "."}
	case spec.ReasonHeldUser:
		return []string{"It is held by its owner. Release it: scontrol release " + itoa(j.GetJobId()) + "."}
	case spec.ReasonHeldAdmin:
		return []string{"It is held by an operator, who alone can release it."}
	case spec.ReasonHoldMaxRequeue:
		return []string{fmt.Sprintf("It was requeued %d times, as often as the site allows, and is held. Find out why it fails to start, then release it.", j.GetRestarts())}
	case spec.ReasonArrayTaskLimit:
		return []string{fmt.Sprintf("Its array runs at most %d tasks at a time (the %% of --array), and so many run now.", j.GetArrayThrottle()),
			fmt.Sprintf("scontrol update jobid=%d arraytaskthrottle=N changes that.", firstOf(j.GetArrayJobId(), j.GetJobId()))}
	case spec.ReasonLicenses:
		return []string{fmt.Sprintf("It asks for %s; %s of %d are in use.", quantity(or(r.GetTres(), "license/"), r.GetAsked()), quantity(or(r.GetTres(), "license/"), r.GetUsed()), r.GetLimit())}
	case spec.ReasonReqNodeNotAvail:
		if strings.Contains(r.GetDetail(), "eserved") {
			return []string{"Nodes that it could start on are reserved: scontrol show reservation says for whom, and until when."}
		}
		return []string{"Nodes that it needs are out of service: " + strings.TrimPrefix(or(r.GetDetail(), r.GetSubject()), "UnavailableNodes:") + ". sinfo -R says why."}
	case spec.ReasonPartitionDown, spec.ReasonPartitionInactive:
		name := strings.TrimPrefix(or(r.GetSubject(), "partition/"+j.GetPartition()), "partition/")
		return []string{"Its partition, " + name + ", starts no jobs now (scontrol show partition " + name + ").",
			"It starts again when an operator says so: scontrol update partitionname=" + name + " state=up."}
	}
	return v.becauseLimit(rep)
}

// firstOf is the first number that is not zero.
func firstOf[T int64 | uint32](list ...T) T {
	for _, n := range list {
		if n != 0 {
			return n
		}
	}
	return 0
}

// dependencyText says in plain words what a job waits for: of
// afterok:4(unfulfilled),singleton the conditions that do not hold yet.
func dependencyText(list string) []string {
	begin, sep := "It waits until all of this is true:", ","
	if strings.Contains(list, "?") {
		begin, sep = "It waits until any of this is true:", "?"
	}
	var open []string
	for one := range strings.SplitSeq(list, sep) {
		if kind, rest, named := strings.Cut(one, ":"); named {
			for job := range strings.SplitSeq(rest, ":") {
				id, state, _ := strings.Cut(strings.TrimSuffix(job, ")"), "(")
				if state != "fulfilled" {
					open = append(open, conditionText(kind, id))
				}
			}
		} else if one, _, _ = strings.Cut(one, "("); one == "singleton" {
			open = append(open, "no other job of its name and its user runs or comes before it")
		} else if one != "" {
			open = append(open, one)
		}
	}
	switch len(open) {
	case 0:
		return []string{"It waits for other jobs; the next pass looks at them again."}
	case 1:
		return []string{"It waits until " + open[0] + "."}
	}
	return append([]string{begin}, open...)
}

// conditionText is one condition of a dependency.
func conditionText(kind, id string) string {
	id, minutes, delayed := strings.Cut(id, "+")
	job := "job " + id
	if array, all := strings.CutSuffix(id, "_*"); all {
		job = "every task of array " + array
	}
	text := ""
	switch kind {
	case "after":
		text = job + " has started or was cancelled"
	case "afterany":
		text = job + " has ended"
	case "afterok":
		text = job + " has ended with success"
	case "afternotok":
		text = job + " has failed"
	case "aftercorr":
		text = "the task of the same index of job " + strings.TrimSuffix(id, "_*") + " has ended with success"
	default:
		return kind + ":" + id
	}
	if delayed {
		text += " " + minutes + " minutes ago"
	}
	return text
}

// becauseLimit explains what a partition, an account or a QOS does not allow.
//
//muster:table one case for each reason
func (v *whyView) becauseLimit(rep *apiv1.WhyReply) []string {
	r, j := rep.GetReason(), rep.GetJob()
	code := r.GetCode()
	subject := who(r.GetSubject())
	switch spec.ReasonCode(code) {
	case spec.ReasonPartitionNodeLimit:
		return []string{fmt.Sprintf("It asks for %s; %s gives a job at most %s. Waiting does not help: ask for fewer, or for another partition.",
			quantity("node", r.GetAsked()), subject, quantity("node", r.GetLimit()))}
	case spec.ReasonPartitionTimeLimit:
		return []string{fmt.Sprintf("It asks for %s; %s gives a job at most %s. Waiting does not help: scontrol update jobid=%d timelimit=%s.",
			span(r.GetAsked()*second), subject, span(r.GetLimit()*second), j.GetJobId(), format.Duration(r.GetLimit()))}
	case spec.ReasonPartitionConfig:
		if r.GetDetail() != "" {
			return []string{"It can never start as it is" + detail(r) + ". Waiting does not help: ask for less, or for other nodes or partitions."}
		}
		return []string{"No set of nodes of " + subject + " can give what it asks for, even when all of them are free. Waiting does not help: ask for less on each node, or for another partition."}
	case spec.ReasonBadConstraints:
		return []string{"No node can ever meet what it asks for" + detail(r) + ". Waiting does not help."}
	case spec.ReasonInvalidAccount, spec.ReasonAccountNotAllowed:
		return []string{"Account " + or(j.GetSpec().GetAccount(), "(none)") + " may not be used here (" + subject + "). Ask an operator, or choose another with scontrol update account=."}
	case spec.ReasonInvalidQOS, spec.ReasonQOSNotAllowed:
		return []string{"QOS " + or(qosOf(j), "(none)") + " may not be used here (" + subject + "). Ask an operator, or choose another with scontrol update qos=."}
	case spec.ReasonCleaning:
		return []string{"Its earlier run is still being cleaned up on its nodes."}
	case spec.ReasonDeadLine:
		return []string{"It cannot end by its deadline, " + v.time(j.GetSpec().GetDeadline()) + ", any more."}
	}
	if text := v.limitText(r, j); text != nil {
		return text
	}
	return []string{strings.TrimSpace("The scheduler says " + code + detail(r) + ".")}
}

func detail(r *apiv1.Reason) string {
	if r.GetDetail() == "" {
		return ""
	}
	return ": " + r.GetDetail()
}

// limitText explains the families of limits: per job, user, account, group.
func (v *whyView) limitText(r *apiv1.Reason, j *apiv1.JobInfo) []string {
	code, subject := r.GetCode(), who(r.GetSubject())
	has := func(s string) bool { return strings.Contains(code, s) }
	asked, limit, used := quantity(r.GetTres(), r.GetAsked()), quantity(r.GetTres(), r.GetLimit()), quantity(r.GetTres(), r.GetUsed())
	switch {
	case has("JobsLimit") || has("JobsPer") || has("SubmitJob"):
		return []string{fmt.Sprintf("%s allows %d jobs at once, and %d count towards that now. It starts when one of them ends.", subject, r.GetLimit(), r.GetUsed())}
	case has("Wall"):
		return []string{fmt.Sprintf("It asks for %s; %s allows %s. Waiting does not help: scontrol update jobid=%d timelimit=%s.",
			span(r.GetAsked()*second), subject, span(r.GetLimit()*second), j.GetJobId(), format.Duration(r.GetLimit()))}
	case r.GetTres() == "":
		return nil
	case strings.HasPrefix(r.GetSubject(), "budget/"):
		account, tres := strings.TrimPrefix(r.GetSubject(), "budget/"), strings.TrimSuffix(r.GetTres(), " minutes")
		if r.GetLimit() == 0 {
			return []string{"The budget of account " + account + " is spent. muster report budget -A " + account + " shows it; it starts when there is money again."}
		}
		return []string{fmt.Sprintf("The rest of the budget of account %s, less what running jobs may still use, pays for %d minutes of %s at most; this job needs up to %d. muster report budget -A %s shows it. A shorter time limit may fit.",
			account, max(r.GetLimit()-r.GetUsed(), 0), quantity(tres, 1), r.GetAsked(), account)}
	case has("RunMinutes") || has("RunMins"), has("Minutes"):
		return []string{fmt.Sprintf("%s has a budget of %d %s-minutes; %d are used, and this job needs up to %d.", subject, r.GetLimit(), strings.TrimSuffix(r.GetTres(), " minutes"), r.GetUsed(), r.GetAsked())}
	case has("PerJob"), has("PerNode"), has("Min"):
		word, per := "at most", "a job"
		if has("PerNode") {
			per = "a job on each node"
		}
		if strings.HasPrefix(code, "QOSMin") {
			word = "at least"
		}
		return []string{fmt.Sprintf("It asks for %s; %s allows %s %s %s. Waiting does not help: ask for another amount, or another QOS.", asked, subject, per, word, limit)}
	}
	whose := "all its jobs together"
	switch {
	case has("PerUser"):
		whose = or(j.GetUser(), "the user") + "'s jobs together"
	case has("PerAccount"):
		whose = "the jobs of account " + j.GetSpec().GetAccount() + " together"
	}
	out := []string{fmt.Sprintf("%s allows %s %s; they hold %s now, and this job asks for %s.", subject, whose, limit, used, asked)}
	if r.GetAsked() > r.GetLimit() {
		return append(out, "The job alone is over the limit, so waiting does not help: ask for at most "+limit+", or for another QOS.")
	}
	return append(out, fmt.Sprintf("It starts when %s of those end.", quantity(r.GetTres(), r.GetUsed()+r.GetAsked()-r.GetLimit())))
}
