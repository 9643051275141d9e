package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// program says what must not be linked into one program, directly or through
// anything it imports.
type program struct {
	dir    string
	never  []string
	reason string
}

// programs is checked with `go list -deps`, which sees through every import.
var programs = []program{
	{
		"cmd/muster",
		[]string{
			mGRPC,
			"github.com/ClickHouse",
			"github.com/ebitengine/purego",
			"github.com/NVIDIA",
			"github.com/hashicorp/raft",
			"github.com/prometheus/client_golang",
			"net/http",
			"crypto/tls",
			"crypto/x509",
			"log/slog",
			"text/template",
		},
		"a command line is paid for in process starts: a binary that links these starts several times slower",
	},
	{
		"cmd/muster-shepherd",
		[]string{
			mGRPC,
			mProtobuf,
			"github.com/ClickHouse",
			"github.com/ebitengine/purego",
			"github.com/NVIDIA",
			"github.com/hashicorp/raft",
			"github.com/prometheus/client_golang",
			"net/http",
		},
		"a shepherd owns the jobs for months: it stays small and has little that could need an update",
	},
	{"cmd/muster-agent", []string{"github.com/ClickHouse", "github.com/hashicorp/raft"},
		"the agent shares its node with the jobs: it carries no database and no ledger"},
	{"cmd/musterd", []string{"github.com/NVIDIA"},
		"the controller has no GPUs: device libraries belong to the agents"},
}

// Links checks what each program links. Programs that do not exist yet are
// left out; the result names those that were looked at.
func Links(root string) (found []Breach, seen []string, err error) {
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(root, p.dir)); err != nil {
			continue
		}
		list, err := goList(root, []string{"-deps", "./" + p.dir})
		if err != nil {
			return found, seen, fmt.Errorf("%s: %w", p.dir, err)
		}
		seen = append(seen, p.dir)
		found = append(found, p.linked(list)...)
	}
	return found, seen, nil
}

func (p program) linked(list []listed) []Breach {
	var breaches []Breach
	for _, never := range p.never {
		var which []string
		for _, l := range list {
			if isWithin(l.ImportPath, never) {
				which = append(which, l.ImportPath)
			}
		}
		if len(which) > 0 {
			breaches = append(
				breaches,
				Breach{
					Rule: "links",
					Path: p.dir,
					Text: fmt.Sprintf(
						"links %s (%s): %s; `go mod why -m` and `go list -deps` show the way in",
						never,
						strings.Join(which[:min(len(which), 3)], ", "),
						p.reason,
					),
				},
			)
		}
	}
	return breaches
}
