// Package replay runs a workload through the production scheduler in virtual
// time: the jobs of a trace or of a site's own history are submitted when they
// were, end when they did, and the pass decides what starts in between. What
// comes out is a schedule and its figures.
//
// Nothing here decides where or when a job starts. The classic policies are
// parameters of the one pass (scheduler.Discipline) and of when it runs
// (Rule), so that a figure of `muster simulate` is one of the scheduler that
// runs in production.
package replay
