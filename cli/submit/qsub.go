package submit

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

// qsubOption is an option of qsub with the options of sbatch that it becomes.
type qsubOption struct {
	opt.Option
	become func(value string) ([]string, error)
}

// qsubOptions are the options that scripts for PBS and Torque have.
//
//muster:table one row for each option
func qsubOptions() []qsubOption {
	to := func(long string) func(string) ([]string, error) {
		return func(value string) ([]string, error) { return []string{"--" + long + "=" + value}, nil }
	}
	switchTo := func(long string) func(string) ([]string, error) {
		return func(string) ([]string, error) { return []string{"--" + long}, nil }
	}
	nothing := func(string) ([]string, error) { return nil, nil }
	return []qsubOption{
		{opt.Option{Long: "account", Short: "A", Arg: "<account>", Help: "charge this account"}, to("account")},
		{opt.Option{Long: "begin", Short: "a", Arg: "<time>", Help: "earliest start: [[CC]YY]MMDDhhmm[.SS], or as sbatch --begin takes it"}, pbsBegin},
		{opt.Option{Long: "error", Short: "e", Arg: "<path>", Help: "file for standard error"}, pbsFile("error")},
		{opt.Option{Long: "hold", Short: "h", Help: "submit the job in held state"}, switchTo("hold")},
		{opt.Option{Long: "interactive", Short: "I", Help: "open a shell with the allocation, as salloc"}, nothing},
		{opt.Option{Long: "array", Short: "J", Arg: "<indexes>", Help: "submit an array: 0-15, 0-31:4"}, to("array")},
		{opt.Option{Long: "join", Short: "j", Arg: "oe|eo|n", Help: "write standard error into the output file, as without -e; oe only"}, pbsJoin},
		{opt.Option{Long: "resource", Short: "l", Arg: "<list>", Help: "resources: walltime=1:00:00,nodes=2:ppn=8,mem=4gb or select=2:ncpus=8:ngpus=1"}, pbsResources},
		{opt.Option{Long: "mail-user", Short: "M", Arg: "<user>", Help: "recipient of the mail"}, to("mail-user")},
		{opt.Option{Long: "mail-options", Short: "m", Arg: "a|b|e|n", Help: "send mail when the job fails (a), begins (b), ends (e), or never (n)"}, pbsMail},
		{opt.Option{Long: "name", Short: "N", Arg: "<name>", Help: "name of the job"}, to("job-name")},
		{opt.Option{Long: "output", Short: "o", Arg: "<path>", Help: "file for standard output"}, pbsFile("output")},
		{opt.Option{Long: "priority", Short: "p", Arg: "<-1024 to 1023>", Help: "priority among one's own jobs; only lower ones can be asked for"}, pbsPriority},
		{opt.Option{Long: "queue", Short: "q", Arg: "<partition>", Help: "partition of the job"}, to("partition")},
		{opt.Option{Long: "rerunable", Short: "r", Arg: "y|n", Help: "whether the job may be requeued"}, pbsRerun},
		{opt.Option{Long: "array-range", Short: "t", Arg: "<indexes>", Help: "submit an array, as Torque has it: 0-15%4"}, to("array")},
		{opt.Option{Long: "export-all", Short: "V", Help: "export all environment variables", Always: "they always are"}, nothing},
		{opt.Option{Long: "variables", Short: "v", Arg: "<variables>", Help: "further variables of the job: NAME=value or NAME"}, func(v string) ([]string, error) { return []string{"--export=ALL," + v}, nil }},
		{opt.Option{Long: "attributes", Short: "W", Arg: "<list>", Help: "depend=afterok:12:13"}, pbsAttributes},
		{opt.Option{Long: "workdir", Short: "d", Arg: "<directory>", Help: "working directory of the job"}, to("chdir")},
		{opt.Option{Long: "quiet", Short: "z", Help: "do not print the job's number"}, switchTo("quiet")},
	}
}

func Qsub() *tool.Command {
	command := &tool.Command{
		Name: "qsub", Slurm: true,
		Summary: "submit a batch script that was written for PBS or Torque",
		Usage:   []string{"[OPTIONS] [SCRIPT]"},
		About: `Reads the options of PBS on the command line and on #PBS lines of the script, and submits the script
as sbatch does. #SBATCH lines count too. The job has PBS_O_WORKDIR, PBS_O_HOST and PBS_O_QUEUE, and otherwise the variables that
sbatch gives; PBS_JOBID and PBS_NODEFILE are absent. Resources that cannot be honoured are refused.`,
		Example: []tool.Example{
			{
				Line: "qsub -N train -q gpu -l select=2:ncpus=8:ngpus=1 -l walltime=1:00:00 train.pbs",
				What: "submits train.pbs",
			},
		},
		Run: runQsub,
	}
	for _, option := range qsubOptions() {
		command.Options = append(command.Options, option.Option)
	}
	return command
}

