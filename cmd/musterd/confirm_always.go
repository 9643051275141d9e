//go:build !planted_stale_answers

package main

// answersStale plants a bug that the tests must find; see confirm_planted.go.
const answersStale = false
