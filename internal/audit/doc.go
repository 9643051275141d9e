// Package audit is the audit trail: every change of the cluster as a record in
// the names of the Elastic Common Schema, one JSON object a line.
//
// # Two kinds of records
//
// A change is an event of the ledger. Package ecs makes its record, which is the
// same whenever and by whomever it is made: the identifier follows from the
// event, so that a receiver can tell a repeated record.
//
// A refusal changes nothing and is not in the ledger. Refusals is a path of its
// own for them, bounded in memory and in records a second, that counts what it
// leaves out.
//
// # Delivery
//
// An Exporter follows the ledger for one Target (a file, syslog, the journal)
// and notes how far it has come. A change is delivered at least once: the
// position moves only behind what the target has taken, and a target that is
// away is waited for in the ledger, not in memory.
package audit
