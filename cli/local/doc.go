// Package local holds the commands that need no controller: those that set a
// cluster up on this machine, and those that simulate one.
package local