func runQsub(call *tool.Call) error {
	typed, operands, err := pbsWords(call, ownArgs(call))
	if err != nil {
		return err
	}
	if len(operands) > 1 {
		return call.Errorf("one script is submitted at a time: %s", strings.Join(operands, " "))
	}
	env := *call.Env
	env.Environ = append(slices.Clone(call.Environ), "PBS_O_WORKDIR="+call.Dir, "PBS_O_HOST="+
		call.Host)
	if call.Opts.On("interactive") {
		env.Args = append([]string{"salloc"}, typed...)
		return tool.Execute(call.Ctx, &env, Salloc(), env.Args[1:])
	}
	var script []byte
	if len(operands) == 1 && operands[0] != "-" {
		path := operands[0]
		if !filepath.IsAbs(path) {
			path = filepath.Join(call.Dir, path)
		}
		script, err = os.ReadFile(path)
	} else {
		operands = nil
		script, err = io.ReadAll(call.Stdin)
		env.Stdin = bytes.NewReader(script)
	}
	if err != nil {
		return call.Errorf("the script: %v", err)
	}
	written, err := pbsLines(call, script)
	if err != nil {
		return err
	}
	for _, word := range append(slices.Clone(written), typed...) {
		if queue, ok := strings.CutPrefix(word, "--partition="); ok {
			env.Environ = append(env.Environ, "PBS_O_QUEUE="+queue)
		}
	}
	words := append(append([]string{"--parsable"}, written...), typed...)
	if slices.Contains(words, joined) { // whether -e stands before -j or behind it
		words = slices.DeleteFunc(
			words,
			func(w string) bool { return strings.HasPrefix(w, joined) },
		)
	}
	if slices.Contains(words, "--quiet") {
		env.Stdout = io.Discard
	}
	env.Args = append(append([]string{"sbatch"}, words...), operands...)
	return tool.Execute(call.Ctx, &env, Sbatch(), env.Args[1:])
}

// pbsLines reads the options of the #PBS lines before the first command.
func pbsLines(call *tool.Call, script []byte) ([]string, error) {
	var out []string
	lines := bufio.NewScanner(bytes.NewReader(script))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line != "" && !strings.HasPrefix(line, "#") {
			break
		}
		text, ok := strings.CutPrefix(line, "#PBS ")
		if !ok {
			continue
		}
		args, err := tool.ShellWords(text)
		if err != nil {
			return nil, call.Errorf("%s: %v", line, err)
		}
		words, rest, err := pbsWords(call, args)
		if err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			return nil, call.Errorf("%s: %s is not an option", line, rest[0])
		}
		out = append(out, words...)
	}
	return out, lines.Err()
}

// pbsWords turns options of qsub into those of sbatch. An option may be given several
// times, as -l is.
func pbsWords(call *tool.Call, args []string) (words, operands []string, err error) {
	table := qsubOptions()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			return words, args[i:], nil
		}
		if arg == "--" {
			return words, args[i+1:], nil
		}
		var option *qsubOption
		value, has := "", false
		if long, ok := strings.CutPrefix(arg, "--"); ok {
			long, value, has = strings.Cut(long, "=")
			option = findQsub(table, func(o *qsubOption) bool { return o.Long == long })
		} else {
			option = findQsub(table, func(o *qsubOption) bool { return o.Short == arg[1:2] })
			value = arg[2:]
			has = value != ""
		}
		if option == nil {
			return nil, nil, &opt.UsageError{
				Command: "qsub",
				Text:    fmt.Sprintf("unrecognized option '%s'", arg),
			}
		}
		if option.Arg == "" && has { // -hV
			args[i] = "-" + value
			value = ""
			i--
		}
		if option.Arg != "" && !has {
			i++
			if i == len(args) {
				return nil, nil, &opt.UsageError{
					Command: "qsub",
					Text:    fmt.Sprintf("option requires an argument -- '%s'", option.Short),
				}
			}
			value = args[i]
		}
		more, err := option.become(value)
		if err != nil {
			return nil, nil, call.Errorf("-%s %s: %v", option.Short, value, err)
		}
		words = append(words, more...)
	}
	return words, nil, nil
}

