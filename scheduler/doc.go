// Package scheduler decides. Decide turns a command into events on a trial;
// Pass looks at a frozen state and proposes which jobs start, why the others
// wait and when they will start; Commit turns a proposal into events if it
// still holds. None of them reads a clock, a file or a random number: the
// same input gives the same output in production, in the simulator and in a
// what-if.
//
// The sub-packages are the steps of a pass in the order of their names'
// first use: order (priority), limits (QOS and associations), place (nodes,
// CPUs, devices), reserve (the timeline of backfill), explain (why not), and
// trial (a state to try things on). Package daemon is where I/O begins.
package scheduler
