package alerts

import (
	"fmt"
	"strings"
	"time"
)

// Role is who must act on an alert.
type Role string

// The roles. One person may have several.
const (
	OnCall   Role = "on-call"       // whoever is woken up
	Admin    Role = "administrator" // runs the cluster, in working hours
	Hardware Role = "hardware"      // has hands at the machines
	Lead     Role = "account lead"  // answers for an account's use and money
	Owner    Role = "job owner"
)

// Duty is what an alert asks of people: who must do what, and how soon, before the
// fault costs more than it does already.
type Duty struct {
	Who    Role
	Do     string // an imperative
	Within string // as in 15m, 1d, 7d
}

// Bounds of the severities: what has time until tomorrow wakes nobody up.
const (
	pageWithin = time.Hour
	todayIs    = 24 * time.Hour
)

// Severity is the one that fits how soon somebody must act.
func (d Duty) Severity() (Severity, error) {
	within, err := parseDuration(d.Within)
	switch {
	case err != nil:
		return "", err
	case within <= pageWithin:
		return Critical, nil
	case within <= todayIs:
		return Warning, nil
	}
	return Info, nil
}

// String is the duty in one line.
func (d Duty) String() string { return fmt.Sprintf("%s, within %s: %s", d.Who, d.Within, d.Do) }

