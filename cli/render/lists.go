package render

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// JobStateList are the states of jobs, short and long, as --helpstate prints them.
func JobStateList() string {
	var text strings.Builder
	for _, state := range spec.JobStates() {
		fmt.Fprintf(&text, "%-4s%s\n", state.Compact(), state)
	}
	text.WriteString("CG  COMPLETING\n")
	return text.String()
}

// ReasonList are the reasons why jobs wait, as --helpreason prints them; docs/reasons.md explains
// each.
func ReasonList() string {
	var text strings.Builder
	for _, doc := range spec.ReasonDocs() {
		text.WriteString(string(doc.Code) + "\n")
	}
	return text.String()
}
