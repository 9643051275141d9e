// Package shepherd owns the processes of a node's jobs. One small process of
// it runs on every node; the agent tells it over a unix socket what to start
// and stop, and may die and come back at any time.
//
// What it promises:
//
//   - A run is recorded on disk before it is forked, so one (job, attempt,
//     step) starts once, however often it is asked for and whoever restarts.
//   - An accepted run gives exactly one exit, kept until acknowledged.
//   - When the shepherd itself is killed the jobs go on. The next one reads
//     the journal, finds the processes by pid and start time (or by control
//     group and environment mark, if the record of the start is missing) and
//     watches them through pidfds. Linux 6.15 and later keep the exit status
//     of a process for whoever holds its pidfd, so such an exit is still
//     known. An end that nobody saw is reported as lost, never invented.
//
// Weighed against it: a waiting helper for each job would keep every status
// through a death of the shepherd, but costs one more fork and exec for each
// job (more than the shepherd's whole own work), for a loss that needs both a
// killed shepherd and a job that ends within the same second.
//
// The package links neither gRPC nor protobuf, which a test checks.
package shepherd
