package submit

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// listMPI prints the MPI interfaces. The versions of PMIx are those of this host:
// what counts is the library of the nodes, which is the same where both are
// installed alike.
func listMPI(out io.Writer) error {
	lines := []string{
		"MPI plugin types are...",
		"\t" + spec.MPINone,
		"\t" + spec.MPIPMI2,
		"\tpmix",
	}
	if version := pmixVersion(); version != "" {
		lines = append(lines, "specific pmix plugin versions available: pmix_v"+version)
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// pmixMajor finds the version of the PMIx library in what muster-pmix says of it.
var pmixMajor = regexp.MustCompile(`^muster-pmix: \D*(\d+)\.`)

// pmixVersion is the version of the PMIx library that muster-pmix beside this
// program loads; empty where there is none.
func pmixVersion() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	out, err := exec.Command(filepath.Join(filepath.Dir(self), "muster-pmix"), "--version").Output()
	if err != nil {
		return ""
	}
	if m := pmixMajor.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return ""
}
