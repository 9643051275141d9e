package dashboards

import (
	"fmt"
	"slices"
	"strings"
)

// Action is something that is done to a cluster and that shows on dashboards.
// The end-to-end tests do each of them in a lab, in this order.
type Action string

// The actions.
const (
	Run     Action = "run"     // jobs start and work
	Wait    Action = "wait"    // more is asked for than there is
	Finish  Action = "finish"  // jobs end well
	Set     Action = "set"     // what is promised is changed
	Fail    Action = "fail"    // jobs fail
	Hold    Action = "hold"    // a job holds a GPU and does nothing
	Break   Action = "break"   // GPUs fail
	Reserve Action = "reserve" // nodes and licences are kept and taken
	Drain   Action = "drain"   // a node is taken out of service
	Hammer  Action = "hammer"  // many clients ask at once
	Slow    Action = "slow"    // an agent reads its GPUs less often
	Freeze  Action = "freeze"  // the controller stands still for a while
	Cut     Action = "cut"     // the accounting store is gone
	Kill    Action = "kill"    // an agent is gone, a shepherd stands still
	End     Action = "end"     // the controller is gone
	Renew   Action = "renew"   // it comes back with another budget
)

// Doing says what an action is.
type Doing struct {
	Action Action
	What   string
}

// Actions lists every action in the order in which a lab does them.
func Actions() []Doing {
	return []Doing{
		{
			Run,
			"jobs start that compute on CPUs and GPUs, hold memory and write a file; one has a MIG instance",
		},
		{Wait, "jobs ask for more than there is; one is held"},
		{
			Finish,
			"jobs that worked end well, and those that waited start; an account that had nothing runs its first job",
		},
		{Set, "`sacctmgr modify account` raises an account's shares"},
		{Fail, "jobs with and without a GPU exit with an error"},
		{Hold, "a job holds a GPU without work on it, and ends"},
		{
			Break,
			"the driver reports XID 48 and 74, a GPU is held down by heat, one falls off the bus",
		},
		{
			Reserve,
			"`scontrol create reservation`, now and for later; jobs in the reservation and with licences",
		},
		{Drain, "`scontrol update nodename=… state=drain`"},
		{Hammer, "`muster bench submit` with many clients, and submissions that are refused"},
		{Slow, "`telemetry.interval` of an agent is made longer"},
		{Freeze, "the controller gets SIGSTOP, jobs end, it gets SIGCONT"},
		{Cut, "the engine of the accounting store is killed whenever it comes back"},
		{Kill, "an agent is killed, and the shepherd of another node stands still"},
		{End, "the controller is killed"},
		{Renew, "it is started again, and `cost.budgets` says that the budget began earlier"},
	}
}

// Way is a direction.
type Way string

// The directions. A panel that showed nothing counts as 0.
const (
	Up   Way = "up"
	Down Way = "down"
)

// Move is the action that moves a panel, and where to. What moves is the sum
// of a panel's values, or its number of rows when they come from SQL.
type Move struct {
	Board, Row, Panel string

	Action Action
	Way    Way
	Of     string // only series with this in their name, or this column; empty: all
	Noisy  bool   // others move it too: it must move from where it was farthest the other way
	Why    string // instead of an action: why a lab cannot move it
}

// String says it as the documentation does.
func (m Move) String() string {
	if m.Action == "" {
		return "-: " + m.Why
	}
	of := ""
	if m.Of != "" {
		of = " (" + m.Of + ")"
	}
	from := ""
	if m.Noisy {
		from = ", from its lowest"
	}
	return fmt.Sprintf("%s%s %s%s", m.Action, of, m.Way, from)
}

// on puts moves into a row of a board.
func on(board, row string, moves ...Move) []Move {
	for i := range moves {
		moves[i].Board, moves[i].Row = board, row
	}
	return moves
}

// up and down are panels that an action moves; the first may be several,
// separated by semicolons.
func up(panels string, action Action, of ...string) Move {
	return Move{Panel: panels, Action: action, Way: Up, Of: strings.Join(of, "")}
}

func down(panels string, action Action, of ...string) Move {
	move := up(panels, action, of...)
	move.Way = Down
	return move
}

// noisy is up for figures that other things move too: a machine's, or what
// chance decides.
func noisy(panels string, action Action, of ...string) Move {
	move := up(panels, action, of...)
	move.Noisy = true
	return move
}

func still(panel, reason string) Move { return Move{Panel: panel, Why: reason} }

// Moves lists the move of every panel.
func Moves() []Move {
	var moves []Move
	for _, move := range slices.Concat(movesOfJobs(), movesOfPeople(), movesOfMachines(), movesOfController()) {
		for name := range strings.SplitSeq(move.Panel, "; ") {
			one := move
			one.Panel = name
			moves = append(moves, one)
		}
	}
	return moves
}

