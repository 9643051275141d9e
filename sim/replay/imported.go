package replay

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// Record is what accounting keeps of a run, of this cluster or of one whose
// history was imported.
type Record struct {
	Name, User, Group, Account, QOS, Constraint string
	UID, GID                                    uint32
	Partitions                                  []string
	Eligible, Start                             spec.Instant
	Run                                         spec.Span
	Limit                                       spec.Span // 0 = the partition's default
	Asked                                       spec.TRES // CPUs, memory and whatever else the run as a whole asked for
	Nodes                                       int64
	Ended, Failed                               bool
}

// firstUnknown is the number of the first user whose own is not known.
const firstUnknown = 1 << 30

// Imported makes a workload of what became eligible in [from, to). A record does
// not say how the CPUs, the memory and the GPUs were to be spread: they are asked
// for in equal parts on as many nodes as then, where they can be divided. Its
// users, accounts and QOS are made, with equal shares and without limits, so that
// what a configuration enforces has somebody to be enforced on. Left out are the
// runs that did not come to their end.
func Imported(
	config *spec.Config,
	records []Record,
	from, to spec.Instant,
) (workload *Workload, leftOut int, err error) {
	workload = &Workload{
		Config: openConfig(config),
		Policy: policy.Founding(config.Enforce.Associations),
	}
	ids := map[string]uint32{}
	users, all := map[string]map[string]bool{}, map[string]bool{}
	for i := range records {
		record := &records[i]
		switch {
		case record.Eligible < from || record.Eligible >= to || record.Eligible == 0:
			continue
		case record.Start == 0 || !record.Ended:
			leftOut++
			continue
		}
		if users[record.Account] == nil {
			users[record.Account] = map[string]bool{}
		}
		users[record.Account][record.User], all[record.QOS] = true, true
		jobSpec := record.makeRequest()
		if jobSpec.UID == 0 && jobSpec.User != "root" { // its number was not told
			if ids[jobSpec.User] == 0 {
				ids[jobSpec.User] = uint32(firstUnknown + len(ids))
			}
			jobSpec.UID = ids[jobSpec.User]
		}
		workload.Jobs = append(
			workload.Jobs,
			Job{
				Spec:   jobSpec,
				Submit: record.Eligible,
				Run:    max(record.Run, 0),
				Failed: record.Failed,
			},
		)
	}
	if len(workload.Jobs) == 0 {
		return nil, leftOut, ErrNoHistory
	}
	workload.sortJobs()
	workload, err = workload.With(nil, whoTheyAre(users, all))
	return workload, leftOut, err
}

// whoTheyAre are the commands that make the users, accounts and QOS of a history.
func whoTheyAre(users map[string]map[string]bool, qos map[string]bool) []policy.Change {
	delete(qos, "")
	delete(users, "")
	var changes []policy.Change
	add := func(entity string, names []string, set ...spec.KeyValue) {
		changes = append(
			changes, policy.Change{Verb: policy.Add, Entity: entity, Names: names, Set: set},
		)
	}
	list := slices.Sorted(maps.Keys(qos))
	for _, name := range list {
		add("qos", []string{name})
	}
	for _, account := range slices.Sorted(maps.Keys(users)) {
		delete(users[account], "")
		if account != "root" { // it is there
			add("account", []string{account})
		}
		names := slices.Sorted(maps.Keys(users[account]))
		if len(names) == 0 {
			continue
		}
		set := []spec.KeyValue{{Key: "account", Value: account}}
		if len(list) > 0 {
			set = append(set, spec.KeyValue{Key: "qos", Value: strings.Join(list, ",")})
		}
		add("user", names, set...)
	}
	return changes
}

// makeRequest is what a run asked for, as a job that can be submitted.
func (r *Record) makeRequest() *spec.JobSpec {
	jobSpec := &spec.JobSpec{
		Name:       r.Name,
		User:       r.User,
		Group:      r.Group,
		UID:        r.UID,
		GID:        r.GID,
		Account:    r.Account,
		QOS:        r.QOS,
		Partitions: r.Partitions,
	}
	jobSpec.Time.Limit, jobSpec.Place.Constraint = r.Limit, r.Constraint
	nodes, cpus := max(r.Nodes, 1), max(r.Asked.CPU, 1)
	jobSpec.Size.MinNodes, jobSpec.Size.MaxNodes = uint32(nodes), uint32(nodes)
	jobSpec.Size.Tasks, jobSpec.Size.CPUsPerTask = uint32(nodes), uint32(cpus/nodes)
	if cpus%nodes != 0 {
		jobSpec.Size.Tasks, jobSpec.Size.CPUsPerTask = uint32(max(cpus, nodes)), 1
	}
	jobSpec.Size.MemPerNode = (r.Asked.Mem + nodes - 1) / nodes
	for _, o := range r.Asked.Other {
		kind, name, _ := strings.Cut(o.Name, "/")
		count := spec.Count{Name: name, N: o.N}
		switch count.Name, count.Type, _ = strings.Cut(name, ":"); {
		case kind == "license":
			jobSpec.Licenses = append(jobSpec.Licenses, spec.Count{Name: name, N: o.N})
		case kind != "gres" || o.N == 0 || (count.Type == "" && r.hasTypes(name)):
		case count.N%nodes == 0:
			count.N /= nodes
			jobSpec.Size.PerNode = append(jobSpec.Size.PerNode, count)
		default:
			jobSpec.Size.PerJob = append(jobSpec.Size.PerJob, count)
		}
	}
	return jobSpec
}

// hasTypes tells that of a GRES it is also known which types were asked for.
func (r *Record) hasTypes(name string) bool {
	return slices.ContainsFunc(r.Asked.Other, func(o spec.TRESCount) bool {
		return strings.HasPrefix(o.Name, "gres/"+
			name+":")
	})
}
