package spec

// A promise is the start that the plan gave a job when the job first came to
// the front of the queue. This file says when one is kept. The totals of the
// fold, the figures of accounting and their documentation all follow it.

// PromiseGrace is how much later than promised a job may start. Nodes are given
// back when their epilogs end, and the pass that follows takes its time: neither
// is a delay that somebody planned with.
const PromiseGrace = Minute

// PromiseDue is the last instant at which a start keeps a promise; from the next
// on the promise is broken, whether the job starts or not.
func PromiseDue(promised Instant) Instant { return promised.Add(PromiseGrace) }
