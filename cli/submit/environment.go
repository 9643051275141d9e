package submit

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/cli/tool"
)

// environment is an ordered set of variables; the last value of a name wins.
type environment struct {
	names  []string
	values map[string]string
}

func newEnvironment() *environment { return &environment{values: map[string]string{}} }

func (e *environment) setVariable(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// encodeEnv writes NAME=value with a NUL after each.
func (e *environment) encodeEnv() []byte {
	var buffer []byte
	for _, n := range e.names {
		buffer = append(buffer, n...)
		buffer = append(buffer, '=')
		buffer = append(buffer, e.values[n]...)
		buffer = append(buffer, 0)
	}
	return buffer
}

// validName tells a name that a shell could set; others cannot be carried.
func validName(text string) bool { return text != "" && !strings.ContainsAny(text, "=\x00") }

// inheritFrom takes over what the caller has, all of it or only the variables of
// the workload manager and its plugins.
func (e *environment) inheritFrom(environ []string, all bool) {
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if ok && validName(name) && (all || ownVariable(name)) {
			e.setVariable(name, value)
		}
	}
}

// ownVariable tells the variables that no --export keeps back: without those that say where the
// controller is, commands in the job would find another one, or none.
func ownVariable(name string) bool {
	for _, prefix := range []string{"SLURM_", "SPANK_", "MUSTER_JOB_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "MUSTER_SOCKET" || name == "MUSTER_CONFIG"
}

// jobEnvironment is what the job gets of the caller's environment, by --export:
// ALL (or nothing said) all of it; NONE the SLURM_* variables and, on the
// node, the user's login environment; NIL the same without; else the SLURM_*
// variables and those listed, where NAME=value sets one. ALL in a list adds the
// rest of the caller's; without it, the login environment adds what is missing.
// In a list, a value that is written wins over the caller's.
func jobEnvironment(call *tool.Call) (e *environment, login bool, err error) {
	e = newEnvironment()
	export, given := call.Opts.Get("export")
	login = call.Opts.On("get-user-env")
	switch {
	case !given || strings.EqualFold(export.Text, "ALL"):
		e.inheritFrom(call.Environ, true)
	case strings.EqualFold(export.Text, "NONE"):
		e.inheritFrom(call.Environ, false)
		login = true
	case strings.EqualFold(export.Text, "NIL"):
		e.inheritFrom(call.Environ, false)
	default:
		all, err := exportList(call, e, export.Text, false)
		if err != nil {
			return nil, false, err
		}
		login = login || !all
	}
	if call.Opts.On("export-file") {
		if err := exportFile(call, e, call.Opts.Text("export-file")); err != nil {
			return nil, false, err
		}
	}
	if given {
		e.setVariable("SLURM_EXPORT_ENV", export.Text)
	}
	if login {
		e.setVariable("SLURM_GET_USER_ENV", "1")
	}
	e.setVariable("SLURM_SUBMIT_DIR", call.Dir)
	e.setVariable("SLURM_SUBMIT_HOST", call.Host)
	e.setNice(call)
	return e, login, nil
}

// setNice tells the node the nice value of this process, for PropagatePrioProcess.
func (e *environment) setNice(call *tool.Call) {
	nice := 0
	if call.Nice != nil {
		nice = call.Nice()
	}
	e.setVariable("SLURM_PRIO_PROCESS", strconv.Itoa(nice))
}

// exportList adds what a list of --export names; all tells that ALL is one of its words.
func exportList(
	call *tool.Call, e *environment, list string, step bool,
) (all bool, err error) {
	words, err := exportWords(list)
	if err != nil {
		return false, tool.Fail(
			255,
			fmt.Sprintf("%s: error: Invalid --export specification: %v", call.Command.Name, err),
		)
	}
	if step {
		// srun reads no further than NONE, and sbatch takes it for a variable's name.
		isNone := func(word string) bool { return strings.EqualFold(word, "NONE") }
		if end := slices.IndexFunc(words, isNone); end >= 0 {
			words = words[:end]
		}
	}
	e.inheritFrom(call.Environ, false)
	for _, word := range words {
		name, value, sets := strings.Cut(word, "=")
		switch {
		case strings.EqualFold(word, "ALL"):
			all = true
			e.inheritFrom(call.Environ, true)
		case !validName(name):
			return false, tool.Fail(
				255,
				fmt.Sprintf(
					"%s: error: Invalid --export specification: %q has no name",
					call.Command.Name,
					word,
				),
			)
		case sets:
			e.setVariable(name, value)
		default:
			if v, ok := call.Lookup(name); ok {
				e.setVariable(name, v)
			}
		}
	}
	// ALL may stand behind a value that was written: the value still wins.
	for _, w := range words {
		if name, value, sets := strings.Cut(w, "="); sets {
			e.setVariable(name, value)
		}
	}
	return all, nil
}

// exportWords splits at commas that stand in no quotes, and takes the quotes off.
func exportWords(list string) ([]string, error) {
	var words []string
	var word []byte
	quote := byte(0)
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == ',':
			words, word = append(words, string(word)), nil
		default:
			word = append(word, c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("unmatched %c", quote)
	}
	words = append(words, string(word))
	out := words[:0]
	for _, w := range words {
		if w != "" {
			out = append(out, w)
		}
	}
	return out, nil
}

// exportFile reads NAME=value with a NUL after each, from a file or an open
// file descriptor.
func exportFile(call *tool.Call, e *environment, name string) error {
	var data []byte
	var err error
	if fd, ferr := strconv.ParseUint(name, 10, 16); ferr == nil {
		file := os.NewFile(uintptr(fd), "fd "+name)
		if file == nil {
			err = os.ErrInvalid
		} else {
			data, err = tool.ReadAll(file, maxScript)
			file.Close()
		}
	} else {
		data, err = tool.ReadFile((&jobRequest{env: call.Env}).absolutePath(name), maxScript)
	}
	if err != nil {
		return tool.Fail(
			1,
			fmt.Sprintf("%s: error: --export-file=%s: %v", call.Command.Name, name, err),
		)
	}
	for _, kv := range bytes.Split(data, []byte{0}) {
		if n, v, ok := strings.Cut(string(kv), "="); ok && validName(n) {
			e.setVariable(n, v)
		}
	}
	return nil
}