func movesOfJobs() []Move {
	return slices.Concat(
		on(Overview, "What is wrong now", noisy("Alerts that fire", Break)),
		on(Overview, "GPUs now", up("Each GPU now", Run, "held")),
		on(
			Overview,
			"Now",
			down("Nodes in service", Drain),
			up("Jobs running; GPUs allocated; GPU utilisation of allocated; GPU power", Run),
			up("Jobs pending", Wait),
			noisy("Alerts firing", Break),
			up(
				"Goodput, last day",
				Finish,
			),
			up("Wait P95, last day", Finish),
			up("GPU occupancy, last day", Run),
			down("CPU efficiency, last day", Hold),
			up("Failed runs, last day", Fail),
			up("Accounting behind", Cut),
		),
		on(
			Overview,
			"Jobs and nodes",
			up("Jobs", Run, "running"),
			up("Nodes", Drain, "drained"),
			up("GPUs", Run, "allocated"),
			up("GPUs given out and used", Run, "used"),
			up("CPUs; Memory", Run, "allocated"),
		),
		on(
			Overview,
			"Who and what is wrong",
			up("CPUs by account", Run),
			up("Nodes out of service", Drain),
		),
		on(
			Overview,
			"History (from the accounting store)",
			up("Jobs ended", Finish),
			up("GPU-hours by account", Run, "GPU-hours"),
		),

		on(
			Queue,
			"The queue",
			up("Pending by reason; Pending by partition; Oldest pending job; Jobs held, jobs past their promise", Wait),
			up("GPUs wanted and idle; CPUs wanted and idle", Wait, "wanted"),
			down(
				"Idle GPUs: all and in one piece; Nodes of the largest job that could start",
				Run,
			),
			up("Jobs submitted, started, ended", Run),
		),
		on(
			Queue,
			"Wait",
			up(
				"Wait of the jobs that started, last hour; Mean wait by partition, over the dashboard's time (MetricsQL); Worst hourly wait P95 of a day, by partition (MetricsQL); Wait P95 by partition, last day",
				Finish,
			),
			up(
				"Wait since eligible, 95th percentile",
				Wait,
			),
			up("Share of starts by backfill; Run time of the jobs that ended, last hour", Finish),
			up("Promises kept, last day", Finish),
		),
		on(
			Queue,
			"History (from the accounting store)",
			up("Wait by partition and size", Finish, "starts"),
			up("Longest waits", Finish),
			up("Promises by partition and QOS", Finish, "promises"),
			up("What the waiting was for", Wait),
		),

		on(
			Job,
			"What it is",
			up("Runs", Run),
			up("Planned start", Wait),
			up("Advice", Finish),
			up("Where it runs; CPUs in use; Memory at its peak; GPUs busy; GPU energy so far", Run),
			up("GPU time idle so far", Hold, "idle"),
			still(
				"Killed for lack of memory",
				"needs nodes that hold jobs to their memory (ConstrainRAMSpace); the runbook of OOM storms says how to see it",
			),
		),
		on(
			Job,
			"CPU and memory, node by node",
			up("CPUs in use", Run, "used"),
			up("Memory", Run, "held"),
			up("Disk read and written", Run, "written"),
			up("Processes", Run),
		),
		on(
			Job,
			"GPUs",
			up(
				"Utilisation of each GPU over time; Multiprocessors and tensor cores; GPU memory; Power; Temperature; PCIe and NVLink",
				Run,
			),
			up("What was seen on the GPUs", Run, "busy"),
		),
		on(
			Job,
			"History (from the accounting store)",
			up("Why it waited", Wait),
			up("Steps; Nodes; Devices; Events", Run),
			up("GPU utilisation, from the samples", Run),
		),
	)
}

