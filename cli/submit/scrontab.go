package submit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/cron"
)

func Scrontab() *tool.Command {
	return &tool.Command{
		Name: "scrontab", Slurm: true,
		Summary: "run jobs by the clock",
		Usage:   []string{"[-u USER] [FILE]", "[-u USER] -e | -l | -r"},
		About: `A crontab has a line for each job: minute, hour, day of month, month and day of week, then a command
for the shell. A field is *, a number, a range, a list, or one of these with /STEP; months and days of the week also have
names. Instead of the five fields: @hourly, @daily (@midnight), @weekly, @monthly, @yearly (@annually), @elevenses, @fika,
@teatime. The times are those of the controller's zone.

A line #SCRON before an entry gives options of sbatch to this entry. NAME=value sets a variable for the entries below; SHELL
is the shell that runs their commands. Other lines that begin with # are comments.

FILE replaces the whole crontab, or nothing if anything in it is wrong; without FILE, or with -, it is read from standard
input. Each entry becomes a job that keeps its number and is queued again for its next time after each run. A run that
lasts longer than that misses the times between. scancel --cron ends such a job for good and makes comments of its
lines, which begin with #DISABLED: then.`,
		Options: []opt.Option{
			{Long: "edit", Short: "e", Help: "edit the crontab with $VISUAL, $EDITOR or vi"},
			{Long: "list", Short: "l", Help: "print the crontab"},
			{Long: "remove", Short: "r", Help: "remove the crontab and cancel its jobs"},
			{
				Long:  "user",
				Short: "u",
				Arg:   "<user>",
				Help:  "the crontab of another user, for administrators",
			},
		},
		Env: []tool.Variable{
			{Name: "VISUAL, EDITOR", Help: "editor of -e"},
		},
		Example: []tool.Example{
			{Line: "scrontab nightly.cron", What: "replaces your crontab with the file"},
			{Line: "scrontab -l > saved.cron", What: "saves it"},
			{
				Line: `printf '#SCRON -p gpu -t 10\n0 3 * * * $HOME/bin/report\n' | scrontab`,
				What: "runs a report every night at three",
			},
		},
		Run: runScrontab,
	}
}

func runScrontab(call *tool.Call) error {
	var verbs []string
	for _, name := range [...]string{"edit", "list", "remove"} {
		if call.Opts.On(name) {
			verbs = append(verbs, name)
		}
	}
	if len(verbs)+len(call.Operands) > 1 {
		return &opt.UsageError{
			Command: "scrontab",
			Text:    "expected one of a file, -e, -l and -r",
		}
	}
	switch {
	case call.Opts.On("list"):
		text, err := fetchCrontab(call)
		if err != nil {
			return err
		}
		if text == "" {
			return tool.Fail(1, "no crontab for "+cronUser(call))
		}
		_, err = io.WriteString(call.Out, text)
		return err
	case call.Opts.On("remove"):
		text, err := fetchCrontab(call)
		if err != nil {
			return err
		}
		if text == "" {
			return tool.Fail(1, "no crontab for "+cronUser(call))
		}
		return sendCrontab(call, "", "", nil)
	case call.Opts.On("edit"):
		return editCrontab(call)
	}
	name, text, err := readCrontabFile(call)
	if err != nil {
		return err
	}
	return installCrontab(call, name, text)
}

// cronUser is the user whose crontab it is.
func cronUser(call *tool.Call) string {
	own := call.UserName(call.UID)
	return cmp.Or(call.Opts.Text("user"), own, tool.Itoa(call.UID))
}

// fetchCrontab gives the crontab as the controller has it; empty = there is none.
func fetchCrontab(call *tool.Call) (string, error) {
	var reply apiv1.GetCrontabReply
	request := &apiv1.GetCrontabRequest{User: call.Opts.Text("user")}
	if err := call.RPC(tool.MethodGetCrontab, request, &reply); err != nil {
		return "", err
	}
	return reply.GetText(), nil
}

