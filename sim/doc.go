// Package sim is the deterministic world: one goroutine, one heap of things
// to happen, one seed. The real scheduler and the real fold run in it against
// simulated disks, networks, nodes, users and faults.
//
// A run has two phases. First users submit, cancel and hold, administrators
// drain, nodes reboot or fall silent, messages are late, lost or doubled, and
// the controller dies with batches it had not yet made durable. Then the
// faults cease, and everything that can run must end within a bound.
//
// Everything checked is checked against what really happened in the world
// (which processes lived when, which submissions were acknowledged), never
// against the scheduler's own words. A failure names its seed; the same seed
// gives the same run, byte for byte.
package sim
