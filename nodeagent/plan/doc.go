// Package plan is the node agent's judgement: it compares the runs that the
// controller wants on this node with the runs that the shepherd really has,
// and says what to do. It also holds the nouns that agent and shepherd share
// (RunKey, RunSpec, Exit, Observed), the expansion of file name patterns and
// the environment of a batch script.
//
// A run is one attempt of one step of one job on this node. Its life:
//
//	desired --launch--> starting --> running --> exited --ack--> forgotten
//
// Three rules hold everything up:
//
//   - A key is launched once. A run that the controller believes started and
//     that the shepherd does not know is lost, never launched again.
//   - An exit is reported until the controller has confirmed it; only then is
//     the shepherd told to forget it.
//   - Processes nobody asked for are reported as orphans, and killed only
//     when the list of wishes is complete, the site allows it and a grace
//     has passed.
//
// The package is pure: no clock, no I/O, no goroutine; instants come in as
// arguments and no result depends on the order of a map.
package plan
