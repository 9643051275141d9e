package scheduler

import (
	"fmt"
	"math"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/resv"
	"github.com/musterhpc/muster/spec"
)

// powerNodes does what somebody asks for about the power of nodes.
func (d *decision) powerNodes(c PowerNodes) error {
	if c.How != PowerUp && !d.t.Config.Power.On() {
		return spec.Refuse(spec.CodeDisabled, "nodes are not powered down here: SuspendProgram and ResumeProgram are not both configured")
	}
	to := map[event.PowerState][]string{}
	for _, name := range c.Nodes {
		n := d.t.Node(name)
		if n == nil || n.Removed {
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		}
		next, err := nextPower(n, c.How)
		if err != nil {
			return err
		}
		if next != 0 && !slices.Contains(to[next], name) {
			to[next] = append(to[next], name)
		}
	}
	for next := event.PowerOn; next <= event.PoweringUp; next++ {
		if c.How == PowerDownForce {
			for _, name := range to[next] {
				if err := d.clearForPower(name); err != nil {
					return err
				}
			}
		}
		if err := d.setPower(&event.NodePowered{Nodes: to[next], To: next, Why: "asked for"}); err != nil {
			return err
		}
	}
	return nil
}

// nextPower is what becomes of a node's power by a wish; 0 if it is so already.
func nextPower(n *state.Node, how PowerHow) (event.PowerState, error) {
	coming := n.Power == event.PowerUpWish || n.Power == event.PoweringUp
	switch {
	case how == PowerUp && n.Power == event.PoweringDown:
		return 0, spec.Refuse(spec.CodeInvalidNodeState, n.Spec.Name+" is being powered down: ask again when it is")
	case how == PowerUp && n.Power == event.PoweredDown:
		return event.PowerUpWish, nil
	case how == PowerUp && (n.Power == event.PowerDownWish || n.Power == event.PowerDownASAP):
		return event.PowerOn, nil
	case how == PowerUp || n.Power == event.PoweringDown || n.Power == event.PoweredDown:
		return 0, nil
	case how == PowerDownForce:
		return event.PoweringDown, nil
	case n.Power == event.PowerUpWish && len(n.Jobs) == 0:
		return event.PoweredDown, nil
	case coming:
		return 0, spec.Refuse(spec.CodeInvalidNodeState, n.Spec.Name+" is being powered up: ask again when it is, or use power_down_force")
	case how == PowerDownASAP:
		return event.PowerDownASAP, nil
	case n.Power == event.PowerDownASAP:
		return 0, nil
	}
	return event.PowerDownWish, nil
}

// clearForPower tells the jobs of a node to end that is powered down whatever
// runs there, and puts it back into service.
func (d *decision) clearForPower(name string) error {
	n := d.t.Node(name)
	for _, uid := range n.Jobs {
		if j := d.t.Job(uid); j.State.Active() && j.Ending == nil {
			if err := d.end(j, event.EndNodeLost, d.mayRequeue(j), spec.NotHeld, "node "+name+" is powered down"); err != nil {
				return err
			}
		}
	}
	if n.Admin == event.NodeResume {
		return nil
	}
	return d.emit(&event.NodeStateSet{Node: name, State: event.NodeResume})
}

// wake asks for the nodes of an allocation that are powered down.
func (d *decision) wake(a *spec.Allocation) error {
	var names []string
	for i := range a.Nodes {
		if n := d.t.NodeByID(a.Nodes[i].ID); n != nil && n.Power == event.PoweredDown {
			names = append(names, n.Spec.Name)
		}
	}
	if names == nil {
		return nil
	}
	return d.emit(&event.NodePowered{Nodes: names, To: event.PowerUpWish, Why: "a job"})
}

// overPowered says that too many nodes would be powered up if those of an
// allocation were, or nil.
func overPowered(st *state.State, a *spec.Allocation) *spec.Reason {
	if st.Config.Power == nil || st.Config.Power.MaxUp == 0 {
		return nil
	}
	asleep, up := int64(0), int64(0)
	for i := range a.Nodes {
		if n := st.NodeByID(a.Nodes[i].ID); n != nil && n.Power == event.PoweredDown {
			asleep++
		}
	}
	if asleep == 0 {
		return nil
	}
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		if n.Power != event.PoweredDown && !n.Removed {
			up++
		}
		return true
	})
	if most := int64(st.Config.Power.MaxUp); up+asleep > most {
		return &spec.Reason{Code: "MaxPoweredUpNodes", TRES: "node", Limit: most, Used: up, Asked: asleep}
	}
	return nil
}

