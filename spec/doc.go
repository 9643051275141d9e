// Package spec holds the nouns of a cluster: ids, instants, TRES vectors, GPU
// sets, jobs as they are asked for, nodes, partitions, QOS, accounts,
// associations and the configuration that ties them together.
//
// Everything here is a plain value. Nothing reads a clock, a file or a
// network; time is an Instant that the caller passes in. The types carry
// integer CBOR keys because the ledger stores them as they are: a key, once
// released, never changes its meaning and is never used again.
//
// Units are the same everywhere: memory in MiB, time in nanoseconds (Instant,
// Span), energy in millijoules, CPUs as Slurm counts them (hardware threads).
package spec
