// Package cli is the command line: one program that answers as muster and, by
// the name it is called with, as sbatch, squeue, sinfo, scancel, scontrol,
// sacct, sreport, sacctmgr and sdiag.
//
// A command is a row of a table (commands.go): its name, options, examples and
// environment are data, from which the parser, --help, the manual pages, shell
// completion and docs/cli.md are all made. A command asks the controller for
// messages and hands them to a renderer; renderers (…_text.go, …_json.go) are
// functions of messages and know no connection. What a command sees of the
// world stands in Env, so that tests can be the world.
//
// The program is paid for in process starts, so nothing here links gRPC, a
// database or a GPU library, and no package variable is computed at start.
package cli
