// Package top is `muster top`: the queue, nodes, GPUs and one job on a full
// screen, which updates itself.
//
// model.go is what the screen shows and what keys do to it, as functions of
// values; screen.go and rows.go write it; command.go connects it with a
// terminal and the controller. Nothing but command.go waits for anything.
package top
