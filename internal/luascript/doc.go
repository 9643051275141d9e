// Package luascript runs the site's Lua scripts: job_submit.lua, which sees every job before
// it becomes a command, and cli_filter.lua, which sees the options of sbatch, srun and salloc.
//
// A script computes and says what it thinks; it reaches nothing. It has the language, and
// string, table, math, coroutine and the clock of os; no files, no processes, no modules. What
// it changes is a request like any other and is checked as one.
//
// job_submit.lua runs in a child process ([Serve]), one for a controller, because two things
// cannot be bounded inside of a process that must live: the memory of a script, and the time
// of a pattern that backtracks. [Runner] starts the child, gives it one job at a time and ends
// it when an answer is late. cli_filter.lua runs in the user's own command ([Filter]).
//
//	script.go      a script that is loaded: its sandbox and its limits
//	library.go     the table slurm: logs, messages, numbers
//	jobdesc.go     the fields of job_desc, of a submission and of an update
//	jobsubmit.go   slurm_job_submit and slurm_job_modify
//	serve.go       the child
//	runner.go      the controller's end of it
//	clifilter.go   slurm_cli_setup_defaults, slurm_cli_pre_submit, slurm_cli_post_submit
package luascript
