// Package slurm reads a Slurm that runs beside Muster, through the commands
// that every release has: squeue and sinfo (or scontrol) as JSON, scontrol's
// one-line records, sdiag and sshare; or through slurmrestd, where there are no
// commands. One snapshot is taken for each interval, never for a scrape; every
// command or answer has a time and a size that it may not exceed; what could
// not be read keeps its last good value with its age.
package slurm

import "time"

// Snapshot is a Slurm at one moment. It does not change.
type Snapshot struct {
	Cluster, Version string
	Jobs             []Job
	Nodes            []Node
	Partitions       []string
	Reservations     []Reservation
	Licenses         []License
	Shares           []Share
	Sched            Sched
	Sections         []Section
	Commands         []Command
}

// Section is one thing that is read on its own.
type Section struct {
	Name string
	At   time.Time // of the values shown; zero: never read
	Took time.Duration
	Err  error // of the last try
}

// Command counts the runs of one command, or the calls of slurmrestd.
type Command struct {
	Name    string
	Runs    uint64
	Errors  uint64
	Seconds float64
	Buckets []uint64 // cumulative, by Bounds
}

// Bounds are the upper bounds of a command's times in seconds.
func Bounds() []float64 { return []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30} }

// Job is a record of squeue.
type Job struct {
	State, Reason                 string
	Flags                         []string // states that stand beside the base state
	User, Account, QOS, Partition string
	TRES, GPUType                 string
	CPUs, Mem, GPUs, Nodes, Tasks int64 // Tasks: of an array that this record stands for; Mem in MiB
	Held                          bool
	Reservation                   string
	Licenses                      []Count // asked for, and held while it runs
	Eligible, Started, Ended      int64   // seconds since 1970
}

// Node is a record of sinfo.
type Node struct {
	Name, State, Reason      string
	Flags                    []string
	Partitions               []string
	Features, GRES, GRESUsed string
	CPUs, CPUAlloc, CPUIdle  int64
	CPUsForJobs              int64
	Mem, MemAlloc, MemFree   int64 // MiB; MemFree -1: not known
	ReasonAt                 int64
}

// Reservation is a record of scontrol show reservation. State is empty where
// only its times tell.
type Reservation struct {
	Name, State, Nodes, Partition, Flags, Users, Accounts string
	Start, End                                            int64
	NodeCount, Cores                                      int64
	Licenses                                              []Count
}

// Count is so many of a licence.
type Count struct {
	Name string
	N    int64
}

// License is a record of scontrol show license.
type License struct {
	Name                  string
	Total, Used, Reserved int64
}

// Share is a row of sshare.
type Share struct {
	Account, User              string
	RawShares                  int64
	NormShares, NormUsage      float64
	EffectUsage                float64
	RawUsage, FairShare        float64
	HasFairShare, SharesParent bool
}

// Sched is what sdiag prints, by its own words: "Main schedule statistics/Last
// cycle". RPCs and Users are its last tables.
type Sched struct {
	Numbers     map[string]int64
	RPCs, Users []Calls
}

// Calls is a row of sdiag's tables.
type Calls struct {
	Name         string
	Count, Micro uint64
}
