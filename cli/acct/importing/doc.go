// Package importing brings the history of another cluster into the accounting
// store: muster import, and the observer role of musterd. It is linked into
// musterd, because muster itself links no database.
package importing
