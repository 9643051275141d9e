package tidy

import "strings"

// Exception takes one kind of breach off one file or folder, with the reason.
type Exception struct {
	Rule string
	Path string // file or folder; everything below a folder is meant
	Text string // part of the breach's text, so that only this one is taken off
	Why  string
}

func (e Exception) matchesBreach(breach Breach) bool {
	return e.Rule == breach.Rule && isWithin(breach.Path, e.Path) &&
		strings.Contains(breach.Text, e.Text)
}

// Exceptions of this repository.
var Exceptions = []Exception{
	{
		"pure",
		"spec/format",
		"must not import time",
		"calendar arithmetic (dates, months, time zones) on instants that are passed in; no clock is read",
	},
	{
		"size",
		"internal/transport/grpcx",
		"unaryClientErrors takes 7 parameters",
		"gRPC's type for client interceptors has seven",
	},
	{
		"output",
		"ledger/log/hclog.go",
		"imports log",
		"raft's logger interface hands out a standard logger",
	},
}
