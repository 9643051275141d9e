// Package sim is a deterministic simulation: one goroutine, one heap of future
// events, one seed. The real scheduler and the real fold run in it against
// simulated disks, networks, nodes, users and faults.
//
// A run has two phases. First users submit, cancel and hold, administrators
// drain, reserve, change partitions, nodes and the configuration, nodes reboot,
// fall silent, describe themselves or are deleted, messages are late, lost or
// duplicated, and the controller dies with batches that were not durable yet.
// Then the faults cease, and everything that can run must end within a bound.
//
// One controller or three keep the ledger's log. A leader that the others cannot hear is
// overtaken, but acts as the leader for a while, because nodes and users still reach it.
//
// Checks compare with what really happened in the world
// (which processes lived when, which submissions were acknowledged), never
// with the scheduler's own state. A failure names its seed; the same seed
// gives the same run, byte for byte.
//
// Three parts replace the product's. Consensus between controllers is
// a second implementation of raft's rules (group.go), because the product's library
// has goroutines and timers of its own. The node keeps the contents of a shepherd's
// journal and an agent's outbox in a page of code instead of running
// nodeagent/daemon.Core. Core is deterministic too, but it speaks the
// API's protocol with signed dispatches and numbered reports, whose
// other side is the hub of scheduler/daemon with its goroutines and streams.
// Core can run here once the hub's translation is a room of its own. Until then,
// the tests of Core and of whole programs cover this. The controller
// replaces the writer of scheduler/daemon in the same way: it decides, makes
// durable and folds in the same order.
package sim
