// Package effects proves by their effect that names of Slurm work: options, columns, keys.
//
// The folder checks has a file for each family of names. A check begins with the commands for
// which it holds and the option with its value. Its body is a script (checks/words.sh has its
// words) that finds the option in "$@". The line with = is a regular expression for all that the
// script prints then:
//
//	sbatch srun salloc: --constraint=right vs --constraint=left
//	  shown "$@" | field NodeList
//	  = node2
//
// A column needs no script: words.sh shows it of a job that has something in it. No other job is
// compared, since what it expects is what that job was given:
//
//	field squeue sacct: Account
//	  = other
//
// A line @alone keeps the other checks away, where it matters what else the nodes do.
//
// TestEffects runs each script twice in a lab. Without the option, or with what stands behind
// "vs", it must print something else: an option that is accepted and ignored fails.
// docs/compatibility.md counts the names that have a check, and docs/gen holds the number of
// those that have none, which may only fall.
package effects

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Name is what a check proves: an option of a command, for example.
type Name struct {
	Kind    string // as in docs/gen/surface.tsv: option, field, letter, update
	Command string
	Name    string
}

// Check proves one name, for each of its commands.
type Check struct {
	At       string // FILE:LINE
	Kind     string
	Commands []string
	Name     string
	With     string // the words under test, as a shell reads them
	Versus   string // what is run instead for comparison; empty = nothing
	Script   string
	Alone    bool // no other check runs at the same time
	Want     *regexp.Regexp
}

// Read reads the checks of a folder.
func Read(dir string) ([]Check, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var checks []Check
	for _, path := range paths {
		if checks, err = readFile(checks, path); err != nil {
			return nil, err
		}
	}
	return checks, nil
}

// Names lists what the checks prove.
func Names(checks []Check) map[Name]bool {
	proved := map[Name]bool{}
	for i := range checks {
		name := strings.TrimPrefix(checks[i].Name, "--")
		if checks[i].Kind != "letter" { // of which %a and %A are two
			name = strings.ToLower(name)
		}
		for _, command := range checks[i].Commands {
			proved[Name{checks[i].Kind, command, name}] = true
		}
	}
	return proved
}

var (
	// heading is COMMANDS: --OPTION, or KIND COMMANDS: NAME.
	heading = regexp.MustCompile(`^(?:(field|letter|update) )?([a-z][a-z ]*): ((?:--)?([A-Za-z%.][^\s=]*).*)$`)
	versus  = " vs "
)

func readFile(checks []Check, path string) ([]Check, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	open := false // a check whose expectation is still to come
	for number := 1; lines.Scan(); number++ {
		at := fmt.Sprintf("%s:%d", filepath.Base(path), number)
		text := lines.Text()
		want, isWant := strings.CutPrefix(strings.TrimSpace(text), "= ")
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case !strings.HasPrefix(text, " "):
			found := heading.FindStringSubmatch(text)
			if found == nil || open {
				return nil, fmt.Errorf("%s: a check begins with COMMANDS: --OPTION and ends with = PATTERN", at)
			}
			check := Check{At: at, Kind: cmp.Or(found[1], "option"), Commands: strings.Fields(found[2]), Name: found[4]}
			check.With, check.Versus, _ = strings.Cut(found[3], versus)
			checks = append(checks, check)
			open = true
		case !open:
			return nil, fmt.Errorf("%s: this line belongs to no check", at)
		case isWant:
			pattern, err := regexp.Compile(`^(?s:` + want + `)\s*$`)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			checks[len(checks)-1].Want = pattern
			open = false
		case strings.TrimSpace(text) == "@alone":
			checks[len(checks)-1].Alone = true
		default:
			checks[len(checks)-1].Script += text + "\n"
		}
	}
	if open {
		return nil, fmt.Errorf("%s: the last check has no line with =", path)
	}
	return checks, lines.Err()
}
