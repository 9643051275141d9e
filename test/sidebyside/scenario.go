package sidebyside

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// scenario is a file of command lines.
type scenario struct {
	name  string
	lines []line
}

// line is what a user types.
type line struct {
	number   int
	user     string
	text     string
	expected string // why the outputs may differ; empty = they must not
}

// readScenarios reads a folder, by name.
func readScenarios(dir string) ([]scenario, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var out []scenario
	for _, path := range paths {
		one, err := readScenario(path)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func readScenario(path string) (scenario, error) {
	out := scenario{name: strings.TrimSuffix(filepath.Base(path), ".txt")}
	file, err := os.Open(path)
	if err != nil {
		return out, err
	}
	defer file.Close()
	user := ""
	in := bufio.NewScanner(file)
	for number := 1; in.Scan(); number++ {
		text := strings.TrimSpace(in.Text())
		why, isWhy := strings.CutPrefix(text, "! ")
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case !strings.HasPrefix(in.Text(), " "):
			user = text
		case user == "":
			return out, fmt.Errorf("%s:%d: nobody types this line: a user's name is missing", path, number)
		case isWhy && len(out.lines) == 0:
			return out, fmt.Errorf("%s:%d: this reason belongs to no command", path, number)
		case isWhy:
			out.lines[len(out.lines)-1].expected = why
		default:
			out.lines = append(out.lines, line{number: number, user: user, text: text})
		}
	}
	return out, in.Err()
}

// jobs are the numbers of a cluster's jobs, in the order in which a scenario submitted them.
type jobs struct{ ids []string }

// submitted finds new jobs in what a command printed.
func (j *jobs) submitted(output string) {
	submission := regexp.MustCompile(
		`(?m)^(?:Submitted batch job |salloc: Granted job allocation |srun: job )(\d+)`)
	for _, found := range submission.FindAllStringSubmatch(output, -1) {
		if !j.has(found[1]) {
			j.ids = append(j.ids, found[1])
		}
	}
}

func (j *jobs) has(id string) bool {
	for _, known := range j.ids {
		if known == id {
			return true
		}
	}
	return false
}

// fillIn puts the numbers into a command line: $1, $2, ...
func (j *jobs) fillIn(text string) string {
	return regexp.MustCompile(`\$[1-9]`).ReplaceAllStringFunc(text, func(ref string) string {
		n, _ := strconv.Atoi(ref[1:]) // one digit
		if n > len(j.ids) {
			return ref
		}
		return j.ids[n-1]
	})
}

// normalise makes the outputs of two clusters comparable.
func (j *jobs) normalise(output string) string {
	for i, id := range j.ids {
		name := fmt.Sprintf("J%d", i+1)
		output = regexp.MustCompile(`\b`+id+`\b`).ReplaceAllString(output, name)
		output = regexp.MustCompile(`\b`+id+`_`).ReplaceAllString(output, name+"_")
	}
	for _, rule := range []struct{ pattern, by string }{
		{`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b`, "INSTANT"},
		{`\b00:0[01]:\d\d\b`, "SHORT"},
		{`(?m)(^| )0:\d\d\b`, "${1}SHORT"},
		{`(?m)[ \t]+$`, ""},
	} {
		output = regexp.MustCompile(rule.pattern).ReplaceAllString(output, rule.by)
	}
	// Columns move with the widths of what was replaced.
	return regexp.MustCompile(` {2,}`).ReplaceAllString(output, "  ")
}
