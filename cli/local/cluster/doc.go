// Package cluster sets up, starts and stops a cluster on this machine: muster
// init, muster up and muster down. It is linked into musterd, which muster runs
// for them, so that muster itself starts without these libraries.
package cluster
