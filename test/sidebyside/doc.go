// Package sidebyside runs the same command lines on a real Slurm and on Muster, and compares
// what they print.
//
// `make side-by-side` starts both (cluster.sh) and runs every scenario of the folder scenarios.
// A scenario is a file of command lines with the name of the user who types them:
//
//	# What it is about.
//	alice
//	  sbatch -a 1-3 --wrap true
//	  @settle
//	  sacct -nXP -j $1 -o jobid,state
//	    ! 25.11 prints another column
//
// $1 is the number of the first job that was submitted, $2 that of the second. A submission that
// one of the two may refuse begins with a name: "big: sbatch -n999 --wrap true". It has no
// number, so that those of others do not shift, and $big is its job, or the word none. @settle waits
// until no job waits or runs and accounting has all of them; @until TEXT COMMAND runs a command
// until its output contains a text. A line with ! says that a difference is expected, and why: the
// real Slurm is that of Debian 12, 22.05, and Muster follows 25.11. Such a command whose outputs
// are equal is an error too, so that the list stays true.
//
// Before they are compared, outputs are normalised: numbers of jobs by the order of submission,
// instants, short durations, and what names the machine.
package sidebyside
