// Package durable holds what every store on disk does alike: replace a file so that after a crash or
// a power cut its old or its new content is there whole, make the names in a folder last, compute
// checksums, and say what is damaged or was written by a newer release.
//
// The formats are the stores' own: see ledger/log, ledger/archive, ledger/blob and
// nodeagent/runtime/journal. Each keeps a folder of its first format as test data.
package durable