// maxCrontab bounds what is read; the controller takes less.
const maxCrontab = 1 << 20

// readCrontabFile reads the file that is named, or standard input.
func readCrontabFile(call *tool.Call) (name, text string, err error) {
	if len(call.Operands) == 0 || call.Operands[0] == "-" {
		data, err := tool.ReadAll(call.Stdin, maxCrontab)
		if err != nil {
			return "", "", call.Errorf("reading standard input: %v", err)
		}
		return "stdin", string(data), nil
	}
	name = call.Operands[0]
	path := name
	if !strings.HasPrefix(path, "/") {
		path = call.Dir + "/" + path
	}
	file, err := os.Open(path)
	if err != nil {
		return "", "", call.Errorf("%v", err)
	}
	defer file.Close()
	data, err := tool.ReadAll(file, maxCrontab)
	if err != nil {
		return "", "", call.Errorf("reading %s: %v", name, err)
	}
	return name, string(data), nil
}

// problem is what is wrong with a line of a crontab.
type problem struct {
	line int
	text string
}

// reportProblems says all that is wrong, each with file and line.
func reportProblems(file string, list []problem) error {
	slices.SortStableFunc(list, func(a, b problem) int { return a.line - b.line })
	var lines []string
	for _, p := range list {
		lines = append(lines, fmt.Sprintf("scrontab: error: %s:%d: %s", file, p.line, p.text))
	}
	return tool.Fail(1, append(lines, "scrontab: error: the crontab was not changed")...)
}

// installCrontab checks a crontab and replaces the old one with it.
func installCrontab(call *tool.Call, file, text string) error {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if strings.TrimSpace(text) == "" {
		return call.Errorf("%s is empty; scrontab -r removes the crontab", file)
	}
	if at := strings.IndexByte(text, 0); at >= 0 {
		return reportProblems(file, []problem{
			{1 + strings.Count(text[:at], "\n"), "the line has a NUL character"}})
	}
	entries, problems := parseCrontab(text)
	var lines []*apiv1.CrontabLine
	for _, entry := range entries {
		line, err := makeCronLine(call, entry)
		if err != nil {
			problems = append(problems, problem{entry.last, plainCause(err)})
			continue
		}
		lines = append(lines, line)
	}
	if len(problems) > 0 {
		return reportProblems(file, problems)
	}
	return sendCrontab(call, file, text, lines)
}

// plainCause is an error without the name of the command in front.
func plainCause(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", ": ")
	for _, prefix := range [...]string{"scrontab: error: ", "scrontab: "} {
		text = strings.ReplaceAll(text, prefix, "")
	}
	return text
}

// sendCrontab replaces the crontab; what the controller refuses is said with file and
// line too.
func sendCrontab(call *tool.Call, file, text string, lines []*apiv1.CrontabLine) error {
	request := &apiv1.PutCrontabRequest{User: call.Opts.Text("user"), Text: text, Lines: lines}
	err := call.RPC(tool.MethodPutCrontab, request, &apiv1.PutCrontabReply{})
	if err == nil {
		return nil
	}
	var problems []problem
	for line := range strings.SplitSeq(tool.ExplainError(err).Detail, "\n") {
		number, what, found := strings.Cut(strings.TrimPrefix(line, "line "), ": ")
		n, nerr := strconv.Atoi(number)
		if !found || nerr != nil || !strings.HasPrefix(line, "line ") {
			return err
		}
		problems = append(problems, problem{n, what})
	}
	return reportProblems(file, problems)
}

// cronEntry is an entry of a crontab with its options.
type cronEntry struct {
	when, command string
	first, last   int // its lines, options included
	options       []cronOptions
	variables     []string // NAME=value, of the lines above
}

// cronOptions is a line #SCRON.
type cronOptions struct {
	line  int
	words []string
}

const cronMark = "#SCRON"

