package submit

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

// Describe sets one option of a job that a program describes rather than types:
// the same row of the same table as sbatch --OPTION=VALUE. A switch has no value.
func Describe(env *tool.Env, jobSpec *apiv1.JobSpec, option, value string) error {
	for _, o := range JobOptions() {
		if o.Long != option {
			continue
		}
		switch {
		case o.Refused != "":
			return tool.Fail(1, o.Refused)
		case o.apply == nil:
			return nil // it asks for what holds anyway
		}
		request := &jobRequest{name: "sbatch", env: env, spec: jobSpec, opts: opt.New()}
		given := opt.Value{Text: value, Has: value != "", From: opt.FromCommand}
		request.opts.Put(option, value, given.Has, opt.FromCommand)
		return o.apply(request, given)
	}
	return tool.Fail(1, "BUG: sbatch has no option --"+option)
}

// CheckScript refuses a script that sbatch would refuse.
func CheckScript(script []byte) error { return checkScript("sbatch", script) }

// EnvironmentOf writes variables as a job gets them. What is not NAME=value is
// returned in bad.
func EnvironmentOf(list []string) (env []byte, bad []string) {
	e := newEnvironment()
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !validName(name) || strings.ContainsRune(value, 0) {
			bad = append(bad, kv)
			continue
		}
		e.setVariable(name, value)
	}
	return e.encodeEnv(), bad
}
