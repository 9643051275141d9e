package decide

import (
	"fmt"
	"math"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// powerCommands decides when nodes are powered up and down, and when they reboot.
type powerCommands struct{ *decision }

// powerNodes carries out a request to power nodes up or down.
func (d powerCommands) powerNodes(command PowerNodes) error {
	if command.How != PowerUp && !d.t.Config.Power.On() {
		return spec.Refuse(
			spec.CodeDisabled,
			"nodes are not powered down here: SuspendProgram and ResumeProgram are not both configured",
		)
	}
	to := map[event.PowerState][]string{}
	for _, name := range command.Nodes {
		node := d.t.Node(name)
		if node == nil || node.Removed {
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		}
		if command.How == PowerDownForce {
			if err := d.pods().clearOfPods(node); err != nil {
				return err
			}
		}
		next, err := nextPower(node, command.How)
		if err != nil {
			return err
		}
		if next != 0 && !slices.Contains(to[next], name) {
			to[next] = append(to[next], name)
		}
	}
	for next := event.PowerOn; next <= event.PoweringUp; next++ {
		if command.How == PowerDownForce {
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
func nextPower(node *state.Node, how PowerHow) (event.PowerState, error) {
	coming := node.Power == event.PowerUpWish || node.Power == event.PoweringUp
	switch {
	case how == PowerUp && node.Power == event.PoweringDown:
		return 0, spec.Refuse(spec.CodeInvalidNodeState, node.Spec.Name+
			" is powering down; retry once it is down")
	case how == PowerUp && node.Power == event.PoweredDown:
		return event.PowerUpWish, nil
	case how == PowerUp && (node.Power == event.PowerDownWish || node.Power == event.PowerDownASAP):
		return event.PowerOn, nil
	case how == PowerUp || node.Power == event.PoweringDown || node.Power == event.PoweredDown:
		return 0, nil
	case how == PowerDownForce && len(node.Holds) > 0:
		return 0, spec.Refuse(spec.CodeNodesBusy, node.Holds[0].Name()+
			" of another scheduler is on "+node.Spec.Name+": drain the node there first")
	case how == PowerDownForce:
		return event.PoweringDown, nil
	case node.Power == event.PowerUpWish && len(node.Jobs) == 0:
		return event.PoweredDown, nil
	case coming:
		return 0, spec.Refuse(spec.CodeInvalidNodeState, node.Spec.Name+
			" is powering up; retry once it is up, or use power_down_force")
	case how == PowerDownASAP:
		return event.PowerDownASAP, nil
	case node.Power == event.PowerDownASAP:
		return 0, nil
	}
	return event.PowerDownWish, nil
}

// clearForPower tells the jobs of a node to end that is powered down whatever
// runs there, and puts it back into service.
func (d powerCommands) clearForPower(name string) error {
	node := d.t.Node(name)
	for _, uid := range node.Jobs {
		if job := d.t.Job(uid); job.GoesOn() {
			if err := d.RequestEnd(job, event.EndNodeLost, d.MayRequeue(job), spec.NotHeld, "node "+
				name+" is powered down"); err != nil {
				return err
			}
		}
	}
	if node.Admin == event.NodeResume {
		return nil
	}
	return d.Emit(&event.NodeStateSet{Node: name, State: event.NodeResume})
}

// cameUp is a node that was powered up, and has registered.
func (d powerCommands) cameUp(name string) error {
	if err := d.Emit(&event.NodePowered{Nodes: []string{name}, To: event.PowerOn, Why: "registered"}); err != nil {
		return err
	}
	return d.beginWaiting(name)
}

// beginWaiting lets what waited for a node begin, now that it is up, unless the node is
// not what was given to it.
func (d powerCommands) beginWaiting(name string) error {
	node := d.t.Node(name)
	for _, uid := range slices.Clone(node.Jobs) {
		job := d.t.Job(uid)
		if !job.Configuring() || job.Ending != nil {
			continue
		}
		reason := node.Invalid
		if node.Missing(&job.Alloc.Nodes[job.Alloc.Index(node.ID)]) {
			reason = "it has other GPUs than before"
		}
		var err error
		switch {
		case reason != "":
			err = d.RequestEnd(job, event.EndBoot, d.MayRequeue(job), spec.NotHeld, "node "+name+
				" came up unfit: "+reason)
		case d.t.Booting(job) == nil:
			err = d.Emit(&event.JobReady{UID: job.UID, Attempt: job.Attempt})
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
func (d powerCommands) tickPower() error {
	power := d.t.Config.Power
	var tick powerTick
	d.t.Nodes.Range(func(_ uint64, node *state.Node) bool {
		tick.lastDown, tick.lastUp = max(tick.lastDown, node.DownAt), max(tick.lastUp, node.UpAt)
		if node.Power != 0 || (power.On() && len(node.Jobs) == 0) {
			d.lookAtPower(&tick, node)
		}
		return true
	})
	for _, name := range tick.failed {
		if err := d.bootFailed(name); err != nil {
			return err
		}
	}
	for _, name := range tick.off {
		// SuspendProgram has had its time. That is no proof that the node is off: the program may
		// have failed, or ended with a controller that died or was overtaken. What lived there is
		// owed until the program says so (FenceProgramOf) or the node boots.
		if err := d.nodes().takeJobs(name, "node "+name+" was powered down", true); err != nil {
			return err
		}
		if n := d.t.Node(name); power != nil && power.IdleOnDown && n.Admin != event.NodeResume {
			if err := d.Emit(&event.NodeStateSet{Node: name, State: event.NodeResume}); err != nil {
				return err
			}
		}
	}
	var upRate, downRate uint32
	if power != nil {
		upRate, downRate = power.UpRate, power.DownRate
	}
	ups := first(tick.up, quota(upRate, tick.lastUp, d.t.Now))
	downs := first(tick.down, quota(downRate, tick.lastDown, d.t.Now))
	idle := first(d.notKept(tick.idle), quota(downRate, tick.lastDown, d.t.Now)-len(downs))
	for _, ev := range [...]*event.NodePowered{
		{Nodes: tick.failed, To: event.PoweredDown, Why: resumeTimeout, Failed: true}, {Nodes: tick.off, To: event.PoweredDown, Why: "SuspendTimeout"},
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
func (d powerCommands) setPower(ev *event.NodePowered) error {
	for _, name := range ev.Nodes {
		if ev.To == event.PoweringDown && d.t.Node(name).Reboot != nil {
			if err := d.Emit(&event.NodeReboot{Node: name, Phase: event.RebootOver, Reason: "powered down"}); err != nil {
				return err
			}
		}
	}
	if len(ev.Nodes) == 0 {
		return nil
	}
	return d.Emit(ev)
}

// resumeTimeout is the reason of a node that did not come up.
const resumeTimeout = "ResumeTimeout reached"

// lookAtPower notes what is due about one node.
func (d powerCommands) lookAtPower(tick *powerTick, node *state.Node) {
	name, times := node.Spec.Name, d.powerTimes(node)
	switch node.Power {
	case event.PoweringDown:
		if node.PowerAt.Add(times.DownIn) <= d.t.Now {
			tick.off = append(tick.off, name)
		}
	case event.PoweringUp:
		if node.PowerAt.Add(times.UpIn) <= d.t.Now {
			tick.failed = append(tick.failed, name)
		}
	case event.PowerUpWish:
		tick.up = append(tick.up, name)
	case event.PowerDownWish, event.PowerDownASAP:
		if node.Unused() {
			tick.down = append(tick.down, name)
		}
	case event.PoweredDown:
	default:
		if len(node.Unfenced) > 0 {
			return // it is not idle as long as something may live there
		}
		if !d.t.Config.Power.On() || node.Removed || node.Reboot != nil {
			return
		}
		since := max(node.BusyAt, node.PowerAt, node.Registered)
		idle := times.IdleAfter > 0 && node.Unused() && node.Inv != nil
		if idle && since.Add(times.IdleAfter) <= d.t.Now {
			tick.idle = append(tick.idle, name)
		}
	}
}

// powerTimes are those of a node in its partitions.
func (d powerCommands) powerTimes(node *state.Node) spec.PowerTimes {
	return PowerTimes(d.t.State, node)
}

// PowerTimes are the times of a node that count for its power.
func PowerTimes(cluster *state.State, node *state.Node) spec.PowerTimes {
	var parts []*spec.PartitionSpec
	for i := range cluster.Parts.List {
		if cluster.Parts.List[i].Nodes.Has(int(node.ID)) {
			parts = append(parts, cluster.Parts.List[i].Spec)
		}
	}
	return cluster.Config.PowerTimes(node.Spec, parts)
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
func (d powerCommands) notKept(idle []string) []string {
	power := d.t.Config.Power
	if len(idle) == 0 {
		return nil
	}
	out := slices.DeleteFunc(idle, func(name string) bool { return d.staysUp(d.t.Node(name)) })
	for _, keep := range power.Keep {
		up := int64(0) // that could take a job now
		for _, name := range keep.Nodes {
			if node := d.t.Node(name); node != nil && node.Usable() && !node.Asleep() &&
				len(node.Jobs) == 0 {
				up++
			}
		}
		out = slices.DeleteFunc(out, func(name string) bool {
			if !slices.Contains(keep.Nodes, name) {
				return false
			}
			if n := d.t.Node(name); !n.Usable() && keep.N > 0 {
				return false // it is none of those that count
			}
			up--
			if keep.N > 0 && up >= keep.N {
				return false
			}
			return true
		})
	}
	return out
}

// staysUp tells whether a node is not powered down because of its partition or
// state.
func (d powerCommands) staysUp(node *state.Node) bool {
	power := d.t.Config.Power
	for _, name := range power.KeepParts {
		if part := d.t.Parts.Find(name); part != nil && part.Nodes.Has(int(node.ID)) {
			return true
		}
	}
	for _, text := range power.KeepStates {
		switch {
		case text == "CLOUD" && node.Spec.State == "CLOUD",
			text == "DOWN" && node.Admin == event.NodeDown,
			text == "DRAIN" && node.Admin == event.NodeDrain,
			text == "FAIL" &&
				node.Admin == event.NodeFail,
			text == "INVALID_REG" && node.Invalid != "",
			text == "NOT_RESPONDING" && node.Lost:
			return true
		case (text == "RESERVED" || text == "MAINTENANCE") &&
			d.isReserved(node, text == "MAINTENANCE"):
			return true
		}
	}
	return false
}

// isReserved tells whether a node is in a reservation that is on.
func (d powerCommands) isReserved(node *state.Node, maint bool) bool {
	for i := range d.t.Reservations {
		reservation := &d.t.Reservations[i]
		if reservation.Flags.Has(spec.ResvMaint) != maint ||
			!timeline.ReservedNodes(d.t.State, reservation).Has(int(node.ID)) {
			continue
		}
		for _, window := range timeline.Windows(reservation, d.t.Now) {
			if window.From <= d.t.Now && d.t.Now < window.To {
				return true
			}
		}
	}
	return false
}

// bootFailed sets a node aside that did not come up; what waited for it is
// queued again.
func (d powerCommands) bootFailed(name string) error {
	if err := d.endBoots(name, resumeTimeout); err != nil {
		return err
	}
	if err := d.nodes().loseJobs(name, resumeTimeout); err != nil {
		return err
	}
	if d.t.Node(name).Admin == event.NodeDown {
		return nil
	}
	return d.Emit(&event.NodeStateSet{Node: name, State: event.NodeDown, Reason: resumeTimeout})
}

// endBoots ends the attempts that wait for a node which does not come up.
func (d powerCommands) endBoots(name, reason string) error {
	for _, uid := range slices.Clone(d.t.Node(name).Jobs) {
		if job := d.t.Job(uid); job.Configuring() && job.Ending == nil {
			if err := d.RequestEnd(
				job,
				event.EndBoot,
				d.MayRequeue(job),
				spec.NotHeld,
				fmt.Sprintf("node %s did not come up: %s", name, reason),
			); err != nil {
				return err
			}
		}
	}
	return nil
}
