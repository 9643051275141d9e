// Package slurmapi serves Slurm's REST API: /slurm/v0.0.43 to /slurm/v0.0.45,
// /slurmdb and /util, whose paths and documents are the table of cli/schema.
//
// A path that shows something runs the command that shows the same, with --json,
// against the services of this process, as whoever asks: the answer of
// GET /slurm/v0.0.44/jobs is the output of squeue --json=v0.0.44. A path that
// changes something reads its body by the table, and makes the same request of the
// same service as the command does. So nobody can do over REST what the services
// would refuse him elsewhere, and there is one serializer.
//
// [API.routes] says for each path of the table how it is answered, or why it is
// refused; docs/rest.md is made from it.
package slurmapi
