//go:build planted_stale_answers

package confirm

import "time"

// answersStale has a controller answer without confirming its lead. Only a test builds it so, to see that
// the checker of histories finds it.
const answersStale = true

// HearLate has an overtaken leader serve for a while after raft has told it. Without the pause it
// depends on which goroutine runs first whether a call is answered from the old state, and the test
// could not tell a checker that misses it from a leader that was quick.
func HearLate() { time.Sleep(2 * time.Second) }