func movesOfPeople() []Move {
	return slices.Concat(
		on(People, "Accounts", up("Jobs running by account", Run), up("Jobs pending by account", Wait), up("Share of the GPUs, 7 days", Run), up("GPU occupancy, 7 days", Run), down("CPU efficiency, 7 days", Hold)),
		on(People, "Money", up("Budget spent; Cost by account, 7 days; Cost by user, 7 days", Run)),
		on(People, "Users", up("GPU time held but idle, 7 days", Hold), up("Memory wasted, 7 days", Hold), up("Wait P95, 7 days", Finish), up("Failed runs, 7 days; GPU time lost to failures, 7 days", Fail)),
		on(People, "In the dashboard's time (from the accounting store)", up("Users by GPU-hours", Run, "runs"), up("Jobs; GPU-hours held", Run), up("Runs ended", Finish)),

		on(FairShare, "Use", up("CPUs in use by account; Share of the CPUs, a day; Share of the GPUs, a day", Run), up("Part of all use, a day", Finish, "bio")),
		on(FairShare, "Shares", up("Promised", Set, "ml"), up("Decayed use", Finish, "bio"), down("Drift now, by account", Set, "ml")),
		on(FairShare, "Drift of the cluster", up("Drift, last day; Drift, last 7 days; Drift over time", Finish)),
		on(FairShare, "Shares and drift (from the accounting store)", up("Drift", Finish, "CPU-hours"), up("CPU-hours by account", Finish)),

		on(Efficiency, "Goodput", up("Goodput, last day", Finish), up("Where the GPU time went", Run), up("Where the GPU time went, over a day", Hold, "held_idle")),
		on(Efficiency, "Findings", up("What wastes most, 7 days", Hold)),
		on(Efficiency, "The cluster, over a day", up("Given out; Used of what was given out", Run), up("Wasted", Fail, "runs failed"), up("GPU time idle and lost", Hold, "idle"), up("Throughput; Wait", Finish)),
		on(Efficiency, "What waiting and failing cost, over a day", up("Waiting by running", Finish), up("Failures by class; GPU time lost, by class of failure", Fail)),
		on(Efficiency, "By partition, 7 days", up("GPU occupancy", Run), down("CPU efficiency", Hold), up("Failed runs", Fail)),
		on(Efficiency, "By user, 7 days", up("GPU time held but idle", Hold), up("Memory wasted", Run), up("GPU time lost to failures", Fail)),
		on(Efficiency, "In the dashboard's time (from the accounting store)", up("Use against waste, by user; Time limits", Finish, "runs"), up("Runs that wasted most GPU time", Hold)),

		on(Limits, "Reservations", up("Reservations; Ends in; Begins in; Nodes kept by reservations; CPUs in use inside reservations", Reserve)),
		on(Limits, "Licences", up("Licences", Reserve, "used"), up("Licences in use", Reserve)),
		on(Limits, "Limits", up("Limits by what is used of them; Limits and use", Run), up("Jobs by QOS", Run, "running"), up("GPUs held by account", Run)),
		on(Limits, "Budgets", up("Budget spent; Spent at its end, if it goes on", Run), up("Spent", Run, "spent"), up("Time over", Renew)),

		on(Energy, "Power", up("Power by node; Power by account; Power against the limit", Run), down("Power of idle devices", Run)),
		on(Energy, "Energy", up("Energy by node, dashboard's time", Run), up("Energy of runs by account, 7 days; Carbon by account, 7 days", Finish), up("Energy by account and user", Run), up("Cost by account, 7 days", Run)),
	)
}

func movesOfMachines() []Move {
	return slices.Concat(
		on(
			Node,
			"State",
			up("Out of service for", Drain),
			down("Agents", Kill),
			down("Health rules; Failing health rules by node", Kill, rowsOf),
			up("Jobs on the node", Run),
			still(
				"Time since the node was started",
				"a lab's nodes are one machine that is not rebooted",
			),
		),
		on(
			Node,
			"CPU, memory, disk",
			up("Memory held by jobs", Run),
			down("CPU busy; Load; Memory left; Scratch disk left", Kill),
			down("CPU time by kind", Kill),
		),
		on(Node, "GPUs", up("Utilisation; Power", Run)),
		on(
			Node,
			"History (from the accounting store)",
			up("What happened to the nodes", Drain),
			up("Runs on the nodes", Run),
		),

		on(
			GPUs,
			"Now",
			down("GPUs", Break),
			up("Lost", Break),
			up("Held by jobs; Utilisation of held devices; Power", Run),
			up("Held but idle", Hold),
		),
		on(
			GPUs,
			"Use",
			up(
				"Utilisation of each device over time; Multiprocessors and tensor cores; Memory in use; PCIe and NVLink",
				Run,
			),
			up("Held but idle", Hold, rowsOf),
			up("By type and state", Run, "allocated"),
			up("What is seen on held devices", Run, "busy"),
		),
		on(
			GPUs,
			"Layout",
			down("NVLink domains; MIG layout", Kill),
			down("Free devices of each NVLink domain", Run),
			up("MIG instances held", Run),
		),
		on(
			GPUs,
			"Health",
			up(
				"Driver errors (XID); GPU events seen by the agents; Memory errors; NVLink and PCIe errors",
				Break,
			),
			up("Temperature", Run),
			up("Clocks held down", Break, "heat"),
		),
		on(
			GPUs,
			"History (from the accounting store)",
			up("GPU-hours held and not used, from the samples", Hold),
			up("Users by idle GPU time", Hold, "idle"),
			up("Devices by idle time", Hold, "held idle"),
		),
	)
}

