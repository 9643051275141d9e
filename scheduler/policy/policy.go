// Package policy plans changes of accounts, users, associations, QOS, keys
// and resources as sacctmgr words them: a command, or a whole file of them,
// becomes the events that bring it about, all of them or none. It is pure: the
// writer commits what it plans.
package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// Verb is what to do.
type Verb int

// The verbs, numbered as in the API.
const (
	Add Verb = iota + 1
	Modify
	Delete
)

// Change is one command. Keys are sacctmgr's option names without regard to
// case; a key may end in + or - for lists.
type Change struct {
	Verb   Verb
	Entity string // cluster, account, user, association, qos, coordinator, wckey, resource
	Names  []string
	Where  []spec.KeyValue
	Set    []spec.KeyValue
}

// planner folds what it plans into a fork of the state at once, so that later
// steps see the earlier ones, and what the ledger would refuse is refused here.
type planner struct {
	t     *trial.Trial
	names []string
	c     Change
}

// Plan turns a change into events and the list of what it touches. A refusal
// is a *spec.Error that names every fault; nothing is half-applied.
func Plan(cluster *state.State, change Change) ([]event.Event, []string, error) {
	p := newPlanner(cluster)
	if err := p.planChange(change); err != nil {
		return nil, nil, err
	}
	return p.plannedEvents(), p.names, nil
}

func newPlanner(cluster *state.State) *planner {
	return &planner{t: trial.On(cluster.Fork(), cluster.At, event.Actor{}, "policy")}
}

func (p *planner) plannedEvents() []event.Event {
	events := make([]event.Event, len(p.t.Events))
	for i := range p.t.Events {
		events[i] = p.t.Events[i].Event
	}
	return events
}

func (p *planner) currentPolicy() *state.Policy { return p.t.Policy }

// planChange plans one command.
func (p *planner) planChange(change Change) error {
	p.c = change
	if err := p.checkCluster(); err != nil {
		return err
	}
	switch strings.ToLower(change.Entity) {
	case "cluster":
		return p.planCluster()
	case "account":
		return p.planAccount()
	case "user":
		return p.planUser()
	case "association":
		return p.planAssociation()
	case "qos":
		return p.planQOS()
	case "coordinator":
		return p.planCoordinator()
	case "wckey":
		return p.planWCKey()
	case "resource":
		return p.planResource()
	}
	return badOption(
		"%q is not an entity that can be changed (cluster, account, user, association, qos, coordinator, wckey, resource)",
		change.Entity,
	)
}

// withArticle is a kind of thing in a sentence: a user, an account.
func withArticle(what string) string {
	if strings.HasPrefix(what, "a") {
		return "an " + what
	}
	return "a " + what
}

func badOption(format string, args ...any) error {
	return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf(format, args...))
}

// emitEvent plans an event; what the ledger's rules forbid is a refusal.
func (p *planner) emitEvent(ev event.Event) error {
	if err := p.t.Emit(ev); err != nil {
		return badOption("%v", err)
	}
	return nil
}

// lastValue finds the last value of a key, without + and -.
func lastValue(list []spec.KeyValue, keys ...string) (string, bool) {
	out, ok := "", false
	for _, kv := range list {
		if slices.Contains(keys, plainKey(kv.Key)) {
			out, ok = kv.Value, true
		}
	}
	return out, ok
}

func plainKey(key string) string { return strings.ToLower(strings.TrimRight(key, "+-")) }

// listValue is the value of a key as a list.
func listValue(list []spec.KeyValue, keys ...string) ([]string, bool) {
	value, ok := lastValue(list, keys...)
	if !ok {
		return nil, false
	}
	var out []string
	for _, text := range strings.Split(value, ",") {
		text = strings.TrimSpace(text)
		if text != "" {
			out = append(out, text)
		}
	}
	return out, true
}

// allPairs is everything that a command says, conditions first.
func (p *planner) allPairs() []spec.KeyValue { return slices.Concat(p.c.Where, p.c.Set) }

func (p *planner) checkCluster() error {
	for _, list := range [...][]spec.KeyValue{p.c.Where, p.c.Set} {
		names, _ := listValue(list, "cluster", "clusters")
		for _, name := range names {
			if name == p.t.ClusterName || strings.EqualFold(p.c.Entity, "cluster") {
				continue
			}
			known := p.currentPolicy().FindCluster(name)
			if known == nil {
				return badOption("cluster %q is not known here (this is %q)", name, p.t.ClusterName)
			}
			return badOption(
				"cluster %q has accounts of its own, and this is %q: set MUSTER_SOCKET=%s and repeat the command there",
				name, p.t.ClusterName, known.Socket,
			)
		}
	}
	return nil
}

// knownConditions refuses conditions that nothing would be done with.
func (p *planner) knownConditions(keys ...string) error {
	for _, kv := range p.c.Where {
		if key := plainKey(kv.Key); !slices.Contains(keys, key) && key != "cluster" &&
			key != "clusters" {
			refusal := spec.RefuseUnknown(spec.Unknown{
				Kind:    "condition",
				Word:    kv.Key,
				Of:      withArticle(strings.ToLower(p.c.Entity)),
				Nearest: spec.Nearest(key, keys),
			})
			refusal.Detail += ": " + strings.Join(keys, ", ") + " are known"
			return refusal
		}
	}
	if p.c.Verb != Add && len(p.c.Names) == 0 && len(p.c.Where) == 0 {
		return badOption(
			"name the %s, or say where: everything at once is not changed",
			strings.ToLower(p.c.Entity),
		)
	}
	return nil
}