// variableLine finds NAME=value, with or without blanks around the sign.
var variableLine = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$`)

// parseCrontab takes a crontab apart and says all that is wrong with its times. An entry
// with a bad time is among the entries: its options are looked at too.
func parseCrontab(text string) (entries []cronEntry, problems []problem) {
	var options []cronOptions
	var variables []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		blank := strings.TrimSpace(line)
		match := variableLine.FindStringSubmatch(line)
		switch rest, marked := strings.CutPrefix(line, cronMark); {
		case blank == "":
		case marked:
			words, err := tool.ShellWords(rest)
			if err != nil {
				problems = append(problems, problem{number, cronMark + ": " + err.Error()})
			}
			options = append(options, cronOptions{number, words})
		case blank[0] == '#':
		case match != nil:
			variables = append(variables, match[1]+"="+unquote(match[2]))
		default:
			entry := cronEntry{first: number, last: number, options: options}
			entry.when, entry.command = cron.Cut(line)
			entry.variables = slices.Clone(variables)
			if len(options) > 0 {
				entry.first = options[0].line
			}
			options = nil
			problems = append(problems, checkEntry(entry)...)
			entries = append(entries, entry)
		}
	}
	for _, o := range options {
		problems = append(problems, problem{o.line, cronMark + ": no entry follows these options"})
	}
	return entries, problems
}

// checkEntry says what is wrong with the time of an entry, and whether it has a command.
func checkEntry(entry cronEntry) []problem {
	var problems []problem
	_, bad := cron.Parse(entry.when)
	for _, text := range bad {
		problems = append(problems, problem{entry.last, text})
	}
	if entry.command == "" && len(bad) == 0 {
		problems = append(problems, problem{entry.last, "no command follows the time"})
	}
	return problems
}

// unquote takes one pair of quotes off a value.
func unquote(text string) string {
	for _, quote := range [...]string{`"`, "'"} {
		if len(text) >= 2 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	return text
}

// noCronOptions are options of sbatch that mean nothing for a job of a crontab.
func noCronOptions() []string {
	return []string{"array", "begin", "clusters", "deadline", "gid", "help", "parsable", "test-only",
		"uid", "usage", "version", "wait", "wrap"}
}

// makeCronLine makes the job of an entry.
func makeCronLine(call *tool.Call, entry cronEntry) (*apiv1.CrontabLine, error) {
	table := Sbatch()
	table.Name = "scrontab"
	final := opt.New()
	for _, options := range entry.options {
		if err := scriptOptions(table.Set(), [][]string{options.words}, final); err != nil {
			return nil, fmt.Errorf("%s of line %d: %s", cronMark, options.line, plainCause(err))
		}
	}
	for _, name := range noCronOptions() {
		if final.On(name) {
			return nil, fmt.Errorf("%s: --%s is not for jobs of a crontab", cronMark, name)
		}
	}
	home := cronHome(call)
	env := *call.Env
	env.Dir = home
	sub := *call
	sub.Env = &env
	sub.Command = table
	sub.Opts = final
	jobSpec := &apiv1.JobSpec{
		Name:       cronName(entry.command),
		WorkDir:    home,
		SubmitLine: submitLine(call),
		SubmitHost: call.Host,
		Umask:      currentUmask(call),
		Rlimits:    call.Rlimits(),
	}
	if err := applyOptions(&sub, jobSpec, final); err != nil {
		return nil, err
	}
	environ, shell := cronEnvironment(&sub, home, entry)
	if !strings.HasPrefix(shell, "/") {
		return nil, fmt.Errorf("SHELL=%s is not an absolute path", shell)
	}
	script := "#!" + shell + "\n# This script was created by scrontab.\n\n" + entry.command + "\n"
	return &apiv1.CrontabLine{
		When:        entry.when,
		First:       uint32(entry.first),
		Last:        uint32(entry.last),
		Spec:        jobSpec,
		Script:      []byte(script),
		Environment: environ.encodeEnv(),
	}, nil
}

// cronName names a job after the program that its command begins with.
func cronName(command string) string {
	for _, word := range strings.Fields(command) {
		if !strings.Contains(word, "=") {
			return tool.BaseName(word)
		}
	}
	return "scrontab"
}