// rowsOf counts the rows of a panel whose values do not say how many.
const rowsOf = "rows"

func movesOfController() []Move {
	return slices.Concat(
		on(
			Internals,
			"Scheduler",
			up("Jobs tried in the last pass; Pending records; Jobs with a predicted start", Wait),
			down("Last pass; Longest pass; Time of a pass", End),
			noisy("Passes a second", Run),
			up(
				"Time spent in passes",
				Hammer,
			),
			up("Depth and queue", Wait, "in the queue"),
			up("Starts: by backfill, dropped", Finish, "backfilled"),
		),
		on(
			Internals,
			"Writer and ledger",
			up("Commands", Hammer, "refused"),
			up("Calls and refusals; Events and batches", Hammer),
			down("Commands waiting", End, rowsOf),
			down("Time to durability", End),
			down("Ledger's disk", End, "free"),
			noisy(
				"Time of a disk sync; Answers, 95th percentile",
				Hammer,
			),
			still("Failed checks of the state", "only a bug of Muster moves it"),
			down("Agents connected", Kill),
			down("Release", End),
		),
		on(Internals, "Process", up("CPU", Hammer), down("Memory; Open files", End)),
		on(
			Internals,
			"History (from the accounting store)",
			up("Events by kind", Run),
			up("Who asked for what", Run, "events"),
		),

		on(
			Pipeline,
			"Now",
			down("Targets up; Agents connected", Kill),
			down("Accounting store", Cut),
			up("Accounting behind; Events not stored yet", Cut),
			noisy("Oldest GPU reading", Slow),
		),
		on(
			Pipeline,
			"Metrics",
			down("Targets", Kill),
			noisy("Time of a scrape", Freeze),
			up("Series of a scrape", Run, "dcgm"),
			still("Jobs without series of their own", "needs more than 1024 jobs on one node"),
		),
		on(
			Pipeline,
			"Agents",
			up("Collections that failed", Kill),
			noisy("Time of a collection", Kill),
			up("Reports", Finish, "acknowledged"),
			up("Reports waiting", Freeze),
			down("Process that owns the jobs; Agents' releases and GPU sources", Kill),
		),
		on(
			Pipeline,
			"Accounting",
			up("Accounting behind", Cut),
			up("Where the writer is", Run, "seq"),
		),

		on(
			Alerts,
			"Now",
			noisy("Critical; Warnings; About to fire", Break),
			noisy("Firing", Break, rowsOf),
			noisy("Notices", Hold),
		),
		on(SLOs, "Objectives", down("Objectives", End), down("Error budget left", Kill, "agents")),
		on(
			SLOs,
			"Over time",
			up("Errors of the last hour; Burn rate", Kill, "agents"),
			noisy("Counted", Hammer, "submit"),
		),
		on(Alerts, "Over time", noisy("What fired when; Time spent firing", Break)),
	)
}

// Markdown is the page of the dashboards: what each panel shows, and what in a
// lab moves it.
func Markdown() string {
	var text strings.Builder
	text.WriteString(
		"# Dashboards\n\nGenerated from `dashboards/` by `make generate`; do not edit.\n\n" +
			"Each panel with what it shows and which action of a lab moves it where; `TestEveryPanelMoves` in `test/e2e` does the actions, in this\n" +
			"order, and looks at every panel. The sum of a panel's values moves, of SQL the number of rows, unless a series or column is named.\n\n" +
			"| action | what is done |\n|---|---|\n",
	)
	for _, doing := range Actions() {
		fmt.Fprintf(&text, "| %s | %s |\n", doing.Action, doing.What)
	}
	moves := map[string]Move{}
	for _, move := range Moves() {
		moves[move.Board+"/"+move.Row+"/"+move.Panel] = move
	}
	for _, board := range All() {
		fmt.Fprintf(
			&text,
			"\n## %s\n\n`%s`. %s\n",
			strings.TrimPrefix(board.Title, "Muster / "),
			board.UID,
			board.Description,
		)
		for _, row := range board.Rows {
			fmt.Fprintf(&text, "\n%s\n\n| panel | shows | moved by |\n|---|---|---|\n", row.Title)
			for _, panel := range row.Panels {
				fmt.Fprintf(
					&text,
					"| %s | %s | %s |\n",
					panel.Title,
					strings.ReplaceAll(panel.Description, "|", "\\|"),
					moves[board.UID+
						"/"+row.Title+"/"+panel.Title],
				)
			}
		}
	}
	return text.String()
}