func (p *planner) planQOS() error {
	if err := p.knownConditions("name", "names", "qos", "id", "description"); err != nil {
		return err
	}
	names, err := p.matchQOS()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := p.oneQOS(name); err != nil {
			return err
		}
	}
	return nil
}

// matchQOS lists the QOS that a command is about.
func (p *planner) matchQOS() ([]string, error) {
	if len(p.c.Names) > 0 || p.c.Verb == Add {
		return p.c.Names, nil
	}
	ids, byID := listValue(p.c.Where, "id")
	text, byText := lastValue(p.c.Where, "description")
	var out []string
	for i := range p.currentPolicy().QOS {
		qos := &p.currentPolicy().QOS[i]
		if (!byID || slices.Contains(ids, fmt.Sprint(qos.ID))) &&
			(!byText || strings.EqualFold(qos.Description, text)) {
			out = append(out, qos.Name)
		}
	}
	return out, nil
}

func (p *planner) oneQOS(name string) error {
	old := p.currentPolicy().FindQOS(name)
	qos := spec.QOS{Name: name}
	switch {
	case p.c.Verb == Add && old != nil:
		return nil // as sacctmgr: an existing entity is not touched
	case p.c.Verb != Add && old == nil:
		return badOption("QOS %q does not exist", name)
	case p.c.Verb == Delete:
		if who := qosUser(p.t.State, name); who != "" {
			return badOption("QOS %q is in use by %s", name, who)
		}
		if err := p.takeOut(name); err != nil {
			return err
		}
		p.names = append(p.names, name)
		return p.emitEvent(&event.QOSRemoved{Name: name})
	case old != nil:
		qos = *old
	default:
		if err := validName(name); err != nil {
			return err
		}
		qos.ID, qos.Description = p.currentPolicy().NextQOS+1, name
	}
	clear, err := setQOS(p.currentPolicy(), &qos, p.c.Set)
	if err != nil {
		return err
	}
	if err := validShares(&qos); err != nil {
		return err
	}
	if err := p.emitEvent(&event.QOSPut{QOS: qos}); err != nil {
		return err
	}
	p.names = append(p.names, name)
	if clear {
		return p.emitEvent(&event.UsageCleared{QOS: qos.ID})
	}
	return nil
}

// validShares refuses a QOS with the flag Relative whose limits are no per cent
// of anything.
func validShares(qos *spec.QOS) error {
	if !qos.HasFlag(limits.Relative) {
		return nil
	}
	for _, list := range limits.Shares(qos) {
		for _, limit := range *list {
			switch {
			case !limits.IsShare(limit.Name):
				return badOption(
					"QOS %s is Relative: of %s there is no whole that a limit could be per cent of",
					qos.Name,
					limit.Name,
				)
			case limit.N > 100:
				return badOption(
					"QOS %s is Relative: %s=%d is more than 100 per cent",
					qos.Name,
					limit.Name,
					limit.N,
				)
			}
		}
	}
	return nil
}

// validName refuses names that no list or file could hold.
func validName(name string) error {
	if name == "" || strings.ContainsAny(name, " \t\n,:='\"|") {
		return badOption("%q is not a name", name)
	}
	return nil
}

// takeOut removes a QOS from the lists and defaults of associations and from the
// Preempt lists of other QOS, as in Slurm. An association whose list is empty then
// inherits that of its parent.
func (p *planner) takeOut(name string) error {
	is := func(n string) bool { return n == name }
	for _, assoc := range slices.Clone(p.currentPolicy().Assocs) {
		if !slices.Contains(assoc.QOS, name) && assoc.DefaultQOS != name {
			continue
		}
		assoc.QOS = slices.DeleteFunc(slices.Clone(assoc.QOS), is)
		if assoc.DefaultQOS == name {
			assoc.DefaultQOS = ""
		}
		if err := p.emitEvent(&event.AssociationPut{Association: assoc}); err != nil {
			return err
		}
	}
	for _, qos := range slices.Clone(p.currentPolicy().QOS) {
		if !slices.Contains(qos.Preempt, name) {
			continue
		}
		qos.Preempt = slices.DeleteFunc(slices.Clone(qos.Preempt), is)
		if err := p.emitEvent(&event.QOSPut{QOS: qos}); err != nil {
			return err
		}
	}
	return nil
}

// qosUser says what keeps a QOS from being deleted; empty if nothing does. Lists of
// associations do not, except the last entry of the tree's root: below it, an
// empty list inherits.
func qosUser(cluster *state.State, qos string) string {
	for i := range cluster.Policy.Assocs {
		if association := &cluster.Policy.Assocs[i]; association.Parent == 0 &&
			slices.Equal(association.QOS, []string{qos}) {
			return "the association of " + assocName(association) + ", and is its last one"
		}
	}
	for i := range cluster.Parts.List {
		if cluster.Parts.List[i].Spec.QOS == qos {
			return "partition " + cluster.Parts.List[i].Spec.Name
		}
	}
	if n := liveJobs(cluster, func(job *state.Job) bool {
		return job.Spec.QOS == qos || slices.Contains(job.Spec.QOSes, qos)
	}); n > 0 {
		return format.Plural(n, "job", "jobs")
	}
	return ""
}

func assocName(assoc *spec.Association) string {
	if assoc.User == "" {
		return "account " + assoc.Account
	}
	return "user " + assoc.User + " in account " + assoc.Account
}

func liveJobs(cluster *state.State, match func(j *state.Job) bool) int {
	n := 0
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if !job.State.Terminal() && match(job) {
			n++
		}
		return true
	})
	return n
}
