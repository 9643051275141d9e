package machine

import (
	"log/slog"
	"strings"
)

// Weaknesses are what is weaker on a node than its configuration asks for, and takes nothing from
// the jobs. Each is logged, and the node says it of itself. They are noted while the agent is put
// together, by one goroutine.
type Weaknesses struct {
	log   *slog.Logger
	texts []string
}

// NewWeaknesses makes an empty list.
func NewWeaknesses(logger *slog.Logger) *Weaknesses { return &Weaknesses{log: logger} }

// Note logs and remembers something that is wrong.
func (w *Weaknesses) Note(err error) {
	w.log.Error("part of the configuration cannot be followed", "error", err)
	w.Add(err.Error())
}

// Add remembers something that is logged elsewhere.
func (w *Weaknesses) Add(text string) { w.texts = append(w.texts, text) }

// String is what the node says of itself; empty = nothing is weak.
func (w *Weaknesses) String() string { return strings.Join(w.texts, "; ") }
