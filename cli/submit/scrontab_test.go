package submit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

func cronCall() *tool.Call {
	return &tool.Call{
		Env: &tool.Env{
			Args:     []string{"scrontab", "nightly"},
			Environ:  []string{"HOME=/home/ann", "SECRET=of this shell"},
			Dir:      "/scratch",
			Host:     "login1",
			UID:      1001,
			UserName: func(uint32) string { return "ann" },
			Umask:    func() uint32 { return 0o22 },
			Rlimits:  func() []*apiv1.Count { return nil },
			Stderr:   &strings.Builder{},
		},
		Command: Scrontab(),
		Opts:    opt.New(),
	}
}

// TestCrontabLines makes the jobs of a crontab.
func TestCrontabLines(t *testing.T) {
	text := `# a comment
SHELL=/bin/bash
NAME = "some words"
#SCRON -p gpu --time=5
#SCRON -o out/%j.txt
*/5 8-18 * * mon-fri  A=1 bin/report --all | mail % ann
NAME=other
@daily	date
`
	call := cronCall()
	entries, problems := parseCrontab(text)
	if len(problems) > 0 || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, problems)
	}
	line, err := makeCronLine(call, entries[0])
	if err != nil {
		t.Fatal(err)
	}
	have := fmt.Sprintln(line.GetWhen(), line.GetFirst(), line.GetLast(), line.GetSpec().GetName(),
		line.GetSpec().GetPartitions(), line.GetSpec().GetTimeLimit(), line.GetSpec().GetStdout(),
		line.GetSpec().GetWorkDir())
	if want := "*/5 8-18 * * mon-fri 4 6 report [gpu] 300000000000 out/%j.txt /home/ann\n"; have != want {
		t.Errorf("%sexpected %s", have, want)
	}
	script := "#!/bin/bash\n# This script was created by scrontab.\n\nA=1 bin/report --all | mail % ann\n"
	if string(line.GetScript()) != script {
		t.Errorf("%q", line.GetScript())
	}
	environ := strings.Split(string(line.GetEnvironment()), "\x00")
	for _, want := range []string{"HOME=/home/ann", "USER=ann", "LOGNAME=ann", "SHELL=/bin/bash", "NAME=some words"} {
		if !slices.Contains(environ, want) {
			t.Errorf("no %s in %q", want, environ)
		}
	}
	if strings.Contains(string(line.GetEnvironment()), "SECRET") {
		t.Error("a job of a crontab has the environment of the shell")
	}
	last, err := makeCronLine(call, entries[1])
	if err != nil || last.GetWhen() != "@daily" || len(last.GetSpec().GetPartitions()) != 0 {
		t.Errorf("the options of an entry hold for the next one too: %v, %v", last, err)
	}
	if !strings.Contains(string(last.GetEnvironment()), "NAME=other\x00") {
		t.Errorf("%q", last.GetEnvironment())
	}
}

// TestCrontabProblems wants all that is wrong said at once, by file and line.
func TestCrontabProblems(t *testing.T) {
	text := `#SCRON --mem=x
61 25 * * * echo
* * * * *
#SCRON --bogus
@daily echo
#SCRON -a 1-3
@daily foo
#SCRON "-p
@weekly foo
SHELL=bash
@weekly foo
#SCRON -t 3
`
	err := installCrontab(cronCall(), "nightly", text)
	var failed *tool.ExitError
	if !errors.As(err, &failed) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"nightly:2: Invalid --mem specification", `nightly:2: minute "61"`, `nightly:2: hour "25"`,
		"nightly:3: no command follows the time",
		"nightly:5: #SCRON of line 4: unrecognized option '--bogus'",
		"nightly:7: #SCRON: --array is not for jobs of a crontab",
		"nightly:8: #SCRON: ",
		"nightly:11: SHELL=bash is not an absolute path",
		"nightly:12: #SCRON: no entry follows these options",
		"the crontab was not changed",
	} {
		if !strings.Contains(failed.Error(), want) {
			t.Errorf("no %q in\n%s", want, failed.Error())
		}
	}
	for _, empty := range []string{"", "\n \n"} {
		if err := installCrontab(cronCall(), "nightly", empty); err == nil {
			t.Errorf("%q was accepted", empty)
		}
	}
}
