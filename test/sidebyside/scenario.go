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
	name     string // of the job that the line submits; empty = it has a number
	expected string // why the outputs may differ; empty = they must not
}

// readScenarios reads a folder, by name.
func readScenarios(dir string) ([]scenario, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var scenarios []scenario
	for _, path := range paths {
		one, err := readScenario(path)
		if err != nil {
			return nil, err
		}
		scenarios = append(scenarios, one)
	}
	return scenarios, nil
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
		reason, isWhy := strings.CutPrefix(text, "! ")
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case !strings.HasPrefix(in.Text(), " "):
			user = text
		case user == "":
			return out, fmt.Errorf("%s:%d: nobody types this line: a user's name is missing", path, number)
		case isWhy && len(out.lines) == 0:
			return out, fmt.Errorf("%s:%d: this reason belongs to no command", path, number)
		case isWhy:
			out.lines[len(out.lines)-1].expected = reason
		default:
			one := line{number: number, user: user, text: text}
			if found := namedSubmission.FindStringSubmatch(text); found != nil {
				one.name, one.text = found[1], found[2]
			}
			out.lines = append(out.lines, one)
		}
	}
	return out, in.Err()
}

// namedSubmission is a line that begins with the name of the job that it submits.
var namedSubmission = regexp.MustCompile(`^([a-z][a-z0-9]*): (.*)`)

// jobs are the numbers of a cluster's jobs, in the order in which a scenario submitted them.
type jobs struct {
	ids   []string
	names map[string]string // the number of each job with a name; "none" = it was refused
}

// submission is what commands print of a new job.
var submission = regexp.MustCompile(
	`(?m)^(?:Submitted batch job |salloc: Granted job allocation |srun: job )(\d+)`)

// submitted finds new jobs in what a command printed. A job with a name counts among the
// numbered ones on neither cluster, so that the numbers stay the same where one refuses it.
func (j *jobs) submitted(name, output string) {
	if name != "" {
		if j.names == nil {
			j.names = map[string]string{}
		}
		j.names[name] = "none"
		if found := submission.FindStringSubmatch(output); found != nil {
			j.names[name] = found[1]
		}
		return
	}
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

// fillIn puts the numbers into a command line: $1, $2, ... and $name.
func (j *jobs) fillIn(text string) string {
	for name, id := range j.names {
		text = regexp.MustCompile(`\$`+name+`\b`).ReplaceAllLiteralString(text, id)
	}
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
	name := func(id, by string) {
		output = regexp.MustCompile(`\b`+id+`\b`).ReplaceAllString(output, by)
		output = regexp.MustCompile(`\b`+id+`_`).ReplaceAllString(output, by+"_")
	}
	for i, id := range j.ids {
		name(id, fmt.Sprintf("J%d", i+1))
	}
	for label, id := range j.names {
		if id != "none" {
			name(id, "J-"+label)
		}
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