// cronHome is where the jobs begin, as those of cron do.
func cronHome(call *tool.Call) string {
	if call.Opts.On("user") {
		return cmp.Or(tool.HomeOf(call.Opts.Text("user")), "/")
	}
	return cmp.Or(call.Getenv("HOME"), "/")
}

// cronEnvironment is what a job gets: as under cron it is that of a user, not that of the
// shell in which the crontab was written, with what the crontab and --export set.
func cronEnvironment(
	call *tool.Call,
	home string,
	entry cronEntry,
) (environ *environment, shell string) {
	environ = newEnvironment()
	user := cronUser(call)
	shell = "/bin/sh"
	environ.setVariable("HOME", home)
	environ.setVariable("USER", user)
	environ.setVariable("LOGNAME", user)
	environ.setVariable("PATH", "/usr/local/bin:/usr/bin:/bin")
	for _, variable := range entry.variables {
		name, value, _ := strings.Cut(variable, "=")
		if name == "SHELL" {
			shell = value
		}
		environ.setVariable(name, value)
	}
	environ.setVariable("SHELL", shell)
	environ.setVariable("SLURM_SUBMIT_DIR", home)
	environ.setVariable("SLURM_SUBMIT_HOST", call.Host)
	return environ, shell
}

// freshCrontab is what somebody sees who edits a crontab for the first time.
const freshCrontab = `# minute hour day-of-month month day-of-week command
# or @hourly, @daily, @weekly, @monthly, @yearly command
# Options of sbatch for the next entry:
#   #SCRON --partition=NAME --time=10
`

// editCrontab lets the user edit the crontab until it is good or the user gives up.
func editCrontab(call *tool.Call) error {
	before, err := fetchCrontab(call)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "scrontab-*")
	if err != nil {
		return call.Errorf("%v", err)
	}
	path := file.Name()
	_, err = io.WriteString(file, cmp.Or(before, freshCrontab))
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(path)
		return call.Errorf("%v", err)
	}
	for {
		if err := runEditor(call, path); err != nil {
			_ = os.Remove(path)
			return call.Errorf("the editor failed (%v); the crontab was not changed", err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return call.Errorf("%v; the crontab was not changed", err)
		}
		if bytes.Equal(data, []byte(cmp.Or(before, freshCrontab))) {
			fmt.Fprintln(call.Stderr, "scrontab: the crontab was not changed")
			return os.Remove(path)
		}
		err = installCrontab(call, path, string(data))
		if err == nil {
			return os.Remove(path)
		}
		if !call.Terminal(call.Stdin) {
			fmt.Fprintf(call.Stderr, "scrontab: your text is in %s\n", path)
			return err
		}
		if !wantsRetry(call, err) {
			fmt.Fprintf(call.Stderr, "scrontab: your text is in %s\n", path)
			return tool.ExitCode(1)
		}
	}
}

// runEditor lets the user's editor change a file.
func runEditor(call *tool.Call, path string) error {
	editor := cmp.Or(call.Getenv("VISUAL"), call.Getenv("EDITOR"), "vi")
	cmd := exec.CommandContext(call.Ctx, "/bin/sh", "-c", editor+` "$1"`, "sh", path)
	cmd.Stdin = call.Stdin
	cmd.Stdout = call.Stdout
	cmd.Stderr = call.Stderr
	cmd.Env = call.Environ
	return cmd.Run()
}

// wantsRetry says what is wrong and asks whether to go on editing.
func wantsRetry(call *tool.Call, failed error) bool {
	if tool.ExplainError(failed).Code == spec.CodeUnreachable {
		return false
	}
	fmt.Fprintf(call.Stderr, "%v\nscrontab: edit it again? (y/n) ", failed)
	var answer [1]byte
	n, err := call.Stdin.Read(answer[:])
	return err == nil && n == 1 && (answer[0] == 'y' || answer[0] == 'Y')
}
