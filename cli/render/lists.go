package render

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// JobStateList are the states of jobs, short and long, as --helpstate prints them.
func JobStateList() string {
	var b strings.Builder
	for _, state := range spec.JobStates() {
		fmt.Fprintf(&b, "%-4s%s\n", state.Compact(), state)
	}
	b.WriteString("CG  COMPLETING\n")
	return b.String()
}

// ReasonList are the reasons why jobs wait, as --helpreason prints them; docs/reasons.md explains
// each.
func ReasonList() string {
	var b strings.Builder
	for _, doc := range spec.ReasonDocs() {
		b.WriteString(string(doc.Code) + "\n")
	}
	return b.String()
}
