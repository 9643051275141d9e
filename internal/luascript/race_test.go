//go:build race

package luascript

// The race detector's own memory lies in the address space that the child may have: it
// ends the child before a script meets the limit.
const underRaceDetector = true
