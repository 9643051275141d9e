// Package cgroup gives every run a control group: to find and kill all its
// processes, to limit it, and to read what it used.
//
// It works in one of four modes and says which: v2; hybrid (v1 controllers
// beside a v2 hierarchy, which then tracks the processes); v1 (the freezer
// tracks); none, where nothing is tracked and the caller must walk /proc.
//
// Groups are plain folders below the group that the shepherd itself lives in,
// one for each run, made and removed by a few system calls: making, reading
// and removing one costs about 40 microseconds, so they are not pooled, and
// every counter starts at zero. containerd/cgroups was weighed and left out
// here: it opens a D-Bus connection and an eBPF loader into a program that
// must stay small, and needs several times the system calls for a group.
//
// Where memory is limited (v1), and always in v2, a run's group lies in a group
// of its job's attempt, which has the job's memory; it goes with its last run.
//
// Fencing of devices uses the v1 devices controller where there is one, and an
// eBPF program for each group elsewhere. Where neither works, Enforces says so.
package cgroup
