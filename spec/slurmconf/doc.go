// Package slurmconf reads Slurm's own configuration files: slurm.conf,
// gres.conf, cgroup.conf, job_container.conf, mpi.conf, acct_gather.conf and slurmdbd.conf. Sites have them and every
// administrator of the field can read them, so Muster is described by them.
//
// The readers are strict. Every key that Slurm knows is in a table here and is
// one of four kinds:
//
//   - implemented: its value is in the typed result;
//   - meaningless: Muster has nothing that it could set; a [Note] says why;
//   - unsupported: a [Warning] says what will not happen;
//   - refused: ignoring it would weaken isolation, security or limits, so it
//     is an [Error] unless its value is the one that asks for nothing.
//
// A key that is in no table is an Error that names the nearest key. Nothing is
// accepted in silence and nothing stops at the first fault: each reader returns
// every [Problem] with its file and line, sorted.
//
// Files come from an [io/fs.FS] rooted at "/" (Include may name any absolute
// path), so that nothing here touches a disk. A file is read as Slurm reads it:
// '#' begins a comment, also after a value and after the backslash that
// continues a line; keys do not depend on case; values with blanks stand in
// double quotes.
package slurmconf
