// Package cli is the command line: one program that answers as muster and, by
// the name it is called with, as sbatch, squeue, sinfo, scancel, scontrol,
// sacct, sreport, sacctmgr and sdiag.
//
// This package is the table of commands with what is made from all of them:
// dispatch by name, the help, the manual pages, shell completion, the symlinks
// and docs/cli.md. The commands themselves live in rooms below it:
//
//	tool     what every command is made of: Command, Call, Env, Conn
//	opt      options as data, and their parser
//	fetch    requests that several commands make
//	render   nouns as text, tables and JSON (column and tree lay them out)
//	submit   sbatch, srun, salloc, sattach, sbcast, gpu-bind
//	query    squeue, sinfo, sprio, sshare, sdiag, scontrol, scancel, why, gpu
//	acct     sacct, sacctmgr, sreport, sstat, seff, kpi, report, sql
//	local    init, up, down, simulate, whatif and other programs beside this one
//
// The rooms of commands do not import each other: a helper that two of them
// need moves down into tool, fetch or render.
//
// The program is paid for in process starts, so nothing here links gRPC, a
// database or a GPU library, and no package variable is computed at start.
package cli
