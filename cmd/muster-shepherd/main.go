//go:build linux

// Command muster-shepherd owns the job processes of one node. The node agent
// starts it and speaks to it over a unix socket; it survives the agent.
package main

import (
	"os"

	"github.com/musterhpc/muster/nodeagent/runtime/shepherd"
)

func main() { os.Exit(shepherd.Main(os.Args[1:], os.Stdout, os.Stderr)) }
