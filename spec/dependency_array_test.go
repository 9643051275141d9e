package spec

import "testing"

// TestDependencyOfAnArray: a term without a task names every task of an array.
func TestDependencyOfAnArray(t *testing.T) {
	for want, term := range map[string]DependencyTerm{
		"afterok:69_*":  {Kind: AfterOK, Job: 69, Task: NoTask},
		"after:69_*+5":  {Kind: After, Job: 69, Task: NoTask, Delay: 5 * Minute},
		"afterany:69_1": {Kind: AfterAny, Job: 69, Task: 1},
		"singleton":     {Kind: Singleton, Task: NoTask},
	} {
		if got := term.StringOfArray(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