func findQsub(table []qsubOption, is func(o *qsubOption) bool) *qsubOption {
	for i := range table {
		if is(&table[i]) {
			return &table[i]
		}
	}
	return nil
}

// pbsFile drops the host of host:path: files are written on the job's nodes.
func pbsFile(long string) func(string) ([]string, error) {
	return func(value string) ([]string, error) {
		if _, path, ok := strings.Cut(value, ":"); ok {
			value = path
		}
		return []string{"--" + long + "=" + value}, nil
	}
}

// pbsBegin reads [[CC]YY]MMDDhhmm[.SS], the clock of PBS; without a date it is a time.
func pbsBegin(value string) ([]string, error) {
	digits, seconds, _ := strings.Cut(value, ".")
	if _, err := strconv.ParseUint(digits, 10, 64); err != nil {
		return []string{"--begin=" + value}, nil
	}
	if seconds == "" {
		seconds = "00"
	}
	switch n := len(digits); n {
	case 4:
		return []string{"--begin=" + digits[:2] + ":" + digits[2:]}, nil
	case 8:
		return []string{"--begin=" + digits[:2] + "/" + digits[2:4] + "-" + digits[4:6] + ":" +
			digits[6:] + ":" + seconds}, nil
	case 10, 12:
		if n == 10 {
			digits = "20" + digits
		}
		return []string{"--begin=" + digits[:4] + "-" + digits[4:6] + "-" + digits[6:8] + "T" +
			digits[8:10] + ":" + digits[10:] + ":" + seconds}, nil
	}
	return nil, fmt.Errorf("expected [[CC]YY]MMDDhhmm[.SS]")
}

// pbsJoin undoes -e: sbatch writes both into the output file unless there is one for errors.
func pbsJoin(value string) ([]string, error) {
	if value != "oe" {
		return nil, fmt.Errorf("only oe is supported; -e names a file for standard error")
	}
	return []string{joined}, nil
}

// joined is how --error looks once -j has undone it.
const joined = "--error="

func pbsMail(value string) ([]string, error) {
	names := map[rune]string{'a': "FAIL", 'b': "BEGIN", 'e': "END", 'n': "NONE"}
	var out []string
	for _, letter := range value {
		if names[letter] == "" {
			return nil, fmt.Errorf("expected letters of a, b, e and n")
		}
		out = append(out, names[letter])
	}
	return []string{"--mail-type=" + strings.Join(out, ",")}, nil
}

// pbsPriority lowers a priority with --nice; users cannot raise one.
func pbsPriority(value string) ([]string, error) {
	n, err := strconv.Atoi(value)
	switch {
	case err != nil || n < -1024 || n > 1023:
		return nil, fmt.Errorf("expected a number from -1024 to 1023")
	case n > 0:
		return nil, fmt.Errorf(
			"a priority cannot be raised; scontrol top puts a job before one's others",
		)
	}
	return []string{"--nice=" + strconv.Itoa(-n)}, nil
}

func pbsRerun(value string) ([]string, error) {
	switch value {
	case "y":
		return []string{"--requeue"}, nil
	case "n":
		return []string{"--no-requeue"}, nil
	}
	return nil, fmt.Errorf("expected y or n")
}

// pbsAttributes reads -W depend=TYPE:JOB[:JOB...][,TYPE:...]; other attributes are
// refused.
func pbsAttributes(value string) ([]string, error) {
	name, list, ok := strings.Cut(value, "=")
	if !ok || name != "depend" {
		return nil, fmt.Errorf("only depend= is supported")
	}
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		kind, jobs, _ := strings.Cut(part, ":")
		if !slices.Contains([]string{"after", "afterok", "afternotok", "afterany"}, kind) {
			return nil, fmt.Errorf(
				"%s is not supported: after, afterok, afternotok and afterany are",
				kind,
			)
		}
		for id := range strings.SplitSeq(jobs, ":") {
			number, _, _ := strings.Cut(id, ".") // 12.host
			out = append(out, kind+":"+number)
		}
	}
	return []string{"--dependency=" + strings.Join(out, ",")}, nil
}

// pbsResources reads a list of -l.
func pbsResources(value string) ([]string, error) {
	var out []string
	for item := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(item, "=")
		words, err := pbsResource(name, text)
		if err != nil {
			return nil, err
		}
		out = append(out, words...)
	}
	return out, nil
}

