// Package pmi is the server's side of the PMI-1 and PMI-2 wire protocols, by
// which the processes of an MPI program find each other: each puts what the
// others must know of it, all wait at a fence, and then each can get what any
// has put. A task speaks over a socket that it inherits (PMI_FD).
//
// A Server serves the tasks of one node. At a fence it gives out what they have
// put; once it is told what those of all nodes have, it lets them go on. How
// that travels between the nodes is not its business: Merge makes one message
// of the nodes' messages.
//
// Not served, and refused with an error to the program: spawning further
// processes, and publishing names.
package pmi
