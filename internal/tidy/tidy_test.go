package tidy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/internal/tidy"
)

const module = "github.com/musterhpc/muster"

// root is the top of the repository: this package's folder is two below it.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the repository is not where this test expects it: %v", err)
	}
	return dir
}

// repository reads and type-checks the repository once for all tests.
var repository = sync.OnceValues(func() (*tidy.Tree, error) {
	tree, err := tidy.Load("../..", module)
	if err != nil {
		return nil, err
	}
	return tree, tree.Check("../..")
})

func tree(t testing.TB) *tidy.Tree {
	t.Helper()
	tr, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestHouse holds the repository to every rule, one subtest for each, so that
// a breach names its rule in the test's name.
func TestHouse(t *testing.T) {
	byRule := map[string][]tidy.Breach{}
	for _, b := range tidy.Run(tree(t), tidy.Exceptions) {
		byRule[b.Rule] = append(byRule[b.Rule], b)
	}
	for _, name := range tidy.Names() {
		t.Run(name, func(t *testing.T) { fail(t, byRule[name]) })
	}
}

func fail(t *testing.T, breaches []tidy.Breach) {
	t.Helper()
	for _, b := range breaches {
		t.Error(b)
	}
}

func TestText(t *testing.T) {
	breaches, err := tidy.Text(root(t))
	if err != nil {
		t.Fatal(err)
	}
	fail(t, breaches)
}

func TestLinks(t *testing.T) {
	breaches, seen, err := tidy.Links(root(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("looked at %s", strings.Join(seen, " "))
	fail(t, breaches)
}

func TestDecisions(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root(t), "docs", "decisions", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	cmd := exec.Command("go", "list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -m all: %v", err)
	}
	fail(t, tidy.Decisions(tree(t), strings.Fields(string(out)), texts))
}

// TestInvariants holds docs/invariants.md to the code: each check it names
// exists in ledger/state, and none is left out.
func TestInvariants(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "invariants.md"))
	if err != nil {
		t.Fatal(err)
	}
	fail(t, tidy.Invariants(tree(t), string(page)))
}
