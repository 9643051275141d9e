// Command measure counts how readable a Go tree is, by package and in all, so
// that this repository can be compared with others and with itself a year ago.
//
//	go run ./internal/tidy/measure            this repository
//	go run ./internal/tidy/measure ../raft    any other Go tree
//	go run ./internal/tidy/measure -places    where each finding is
//
// The figures are indications, not limits: no test fails because of them. What
// each one counts is printed below the table and defined in package-level
// constants and functions of figures.go and arrows.go. Only production code is
// read: no tests, no generated files, no testdata.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/internal/tidy"
)

func main() {
	places := flag.Bool("places", false, "print the place of each finding instead of the table")
	only := flag.String(
		"package",
		"",
		"restrict the output to packages whose folder starts with this",
	)
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	if err := run(root, *only, *places); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(root, only string, places bool) error {
	module, err := moduleName(root)
	if err != nil {
		return err
	}
	tree, err := tidy.Load(root, module)
	if err != nil {
		return err
	}
	if err := tree.CheckStandard(root); err != nil {
		return err
	}
	result := measureTree(tree, only)
	if places {
		for _, p := range result.places {
			fmt.Println(p)
		}
		return nil
	}
	fmt.Print(result.renderTable())
	subjects, err := commitSubjects(root)
	if err != nil {
		fmt.Printf("\ncommit subjects: not measured: %v\n", err)
	} else {
		fmt.Print("\n", measureSubjects(subjects))
	}
	fmt.Print("\n", definitions)
	return nil
}

// moduleName reads the module path from the go.mod of a tree.
func moduleName(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("%s is not the root of a Go module: %w", root, err)
	}
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.Trim(strings.TrimSpace(name), `"`), nil
		}
	}
	return "", fmt.Errorf("%s/go.mod has no module line", root)
}

// commitSubjects lists the subjects of all commits that are not merges.
func commitSubjects(root string) ([]string, error) {
	cmd := exec.Command("git", "log", "--no-merges", "--format=%s")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git log: %w", err)
	}
	subjects := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	if len(subjects) == 1 && subjects[0] == "" {
		return nil, errors.New("no commits")
	}
	return subjects, nil
}
