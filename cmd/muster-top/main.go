// Command muster-top is what `muster top` runs: a program of its own, so that
// every other command starts without the library that drives the terminal.
package main

import (
	"os"

	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/top"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(tool.RunCommand(tool.OS(version), top.Top(), os.Args[1:])) }
