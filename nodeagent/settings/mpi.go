package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// pmixMajor finds the version of the PMIx library in what muster-pmix says of it.
var pmixMajor = regexp.MustCompile(`^muster-pmix: \D*(\d+)\.`)

// findPMIx finds out whether the node can serve PMIx: by muster-pmix beside the
// shepherd, once it has shown that it finds its library.
func (s *Settings) findPMIx() plan.PMIxNode {
	node := plan.PMIxNode{Base: s.Cluster.MPI.Folder, Env: s.Cluster.MPI.Env}
	program := filepath.Join(filepath.Dir(s.Shepherd), "muster-pmix")
	out, err := exec.Command(program, "--version").CombinedOutput()
	said := strings.TrimSpace(string(out))
	match := pmixMajor.FindStringSubmatch(said)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		node.Why = fmt.Sprintf(
			"%s is missing; build Muster where libpmix-dev is installed and install muster-pmix there, with libpmix2 on the node",
			program,
		)
	case err != nil:
		node.Why = fmt.Sprintf("%s does not run: %v: %s; is libpmix2 installed on the node?", program, err, said)
	case match == nil:
		node.Why = fmt.Sprintf("%s --version says %q, which names no version", program, said)
	default:
		node.Program, node.Version = program, match[1]
	}
	return node
}
