package spec

import "fmt"

// X11 says on which nodes of a job programs reach the display of who submitted it
// (--x11).
type X11 string

// The values of --x11.
const (
	X11None  X11 = ""
	X11All   X11 = "all"
	X11Batch X11 = "batch" // where the batch script runs
	X11First X11 = "first"
	X11Last  X11 = "last"
)

// ParseX11 reads a value of --x11.
func ParseX11(text string) (X11, error) {
	switch x := X11(text); x {
	case X11None, X11All, X11Batch, X11First, X11Last:
		return x, nil
	}
	return X11None, fmt.Errorf("invalid value %q of --x11: expected all, batch, first or last", text)
}

// Reaches tells whether the display is reached on the node at place index of a job's
// nodes. A batch script runs on the first.
func (x X11) Reaches(index, nodes int) bool {
	switch x {
	case X11All:
		return true
	case X11Batch, X11First:
		return index == 0
	case X11Last:
		return index == nodes-1
	case X11None:
	}
	return false
}
