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
func Imported(config *spec.Config, records []Record, from, to spec.Instant) (w *Workload, leftOut int, err error) {
	w = &Workload{Config: openConfig(config), Policy: policy.Founding(config.Enforce.Associations)}
	ids := map[string]uint32{}
	users, all := map[string]map[string]bool{}, map[string]bool{}
	for i := range records {
		r := &records[i]
		switch {
		case r.Eligible < from || r.Eligible >= to || r.Eligible == 0:
			continue
		case r.Start == 0 || !r.Ended:
			leftOut++
			continue
		}
		if users[r.Account] == nil {
			users[r.Account] = map[string]bool{}
		}
		users[r.Account][r.User], all[r.QOS] = true, true
		js := r.request()
		if js.UID == 0 && js.User != "root" { // its number was not told
			if ids[js.User] == 0 {
				ids[js.User] = uint32(firstUnknown + len(ids))
			}
			js.UID = ids[js.User]
		}
		w.Jobs = append(w.Jobs, Job{Spec: js, Submit: r.Eligible, Run: max(r.Run, 0), Failed: r.Failed})
	}
	if len(w.Jobs) == 0 {
		return nil, leftOut, ErrNoHistory
	}
	w.sortJobs()
	w, err = w.With(nil, whoTheyAre(users, all))
	return w, leftOut, err
}

// whoTheyAre are the commands that make the users, accounts and QOS of a history.
func whoTheyAre(users map[string]map[string]bool, qos map[string]bool) []policy.Change {
	delete(qos, "")
	delete(users, "")
	var out []policy.Change
	add := func(entity string, names []string, set ...spec.KeyValue) {
		out = append(out, policy.Change{Verb: policy.Add, Entity: entity, Names: names, Set: set})
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
	return out
}

// request is what a run asked for, as a job that can be submitted.
func (r *Record) request() *spec.JobSpec {
	js := &spec.JobSpec{Name: r.Name, User: r.User, Group: r.Group, UID: r.UID, GID: r.GID, Account: r.Account, QOS: r.QOS, Partitions: r.Partitions}
	js.Time.Limit, js.Place.Constraint = r.Limit, r.Constraint
	nodes, cpus := max(r.Nodes, 1), max(r.Asked.CPU, 1)
	js.Size.MinNodes, js.Size.MaxNodes = uint32(nodes), uint32(nodes)
	js.Size.Tasks, js.Size.CPUsPerTask = uint32(nodes), uint32(cpus/nodes)
	if cpus%nodes != 0 {
		js.Size.Tasks, js.Size.CPUsPerTask = uint32(max(cpus, nodes)), 1
	}
	js.Size.MemPerNode = (r.Asked.Mem + nodes - 1) / nodes
	for _, o := range r.Asked.Other {
		kind, name, _ := strings.Cut(o.Name, "/")
		c := spec.Count{Name: name, N: o.N}
		switch c.Name, c.Type, _ = strings.Cut(name, ":"); {
		case kind == "license":
			js.Licenses = append(js.Licenses, spec.Count{Name: name, N: o.N})
		case kind != "gres" || o.N == 0 || (c.Type == "" && r.typed(name)):
		case c.N%nodes == 0:
			c.N /= nodes
			js.Size.PerNode = append(js.Size.PerNode, c)
		default:
			js.Size.PerJob = append(js.Size.PerJob, c)
		}
	}
	return js
}

// typed tells that of a GRES it is also known which types were asked for.
func (r *Record) typed(name string) bool {
	return slices.ContainsFunc(r.Asked.Other, func(o spec.TRESCount) bool { return strings.HasPrefix(o.Name, "gres/"+name+":") })
}