//muster:table one case for each resource
func pbsResource(name, text string) ([]string, error) {
	switch name {
	case "walltime":
		return []string{"--time=" + pbsSpan(text)}, nil
	case "nodes":
		return pbsChunk(text, "ppn")
	case "select":
		return pbsChunk(text, "ncpus")
	case "ncpus":
		return []string{"--nodes=1", "--ntasks=1", "--cpus-per-task=" + text}, nil
	case "procs":
		return []string{"--ntasks=" + text}, nil
	case "ngpus", "gpus", "naccelerators":
		return []string{"--gpus-per-node=" + text}, nil
	case "mem":
		size, err := pbsSize(text)
		return []string{"--mem=" + size}, err
	case "pmem":
		size, err := pbsSize(text)
		return []string{"--mem-per-cpu=" + size}, err
	case "file":
		size, err := pbsSize(text)
		return []string{"--tmp=" + size}, err
	case "host":
		return []string{"--nodelist=" + text}, nil
	case "place":
		switch text {
		case "excl", "exclhost", "scatter:excl":
			return []string{"--exclusive"}, nil
		case "free", "pack", "scatter":
			return nil, nil // how chunks are spread; a chunk is a node here
		}
	}
	return nil, fmt.Errorf("resource %s is not supported; walltime, nodes, select, ncpus, procs, ngpus, mem, pmem, file, host and place are", name)
}

// pbsSpan reads a walltime: seconds where it is a plain number, which sbatch takes for
// minutes.
func pbsSpan(text string) string {
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

// pbsSize reads 4gb as sbatch writes it: 4G.
func pbsSize(text string) (string, error) {
	digits := strings.TrimRight(text, "bkmgtBKMGT")
	if _, err := strconv.ParseUint(digits, 10, 32); err != nil {
		return "", fmt.Errorf("invalid size %q: expected a number with kb, mb, gb or tb", text)
	}
	switch strings.ToLower(text[len(digits):]) {
	case "kb", "mb", "gb", "tb":
		return digits + strings.ToUpper(text[len(digits):len(digits)+1]), nil
	}
	return "", fmt.Errorf("invalid size %q: expected a number with kb, mb, gb or tb", text)
}

// pbsChunk reads a number of nodes, or their names, and what each of them gives: 2:ppn=8:gpus=1.
func pbsChunk(text, cpus string) ([]string, error) {
	if strings.Contains(text, "+") {
		return nil, fmt.Errorf(
			"several kinds of nodes (+) are not supported: use a heterogeneous job, srun --help",
		)
	}
	parts := strings.Split(text, ":")
	var out []string
	if _, err := strconv.ParseUint(parts[0], 10, 32); err == nil {
		out = append(out, "--nodes="+parts[0])
	} else {
		out = append(out, "--nodes=1", "--nodelist="+parts[0])
	}
	number := map[string]uint64{}
	for _, part := range parts[1:] {
		name, value, ok := strings.Cut(part, "=")
		n, err := strconv.ParseUint(value, 10, 32)
		switch {
		case !ok:
			out = append(out, "--constraint="+name)
		case name == "mem":
			size, err := pbsSize(value)
			if err != nil {
				return nil, err
			}
			out = append(out, "--mem="+size)
		case name == "gpus" || name == "ngpus":
			out = append(out, "--gpus-per-node="+value)
		case name == cpus || name == "mpiprocs" || name == "ompthreads":
			if err != nil || n == 0 {
				return nil, fmt.Errorf("%s: expected a number above 0", part)
			}
			number[name] = n
		default:
			return nil, fmt.Errorf(
				"%s is not supported of nodes; %s, mpiprocs, ompthreads, mem and ngpus are",
				name,
				cpus,
			)
		}
	}
	switch tasks := number["mpiprocs"]; {
	case cpus == "ppn" && number["ppn"] > 0:
		out = append(out, fmt.Sprintf("--ntasks-per-node=%d", number["ppn"]))
	case tasks > 0 && number["ncpus"]%tasks != 0:
		return nil, fmt.Errorf("ncpus=%d is not a multiple of mpiprocs=%d", number["ncpus"], tasks)
	case number["ncpus"] > 0:
		tasks = max(tasks, 1)
		out = append(
			out,
			fmt.Sprintf("--ntasks-per-node=%d", tasks),
			fmt.Sprintf("--cpus-per-task=%d", number["ncpus"]/tasks),
		)
	case tasks > 0:
		out = append(out, fmt.Sprintf("--ntasks-per-node=%d", tasks))
	}
	return out, nil
}
