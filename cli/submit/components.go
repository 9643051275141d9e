package submit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// component is what the command line of srun or salloc says of one component of
// a heterogeneous job; a : stands between two.
type component struct {
	words []string // its options
	args  []string // its command
}

// splitComponents takes the command line apart. One that names no command has that
// of the next one that does.
func splitComponents(call *tool.Call) ([]component, error) {
	var components []component
	words, args := ownArgs(call), call.Operands
	for {
		own := words[:len(words)-len(args)]
		at := slices.Index(args, ":")
		if at < 0 {
			components = append(components, component{own, args})
			break
		}
		components = append(components, component{own, args[:at]})
		words = args[at+1:]
		left, err := call.Command.Set().Parse(words, opt.New(), opt.FromCommand)
		if err != nil {
			return nil, err
		}
		args = left
	}
	for i := len(components) - 2; i >= 0; i-- {
		if len(components[i].args) == 0 {
			components[i].args = components[i+1].args
		}
	}
	return components, nil
}

// forComponent is the call as if a component alone were asked for; lookup finds its
// variables.
func forComponent(
	call *tool.Call,
	p component,
	lookup func(string) (string, bool),
) (*tool.Call, error) {
	out := *call
	out.Operands, out.Opts = p.args, opt.New()
	if err := call.Command.Set().FromEnviron(lookup, tool.IsNo, out.Opts); err != nil {
		return nil, err
	}
	_, err := call.Command.Set().Parse(p.words, out.Opts, opt.FromCommand)
	return &out, err
}

// liveJobs are the jobs of all components.
func liveJobs(
	call *tool.Call,
	list []component,
	filter *siteFilter,
) (calls []*tool.Call, specs []*apiv1.JobSpec, err error) {
	for i := range list {
		part, jobSpec := call, (*apiv1.JobSpec)(nil)
		if len(list) > 1 {
			part, err = forComponent(call, list[i], call.Lookup)
			if err != nil {
				return nil, nil, err
			}
		}
		if err := filter.applyScript(part.Opts, i); err != nil {
			return nil, nil, err
		}
		jobSpec, err = liveJob(part, part.Operands)
		if err != nil {
			return nil, nil, err
		}
		jobSpec.Attended = i == 0 // the others end with the first
		if i > 0 && !part.Opts.On("job-name") {
			jobSpec.Name = "" // that of the first
		}
		calls, specs = append(calls, part), append(specs, jobSpec)
	}
	return calls, specs, nil
}

// hetGroup marks a variable that is about one component of a heterogeneous job.
const hetGroup = "_HET_GROUP_"

// ofGroup are the variables that a heterogeneous job tells of a component, by
// the names that they have in a job of its own.
func ofGroup(call *tool.Call, n int) []string {
	var out []string
	suffix := hetGroup + strconv.Itoa(n)
	for _, kv := range call.Environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, "SLURM_") &&
			strings.HasSuffix(name, suffix) {
			out = append(out, strings.TrimSuffix(name, suffix)+"="+value)
		}
	}
	return out
}

// groupLookup finds the variables for a step in a component: those of sizes that
// the leader has are not the others'.
func groupLookup(call *tool.Call, n int) func(string) (string, bool) {
	sizes := []string{
		"SLURM_NTASKS",
		"SLURM_NPROCS",
		"SLURM_NNODES",
		"SLURM_JOB_NUM_NODES",
		"SLURM_NTASKS_PER_NODE",
		"SLURM_CPUS_PER_TASK",
		"SRUN_CPUS_PER_TASK",
		"SLURM_OVERCOMMIT",
	}
	return func(name string) (string, bool) {
		if v, ok := call.Lookup(name + hetGroup + strconv.Itoa(n)); ok {
			return v, true
		}
		if n > 0 && slices.Contains(sizes, name) {
			return "", false
		}
		return call.Lookup(name)
	}
}

// parseHetGroups reads --het-group: 0,2-3.
func parseHetGroups(call *tool.Call, text string) ([]int, error) {
	set, err := format.ParseArray(text)
	if err != nil || set.Throttle != 0 {
		return nil, call.Errorf("Invalid --het-group specification: %s", text)
	}
	var out []int
	for _, r := range set.Ranges {
		for n := int(r.First); n <= int(r.Last) && len(out) <= mostComponents; n += max(int(r.Step), 1) {
			out = append(out, n)
		}
	}
	if len(out) > mostComponents {
		return nil, call.Errorf("Invalid --het-group specification: %s", text)
	}
	return out, nil
}

// mostComponents is how many components a heterogeneous job has at most.
const mostComponents = 128

// stepsWithin are the parts of a step in a job: one for each component of a
// heterogeneous job that it runs in.
func stepsWithin(
	call *tool.Call,
	job string,
	list []component,
	filter *siteFilter,
) ([]stepAsk, error) {
	leader := job
	size, inHet := call.Lookup("SLURM_HET_SIZE")
	if call.Opts.Text("jobid") != "" {
		inHet = false
	} else if v := call.Getenv("SLURM_JOB_ID" + hetGroup + "0"); v != "" && inHet {
		leader = v
	}
	if len(list) == 1 && !inHet && !call.Opts.On("het-group") {
		if err := filter.applyScript(call.Opts, 0); err != nil {
			return nil, err
		}
		query, err := stepWithin(call, job, nil)
		return []stepAsk{query}, err
	}
	var asks []stepAsk
	seen := map[int]bool{}
	for i := range list {
		first, err := forComponent(call, list[i], groupLookup(call, 0))
		if err != nil {
			return nil, err
		}
		groups := []int{i}
		if text := first.Opts.Text("het-group"); text != "" {
			groups, err = parseHetGroups(call, text)
			if err != nil {
				return nil, err
			}
		}
		for _, n := range groups {
			if most, err := strconv.Atoi(size); inHet && err == nil && n >= most {
				return nil, call.Errorf(
					"Attempt to run a job step with het group value of %d, but the job allocation has maximum value of %d",
					n,
					most-1,
				)
			}
			if seen[n] {
				return nil, call.Errorf(
					"component %d of the heterogeneous job is named more than once",
					n,
				)
			}
			seen[n] = true
			part, err := forComponent(call, list[i], groupLookup(call, n))
			if err != nil {
				return nil, err
			}
			if err := filter.applyScript(part.Opts, n); err != nil {
				return nil, err
			}
			query, err := stepWithin(part, fmt.Sprintf("%s+%d", leader, n), ofGroup(call, n))
			if err != nil {
				return nil, err
			}
			asks = append(asks, query)
		}
	}
	return asks, nil
}

// hetVariables are the variables of all components, as the batch script of a
// heterogeneous job has them; none for another job.
func hetVariables(list [][]string) []string {
	if len(list) < 2 {
		return nil
	}
	out := []string{"SLURM_HET_SIZE=" + strconv.Itoa(len(list))}
	for i, vars := range list {
		for _, kv := range vars {
			name, value, _ := strings.Cut(kv, "=")
			if name != "SLURM_SUBMIT_DIR" && name != "SLURM_SUBMIT_HOST" &&
				name != "SLURM_CLUSTER_NAME" {
				out = append(out, name+hetGroup+strconv.Itoa(i)+"="+value)
			}
		}
	}
	return out
}
