//go:build planted_stale_answers

package confirm

// answersStale has a controller answer without confirming its lead. Only a test builds it so, to see that
// the checker of histories finds it.
const answersStale = true
