package daemon

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
)

// Effects is what a step of the Core asks for. Everything in it may be done
// late or twice; what is never done is asked for again by a later Resync.
type Effects struct {
	Identify  []Identify       // look the account of a run's user up, and answer with Identified
	Prepare   []Script         // run the prolog, and answer with Prepared
	Clean     []Script         // run the epilog, remove the private folders, and answer with Cleaned
	Show      []Show           // give the job of an extern step a display, and answer with Shown
	Abort     []plan.RunKey    // end the prolog of a run that is not to begin
	Prepared  []plan.RunKey    // tell the controller that the prologs of these are over
	Tune      []Tune           // set the clocks of GPUs, and answer with Tuned
	Launch    []plan.RunSpec   // shepherd: start these
	Withdraw  []plan.RunKey    // take back what the shepherd was not asked yet; answer with Withdrawn
	Terminate []plan.Terminate // shepherd
	Signal    []Signal         // shepherd
	Tell      []Line           // shepherd
	Forget    []plan.RunKey    // shepherd: these exits are recorded
	Send      bool             // there are new reports
	List      bool             // a list of the shepherd's runs is wanted, for Resync
	Collect   bool             // a collection of the GPUs is wanted now
	CountNode bool             // a reading of the node's counters is wanted now
	Jobs      bool             // which jobs hold the node has changed
	Save      bool             // the spool must not wait
	Acked     int              // reports acknowledged
	Leave     string           // end the connection, and why
	TellKept  bool             // tell the controller what is kept of the runs that it does not know
	Register  string           // connect again at once, to register what has changed, and what that is
	Reboot    bool             // the node is to be rebooted
	// Samples are readings to be kept, each a series of its own. What is not
	// kept is not asked for again.
	Samples []*apiv1.GpuSeries
	Usage   []*apiv1.UsageSeries
}

// Identify asks for the account of a run's user.
type Identify struct {
	Key plan.RunKey
	UID uint32
}

// Script is a run of the node's prolog or epilog.
type Script struct {
	Key plan.RunKey
	Env []string // nil: there is no program to run
	// In is the run in whose control group the program is; the zero key: in the
	// agent's own.
	In plan.RunKey
}

// Tune asks for the clocks of a run's GPUs.
type Tune struct {
	Key  plan.RunKey
	GPUs []string // UUIDs
	Freq string   // as --gpu-freq has it
}

// Signal is a signal to the processes of a run.
type Signal struct {
	Key    plan.RunKey
	Number int32
	Scope  plan.Scope
}

// Line is for the error output of a run.
type Line struct {
	Key  plan.RunKey
	Text string
}
