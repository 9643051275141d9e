// Command muster is the command line: muster itself and, through symlinks,
// sbatch, squeue, sinfo, scancel, scontrol, sacct, sreport, sacctmgr and sdiag.
package main

import (
	"os"

	"github.com/musterhpc/muster/cli"
	"github.com/musterhpc/muster/cli/tool"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(cli.Main(tool.OS(version))) }
