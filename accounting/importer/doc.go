// Package importer brings the history of another cluster into the accounting
// store: dumps that sacct printed, and a live Slurm through its commands.
//
// An imported cluster has a ledger of its own, whose UUID follows from the
// cluster's name, so that its rows stand beside those of Muster's own ledger
// and never among them. A run is known by its job number, its user, its name
// and its submission: reading the same lines again adds nothing, an id that
// Slurm gave out a second time is another job, and a run that had not ended
// when it was read first is replaced when it has.
//
// What sacct does not say is not made up: how a run's CPU time and memory were
// spread over its nodes is taken to be even, devices have no UUIDs, and what
// was not measured stays unknown. Use comes from a job's steps: CPU time is
// the job's, or the sum of its steps'; the peak of memory is that of the
// largest step.
package importer
