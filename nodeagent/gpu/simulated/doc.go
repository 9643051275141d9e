// Package simulated is a GPU provider without GPUs: devices that a site
// declares, with a load that follows from the jobs on them.
//
// It serves the lab and every test on a machine without a GPU. Everything it
// says is a function of the node's name, the declarations, the assignments of
// jobs and the instants it is asked at: no clock, no randomness, no floating
// point. The integrals (energy, throttled time) are exact: reading once an hour
// or once a millisecond gives the same numbers at the same instant.
//
// The load of a job comes from its uid, or from a text the job carries, see
// ParseLoad. A provider starts its counters at zero, as a driver does when it
// is loaded.
package simulated
