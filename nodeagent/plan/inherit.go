package plan

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// What a job inherits from its submission, and what it has from its node: the
// resource limits, the nice value and the login environment.

// rlimits turns the soft limits of a submission into those of a run; hard limits
// stay the node's. A negative amount is no limit. Asked tells that --propagate
// chose them: then the limits that the site keeps back travel too.
func (n *Node) rlimits(list []spec.Count, asked bool) (rlimits []Rlimit, warnings []string) {
	known := spec.ResourceLimits()
	for _, count := range list {
		name := strings.TrimPrefix(strings.ToUpper(count.Name), "RLIMIT_")
		i := slices.IndexFunc(known, func(l spec.ResourceLimit) bool { return l.Name == name })
		if i < 0 {
			warnings = append(warnings, "resource limit "+count.Name+" is not known and is not set")
			continue
		}
		if !asked && slices.Contains(n.LimitsKept, name) {
			continue
		}
		soft := uint64(count.N)
		if count.N < 0 {
			soft = RlimitInfinity
		}
		rlimits = append(
			rlimits, Rlimit{Resource: known[i].Number, Soft: soft, Hard: RlimitKeep, Asked: asked},
		)
	}
	return rlimits, warnings
}

// nice is the nice value of a run, of which the shepherd makes sure that it is not
// below the node's. The submitting command tells its own in SLURM_PRIO_PROCESS.
func (n *Node) nice(user []string) (value int32, above bool) {
	if n.Nice == NiceOfNode {
		return 0, false
	}
	told, err := strconv.ParseInt(lookUpVariable(user, "SLURM_PRIO_PROCESS"), 10, 32)
	if err != nil {
		told = 0 // of an older release, or over REST
	}
	return int32(min(max(told, 0), 19)), n.Nice == NiceAboveNode
}

// login is the login environment that a batch script begins in; nil: none. A
// container has the environment of its image: the login files are the node's.
func (n *Node) login(job *Job) *Login {
	request := job.Spec.IO.Login
	if request == nil || job.Spec.Container != nil {
		return nil
	}
	login := &Login{
		User:    job.User,
		Home:    job.Home,
		Shell:   job.Shell,
		Plain:   request.Plain,
		Timeout: cmp.Or(request.Timeout, n.LoginTimeout),
	}
	if n.LoginCache != "" && job.User != "" && !strings.Contains(job.User, "/") {
		login.Cache = path.Join(n.LoginCache, job.User)
	}
	return login
}

// Name is Slurm's name for the limit; a number that has none stands for itself.
func (r *Rlimit) Name() string {
	for _, limit := range spec.ResourceLimits() {
		if limit.Number == r.Resource {
			return limit.Name
		}
	}
	return formatNumber(uint64(r.Resource))
}
