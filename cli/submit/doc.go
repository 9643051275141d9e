// Package submit holds the commands that start work: sbatch, srun, salloc,
// sattach, sbcast, and gpu-bind, which srun's tasks run under.
//
// The options of a job are one table (job_table.go) for sbatch, srun and
// salloc. A submission is a request (request.go) with an environment and,
// from sbatch, a script. srun and salloc wait for an allocation, and the steps
// in it are run and followed by stepRun (step_run.go).
package submit