// Duties has the duty of every alert, by its name.
//
//muster:table one entry for each alert
func Duties() map[string]Duty {
	const soon, hour, today, week = "15m", "1h", "1d", "7d"
	return map[string]Duty{
		"MusterControllerDown":     {OnCall, "start a controller, for nothing can be submitted", soon},
		"MusterLeaderless":         {OnCall, "bring back a majority of the controllers", soon},
		"MusterHistoryLost":        {OnCall, "decide which ledger is the right one before more is written", soon},
		"MusterLedgerSyncFailed":   {OnCall, "free or replace the ledger's disk, for nothing is acknowledged", soon},
		"MusterLedgerDiskLow":      {OnCall, "free space on the ledger's disk before submissions are refused", hour},
		"MusterLedgerDiskFills":    {Admin, "move what grows on the ledger's disk, or shorten what is kept", today},
		"MusterOrphanRuns":         {Admin, "end or keep the unknown runs; their nodes take no jobs meanwhile", today},
		"MusterInvariantFailed":    {Admin, "keep the ledger and report the bug", today},
		"MusterWriterOverloaded":   {Admin, "find who sends the commands and limit them", today},
		"MusterLedgerSlow":         {Admin, "move the ledger to a faster disk or stop what shares it", today},
		"MusterPassSlow":           {Admin, "look at the queue and lower bf_max_job_test", today},
		"MusterControllerFilesLow": {Admin, "raise LimitNOFILE of the controller", today},
		"MusterAccountingDown":     {Admin, "start the accounting store; the ledger keeps everything until then", today},
		"MusterAccountingBehind":   {Admin, "find what slows the accounting store down", today},
		"MusterScrapeSlow":         {Admin, "find what slows the exporter or its host down", today},
		"MusterCollectionFails":    {Admin, "mend what the agent cannot read", today},
		"MusterReportsStuck":       {Admin, "mend the agent's way to the controller", today},
		"MusterRefusalsMany":       {Admin, "tell the user whose script is refused again and again", week},

		"MusterAgentsLost":        {OnCall, "mend the network or the switch", hour},
		"MusterManyNodesOut":      {OnCall, "find what the nodes have in common: power, network, cooling", hour},
		"MusterAgentDown":         {Admin, "start the agent or drain the node", today},
		"MusterAgentDisconnected": {Admin, "mend the agent's way to the controller", today},
		"MusterShepherdDown":      {Admin, "start the shepherd of the node", today},
		"MusterNodesDown":         {Admin, "bring the node back or drain it with a reason", today},
		"MusterNodeFlapping":      {Admin, "drain the node and look at its network", today},
		"MusterNodeMemoryLow":     {Admin, "find what takes the memory beside the jobs", today},
		"MusterNodeUnhealthy":     {Admin, "mend what the rule names", today},
		"MusterNodeIncomplete":    {Admin, "find why the node has less than slurm.conf and gres.conf say", today},
		"MusterScratchFull":       {Admin, "clean the scratch disk", today},
		"MusterNodeDrainedLong":   {Hardware, "repair the node or delete it", week},
		"MusterNodeRestarted":     {Admin, "look for a crash if nobody restarted it", week},

		"MusterGPUXID":           {OnCall, "drain the node before the next job fails on the device", hour},
		"MusterGPUMemoryErrors":  {OnCall, "drain the node before more results are wrong", hour},
		"MusterGPUOffTheBus":     {Hardware, "reset or replace the device, which is given to no job meanwhile", today},
		"MusterGPUXIDOfDevice":   {Hardware, "reset or replace the device", today},
		"MusterGPUXIDOfProgram":  {Admin, "tell the job's owner; several jobs on one device are the device", week},
		"MusterGPUHot":           {Hardware, "look at fans and air", today},
		"MusterGPUThrottled":     {Hardware, "look at fans and air", today},
		"MusterGPULinkErrors":    {Hardware, "reseat or replace the link", today},
		"MusterGPUReadingsOld":   {Admin, "look at the driver of the node", today},
		"MusterGPUsUnavailable":  {Admin, "bring the nodes of these GPUs back", today},
		"MusterJobGPUWarned":     {Owner, "use the GPUs or cancel the job", week},
		"MusterJobGPUIdle":       {Owner, "use the GPUs or cancel the job", week},
		"MusterGPUOccupancyLow":  {Admin, "look at who holds GPUs without using them", week},
		"MusterGPUsFragmented":   {Admin, "look at what keeps the nodes partly free", week},
		"MusterNodeFailuresCost": {Admin, "take out the nodes that fail again and again", today},

		"MusterWaitLong":        {Admin, "look at what the first jobs of the queue wait for", today},
		"MusterQueueStuck":      {Admin, "find what keeps the first jobs of the queue out", today},
		"MusterFailureRate":     {Admin, "find the node, file system or user behind the failures", today},
		"MusterJobsLostToNodes": {Admin, "look at the node that failed, and tell the users", today},
		"MusterOOMStorm":        {Admin, "tell the user to ask for more memory", today},
		"MusterOldestPending":   {Admin, "look at what the job waits for", week},
		"MusterTimeoutsMany":    {Admin, "look at the partition's default and the users' limits", week},
		"MusterRequeuesMany":    {Admin, "find what puts the jobs back", week},

		"MusterErrorBudgetBurnsFast": {OnCall, "find what makes submissions or scheduling slow", hour},
		"MusterErrorBudgetBurns":     {Admin, "find what misses the objective", today},
		"MusterErrorBudgetSpent":     {Admin, "spend effort on the objective, or change it", week},

		"MusterCPUEfficiencyLow":  {Admin, "look at who asks for more CPUs than are used", week},
		"MusterMemoryWasted":      {Admin, "tell the user what the jobs need", week},
		"MusterLimitReached":      {Lead, "raise the limit or leave it on purpose", week},
		"MusterFairShareDrift":    {Admin, "look at the weights of the priority", week},
		"MusterBudgetWillNotLast": {Lead, "spend less or raise the budget", week},
		"MusterBudgetSpent":       {Lead, "raise the budget or expect the account's jobs to wait", today},
		"MusterLicencesExhausted": {Admin, "buy licences or shorten the jobs that hold them", week},
	}
}

// Markdown is docs/alerts.md: every alert with its duty.
func Markdown() string {
	var text strings.Builder
	text.WriteString("# Alerts\n\n<!-- Written by go run ./docs/gen from alerts.Duties. -->\n\n" +
		"Who must act on each alert, on what and how soon. The severity follows from that: what must be done within an hour\n" +
		"is critical and pages, what must be done within a day is a warning, the rest is info. `severity` in alerts.yaml changes it\n" +
		"([alerts/README.md](../alerts/README.md)); each name leads to what to type.\n\n" +
		"| alert | severity | who | within | what |\n|---|---|---|---|---|\n")
	for _, want := range [...]Severity{Critical, Warning, Info} {
		for _, rule := range All() {
			if rule.Severity != want {
				continue
			}
			duty := Duties()[rule.Name]
			fmt.Fprintf(
				&text,
				"| [%s](../alerts/runbooks/%s.md) | %s | %s | %s | %s |\n",
				rule.Name,
				rule.Name,
				rule.Severity,
				duty.Who,
				duty.Within,
				duty.Do,
			)
		}
	}
	return text.String()
}
