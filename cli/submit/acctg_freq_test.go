package submit

import (
	"testing"

	"github.com/musterhpc/muster/cli/tool"
)

// TestAcctgFreq: seconds between samples, bare or named; what is not sampled
// cannot be asked for, and says so.
func TestAcctgFreq(t *testing.T) {
	for text, want := range map[string]int64{"30": 30 * tool.Second, "task=5": 5 * tool.Second, "TASK=5": 5 * tool.Second, "task=0": -1, "0": -1, "energy=0,task=7,network=0": 7 * tool.Second, "filesystem=0": 0} {
		if got, err := acctgFreq(text); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": ": want a number of seconds, or 0 for never", "task=": "task=: want a number of seconds, or 0 for never", "task=-1": "task=-1: want a number of seconds, or 0 for never",
		"task=1:30": "task=1:30: want a number of seconds, or 0 for never", "foo=2": "foo=2: the kinds are task, energy, network and filesystem",
		"energy=3": "energy=3: energy is counted from start to end and not sampled job by job", "task=1,filesystem=3": "filesystem=3: what a job does to the filesystem is not sampled",
	} {
		if got, err := acctgFreq(text); err == nil || err.Error() != want {
			t.Errorf("%q: %d, %v, want %s", text, got, err, want)
		}
	}
}
