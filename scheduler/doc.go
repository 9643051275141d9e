// Package scheduler decides. Its doors are in scheduler.go: Decide turns a command
// into events on a trial, Pass looks at a frozen state and proposes which jobs start
// and why the others wait, and Explore asks when a job would start if its request
// were another. None of them reads a clock, a file or a random number: the same
// input gives the same output in production, in the simulator and in a what-if.
//
// The packages below, from the bottom up:
//
//	trial      a state to try things on
//	place      nodes, CPUs and devices for one job at one time
//	timeline   what will be free when, and what reservations leave to a job
//	fairshare  fair share
//	limits     QOS and associations
//	order      priority
//	preempt    who may be preempted
//	guarantee  what each account is guaranteed
//	eligible   what a job may use, and what it waits for that is not a resource
//	commit     what both sides do to a trial: start, end, requeue, preempt
//	decide     the commands
//	pass       the loop over the queue
//	explain    why a job waits, and what would help
//	policy     changes of accounts, users and QOS
//
// Package daemon is where I/O begins.
package scheduler
