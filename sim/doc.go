// Package sim is the deterministic world: one goroutine, one heap of things
// to happen, one seed. The real scheduler and the real fold run in it against
// simulated disks, networks, nodes, users and faults.
//
// A run has two phases. First users submit, cancel and hold, administrators
// drain, reserve, change partitions, nodes and the configuration, nodes reboot,
// fall silent, describe themselves or are deleted, messages are late, lost or
// doubled, and the controller dies with batches it had not yet made durable.
// Then the faults cease, and everything that can run must end within a bound.
//
// Everything checked is checked against what really happened in the world
// (which processes lived when, which submissions were acknowledged), never
// against the scheduler's own words. A failure names its seed; the same seed
// gives the same run, byte for byte.
//
// Two things stand in for the real ones. The node keeps what a shepherd's
// journal and an agent's outbox keep, in a page of code, instead of running
// nodeagent/daemon.Core: that one is as deterministic, but it speaks the
// protocol of the API with signed dispatches and numbered reports, which on the
// other side the hub of scheduler/daemon does, with its goroutines and streams.
// It can come here when the hub's translation is a room of its own. Until then
// the tests of Core and of whole programs hold what this cannot. The controller
// stands in for the writer of scheduler/daemon likewise: it decides, makes
// durable and folds in the same order.
package sim