// neverRan lets an attempt that is to end be over at once if it still waits
// for its nodes to boot: nothing of it was started anywhere.
func (d *decision) neverRan(ev event.Event) error {
	e, ok := ev.(*event.JobEndRequested)
	if !ok {
		return nil
	}
	for j := d.t.Job(e.UID); j.Configuring(); j = d.t.Job(e.UID) {
		i := 0
		for j.Done.Has(i) {
			i++
		}
		if err := d.nodeDone(j, j.Alloc.Nodes[i].Name, &NodeDone{}, false); err != nil {
			return err
		}
	}
	return nil
}

// cameUp is a node that was powered up, and has registered.
func (d *decision) cameUp(name string) error {
	if err := d.emit(&event.NodePowered{Nodes: []string{name}, To: event.PowerOn, Why: "registered"}); err != nil {
		return err
	}
	return d.begun(name)
}

// begun lets what waited for a node begin, now that it is up, unless the node is
// not what was given to it.
func (d *decision) begun(name string) error {
	n := d.t.Node(name)
	for _, uid := range slices.Clone(n.Jobs) {
		j := d.t.Job(uid)
		if !j.Configuring() || j.Ending != nil {
			continue
		}
		why := n.Invalid
		if n.Missing(&j.Alloc.Nodes[j.Alloc.Index(n.ID)]) {
			why = "it has other GPUs than before"
		}
		var err error
		switch {
		case why != "":
			err = d.end(j, event.EndBoot, d.mayRequeue(j), spec.NotHeld, "node "+name+" came up unfit: "+why)
		case d.t.Booting(j) == nil:
			err = d.emit(&event.JobReady{UID: j.UID, Attempt: j.Attempt})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// powerTick is what a second brings about in the power of nodes.
type powerTick struct {
	off, failed, up, down, idle []string
	lastDown, lastUp            spec.Instant // when programs were last run
}

// tickPower follows nodes on their way down and up, powers up those that
// somebody waits for and down those that nobody needs.
func (d *decision) tickPower() error {
	p := d.t.Config.Power
	var t powerTick
	d.t.Nodes.Range(func(_ uint64, n *state.Node) bool {
		t.lastDown, t.lastUp = max(t.lastDown, n.DownAt), max(t.lastUp, n.UpAt)
		if n.Power != 0 || (p.On() && len(n.Jobs) == 0) {
			d.lookAtPower(&t, n)
		}
		return true
	})
	for _, name := range t.failed {
		if err := d.bootFailed(name); err != nil {
			return err
		}
	}
	for _, name := range t.off {
		if err := d.loseJobs(name, "node "+name+" was powered down"); err != nil {
			return err
		}
		if n := d.t.Node(name); p != nil && p.IdleOnDown && n.Admin != event.NodeResume {
			if err := d.emit(&event.NodeStateSet{Node: name, State: event.NodeResume}); err != nil {
				return err
			}
		}
	}
	var upRate, downRate uint32
	if p != nil {
		upRate, downRate = p.UpRate, p.DownRate
	}
	ups := first(t.up, quota(upRate, t.lastUp, d.t.Now))
	downs := first(t.down, quota(downRate, t.lastDown, d.t.Now))
	idle := first(d.notKept(t.idle), quota(downRate, t.lastDown, d.t.Now)-len(downs))
	for _, ev := range [...]*event.NodePowered{
		{Nodes: t.failed, To: event.PoweredDown, Why: resumeTimeout, Failed: true}, {Nodes: t.off, To: event.PoweredDown, Why: "SuspendTimeout"},
		{Nodes: ups, To: event.PoweringUp}, {Nodes: downs, To: event.PoweringDown, Why: "asked for"}, {Nodes: idle, To: event.PoweringDown, Why: "idle"},
	} {
		if err := d.setPower(ev); err != nil {
			return err
		}
	}
	return nil
}

// setPower moves nodes on, if there are any. What is powered down need not be
// rebooted any more.
func (d *decision) setPower(ev *event.NodePowered) error {
	for _, name := range ev.Nodes {
		if ev.To == event.PoweringDown && d.t.Node(name).Reboot != nil {
			if err := d.emit(&event.NodeReboot{Node: name, Phase: event.RebootOver, Reason: "powered down"}); err != nil {
				return err
			}
		}
	}
	if len(ev.Nodes) == 0 {
		return nil
	}
	return d.emit(ev)
}

// resumeTimeout is the reason of a node that did not come up.
const resumeTimeout = "ResumeTimeout reached"

// lookAtPower notes what is due about one node.
func (d *decision) lookAtPower(t *powerTick, n *state.Node) {
	name, times := n.Spec.Name, d.powerTimes(n)
	switch n.Power {
	case event.PoweringDown:
		if n.PowerAt.Add(times.DownIn) <= d.t.Now {
			t.off = append(t.off, name)
		}
	case event.PoweringUp:
		if n.PowerAt.Add(times.UpIn) <= d.t.Now {
			t.failed = append(t.failed, name)
		}
	case event.PowerUpWish:
		t.up = append(t.up, name)
	case event.PowerDownWish, event.PowerDownASAP:
		if len(n.Jobs) == 0 {
			t.down = append(t.down, name)
		}
	case event.PoweredDown:
	default:
		since := max(n.BusyAt, n.PowerAt, n.Registered)
		if d.t.Config.Power.On() && times.IdleAfter > 0 && len(n.Jobs) == 0 && n.Inv != nil && !n.Removed && n.Reboot == nil && since.Add(times.IdleAfter) <= d.t.Now {
			t.idle = append(t.idle, name)
		}
	}
}

// powerTimes are those of a node in its partitions.
func (d *decision) powerTimes(n *state.Node) spec.PowerTimes { return PowerTimes(d.t.State, n) }

// PowerTimes are the times of a node that count for its power.
func PowerTimes(st *state.State, n *state.Node) spec.PowerTimes {
	var parts []*spec.PartitionSpec
	for i := range st.Parts.List {
		if st.Parts.List[i].Nodes.Has(int(n.ID)) {
			parts = append(parts, st.Parts.List[i].Spec)
		}
	}
	return st.Config.PowerTimes(n.Spec, parts)
}

// quota is how many nodes may be told now, at so many a minute.
func quota(rate uint32, last, now spec.Instant) int {
	if rate == 0 {
		return math.MaxInt
	}
	return int(int64(rate) * int64(min(now.Sub(last), spec.Minute)) / int64(spec.Minute))
}

func first(names []string, n int) []string { return names[:min(len(names), max(n, 0))] }

// notKept leaves out the idle nodes that are to stay up.
func (d *decision) notKept(idle []string) []string {
	p := d.t.Config.Power
	if len(idle) == 0 {
		return nil
	}
	out := slices.DeleteFunc(idle, func(name string) bool { return d.staysUp(d.t.Node(name)) })
	for _, k := range p.Keep {
		up := int64(0) // that could take a job now
		for _, name := range k.Nodes {
			if n := d.t.Node(name); n != nil && n.Usable() && !n.Asleep() && len(n.Jobs) == 0 {
				up++
			}
		}
		out = slices.DeleteFunc(out, func(name string) bool {
			if !slices.Contains(k.Nodes, name) {
				return false
			}
			if n := d.t.Node(name); !n.Usable() && k.N > 0 {
				return false // it is none of those that count
			}
			if up--; k.N > 0 && up >= k.N {
				return false
			}
			return true
		})
	}
	return out
}

// staysUp tells whether a node is not powered down because of its partition or
// state.
func (d *decision) staysUp(n *state.Node) bool {
	p := d.t.Config.Power
	for _, name := range p.KeepParts {
		if part := d.t.Parts.Find(name); part != nil && part.Nodes.Has(int(n.ID)) {
			return true
		}
	}
	for _, s := range p.KeepStates {
		switch {
		case s == "CLOUD" && n.Spec.State == "CLOUD", s == "DOWN" && n.Admin == event.NodeDown, s == "DRAIN" && n.Admin == event.NodeDrain,
			s == "FAIL" && n.Admin == event.NodeFail, s == "INVALID_REG" && n.Invalid != "", s == "NOT_RESPONDING" && n.Lost:
			return true
		case (s == "RESERVED" || s == "MAINTENANCE") && d.reserved(n, s == "MAINTENANCE"):
			return true
		}
	}
	return false
}

// reserved tells whether a node is in a reservation that is on.
func (d *decision) reserved(n *state.Node, maint bool) bool {
	for i := range d.t.Reservations {
		r := &d.t.Reservations[i]
		if r.Flags.Has(spec.ResvMaint) != maint || !resv.Nodes(d.t.State, r).Has(int(n.ID)) {
			continue
		}
		for _, w := range resv.Windows(r, d.t.Now) {
			if w.From <= d.t.Now && d.t.Now < w.To {
				return true
			}
		}
	}
	return false
}

// bootFailed sets a node aside that did not come up; what waited for it is
// queued again.
func (d *decision) bootFailed(name string) error {
	if err := d.endBoots(name, resumeTimeout); err != nil {
		return err
	}
	if err := d.loseJobs(name, resumeTimeout); err != nil {
		return err
	}
	if d.t.Node(name).Admin == event.NodeDown {
		return nil
	}
	return d.emit(&event.NodeStateSet{Node: name, State: event.NodeDown, Reason: resumeTimeout})
}

// endBoots ends the attempts that wait for a node which does not come up.
func (d *decision) endBoots(name, why string) error {
	for _, uid := range slices.Clone(d.t.Node(name).Jobs) {
		if j := d.t.Job(uid); j.Configuring() && j.Ending == nil {
			if err := d.end(j, event.EndBoot, d.mayRequeue(j), spec.NotHeld, fmt.Sprintf("node %s did not come up: %s", name, why)); err != nil {
				return err
			}
		}
	}
	return nil
}
