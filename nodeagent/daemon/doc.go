// Package daemon is the node agent: it carries the controller's orders to the
// node's shepherd and the facts about the runs back.
//
// Core decides. It is a state machine of one owner that does nothing itself:
// each call returns Effects, which the caller carries out. Agent is that
// caller: one goroutine owns the Core, and around it stand the connection to
// the controller, a launcher that hands the shepherd whatever has gathered in
// one call, collectors of GPU and memory figures, and the spool.
//
// # A run
//
//	ordered -> identifying -> containing -> preparing -> deferred -> tuning -> asked -> living -> ...
//	                                                                        -> held  ----------^
//	... -> closing -> measuring -> cleaning -> reported -> (forgotten)
//
// A run passes through the phases that its site or its order does not ask for.
//
// A run that was submitted without an environment, or asks for a login's, needs the
// home and shell of its user, which are looked up first: a user database that does
// not answer holds up the runs of its users only.
//
// Where the site has extern steps that of the job begins first, because the prolog may
// run in it. A script of several nodes may be deferred until the controller knows that
// the prologs of all of them are over, and orders it again.
//
// Where the site has a prolog it runs before anything else of the job does, and the
// epilog before the node is given back. An
// agent that dies meanwhile runs them again. The end of a script is told when
// it ends, so that an epilog costs the job no time.
//
// A node without the batch script holds its part of the allocation; there is
// nothing to run, and it is given back when the controller says so. A run that
// held GPUs waits for one last reading of them before it is reported.
//
// A step is a run inside of a job: it begins once the job has, its end is told
// with what it used, and a job that ends waits, closing, until its steps have
// been ended. Input and output of steps pass the agent and are not the core's.
//
// # Nothing is lost, nothing is told twice
//
// A report keeps its number until the controller has acknowledged it, which it
// does when the fact is in the ledger; after a broken connection all that are
// left are sent again, in order. The shepherd forgets an exit only when its
// report is acknowledged, so the agent itself needs no durable memory of it:
// whatever dies, the shepherd tells the exit again. Of each attempt the agent
// sends one NodeDone, and repeats it only if the controller asks again for a
// run that it was told the end of.
//
// What the spool keeps is what a restart would otherwise forget: the counters
// of GPUs and memory, whose job a run is, and which cluster the node belongs
// to. Losing it loses figures, not facts.
//
// # GPU time
//
// Usage reports GPU time as no process, idle and busy; the three add up to
// the time for which the run had the device. Time in which nobody looked (an
// agent that was down for long, a device that did not answer) is counted as no
// process, and a device that was never looked at is marked as not measured.
package daemon
