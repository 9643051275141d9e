package tidy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var quotedPath = regexp.MustCompile("`([a-z_A-Z0-9./*-]+/[a-z_A-Z0-9./*-]*)`")

// TestContributing holds the recipes to the tree: a file or folder that
// CONTRIBUTING.md names must exist. Names in capitals are placeholders.
func TestContributing(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := quotedPath.FindAllStringSubmatch(string(page), -1)
	if len(found) < 20 {
		t.Errorf("CONTRIBUTING.md names %d paths, expected at least 20: does the pattern still match?", len(found))
	}
	for _, m := range found {
		name := m[1]
		if strings.Contains(name, "NAME") {
			continue
		}
		if matches, err := filepath.Glob(filepath.Join(root(t), name)); err != nil || len(matches) == 0 {
			t.Errorf("CONTRIBUTING.md names %s, which does not exist", name)
		}
	}
}
