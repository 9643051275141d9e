package clients

import "slices"

// client is a program that runs Slurm's commands, and its life with a job.
type client struct {
	name    string
	version string // whose behaviour the steps repeat
	what    string // what it is
	open    string // what does not work yet; empty if all of it does
	files   map[string]string
	steps   []step
}

// step is one command line of a client. In its texts {name} stands for what the
// group of that name in an earlier answer matched; {dir} is the client's folder,
// {lab} the cluster's, {user} who runs it, {today} a date and {self} the test's own program.
type step struct {
	does  string // what the client wants of it
	line  string
	stdin string
	code  int
	reads string // the pattern with which the client reads the answer
	each  bool   // reads is for every line
	holds string // or what the answer, a JSON document, must hold: path=value
	waits bool   // the client asks again until the answer is that
}

const sleeper = "#!/bin/bash\nsleep 600\n"

// A client marks its jobs by a name of its own, since all share one cluster.

func clients() []client {
	return slices.Concat(launchers(), trainers(), workflows(), observers())
}
