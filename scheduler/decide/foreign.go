package decide

import (
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// TakeForeignHold asks for a part of a node on behalf of another scheduler. To ask
// again for what is held already changes nothing.
type TakeForeignHold struct {
	Node string
	Hold spec.ForeignHold // GPUs that have a UUID are those devices
	// GPUs is how many devices to choose, of GPUType where that is not empty, if the
	// hold names none.
	GPUs    int64
	GPUType string
	// Running tells that the other scheduler's program is there already. What does
	// not fit then is no reason to refuse a fact: the node is drained, so that no
	// job meets it, and the result's message says why.
	Running bool
}

// ReleaseForeignHold gives a hold back. One that is not there has been given back.
type ReleaseForeignHold struct {
	Node, ID string
	Why      string
}

func (TakeForeignHold) command() string    { return "take hold" }
func (ReleaseForeignHold) command() string { return "release hold" }

// foreignCommands decides what other schedulers may have of nodes.
type foreignCommands struct{ *decision }

func (d *decision) foreign() foreignCommands { return foreignCommands{d} }

// maxHoldText bounds the names that another scheduler may bring.
const maxHoldText = 512

// take gives another scheduler a part of a node if it is free.
func (d foreignCommands) take(c TakeForeignHold) error {
	node := d.t.Node(c.Node)
	if node == nil || node.Removed {
		return spec.Refuse(spec.CodeInvalidNodeName, c.Node)
	}
	if err := wellFormed(&c); err != nil {
		return err
	}
	if at, there := node.HoldAt(c.Hold.ID); there {
		return sameHold(&node.Holds[at], &c)
	}
	ev, err := d.place(node, &c)
	if err != nil && c.Running {
		d.res.Message = fmt.Sprintf(
			"%s runs without room in the ledger: %s",
			c.Hold.Name(),
			refusalDetail(err),
		)
		return d.DrainNode(c.Node, d.res.Message)
	}
	if err != nil {
		return err
	}
	return d.Emit(ev)
}

// refusalDetail is what a refusal says of this case.
func refusalDetail(err error) string {
	var refused *spec.Error
	if errors.As(err, &refused) && refused.Detail != "" {
		return refused.Detail
	}
	return err.Error()
}

// wellFormed refuses a hold that no node could have.
func wellFormed(c *TakeForeignHold) error {
	hold := &c.Hold
	switch {
	case hold.ID == "" || len(hold.ID) > maxHoldText || len(hold.Owner) > maxHoldText || len(hold.Space) > maxHoldText:
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("a hold needs an id, and its names have at most %d bytes", maxHoldText),
		)
	case !isHoldAmount(hold.MilliCPU) || !isHoldAmount(hold.Mem) || c.GPUs < 0:
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"hold %s asks for %d thousandths of CPUs, %d MiB and %d GPUs; each must be from 0 to 2^40",
				hold.Name(),
				hold.MilliCPU,
				hold.Mem,
				c.GPUs,
			),
		)
	case len(hold.GPUs) > 0 && c.GPUs != 0 && c.GPUs != int64(len(hold.GPUs)):
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"hold %s names %d GPUs and asks for %d",
				hold.Name(),
				len(hold.GPUs),
				c.GPUs,
			),
		)
	}
	return nil
}

// maxHoldAmount keeps sums of holds within 64 bits.
const maxHoldAmount = 1 << 40

// sameHold refuses another hold under the id of one that is there.
func sameHold(have *spec.ForeignHold, c *TakeForeignHold) error {
	asked := c.Hold
	if len(asked.GPUs) == 0 && c.GPUs == int64(len(have.GPUs)) {
		asked.GPUs = have.GPUs // it was given these
	}
	if have.SameAmounts(&asked) {
		return nil
	}
	return spec.Refuse(
		spec.CodeBadRequest,
		fmt.Sprintf("hold %s is on %s with other amounts: release it first", have.Name(), c.Node),
	)
}

// place finds room for a hold on a node.
func (d foreignCommands) place(
	node *state.Node,
	c *TakeForeignHold,
) (*event.ForeignHoldTaken, error) {
	hold := c.Hold
	if !c.Running {
		if err := OpenToHolds(d.t.State, d.t.Now, node); err != nil {
			return nil, err
		}
	}
	if free := node.FreeMem(); d.t.Config.Sched.Memory && hold.Mem > max(free, 0) {
		return nil, busy(
			node,
			fmt.Sprintf(
				"%d MiB of memory are free, %s needs %d",
				max(free, 0),
				hold.Name(),
				hold.Mem,
			),
		)
	}
	cpus, err := d.placeCPUs(node, &hold)
	if err != nil {
		return nil, err
	}
	hold.GPUs, err = placeDevices(node, c)
	if err != nil {
		return nil, err
	}
	return &event.ForeignHoldTaken{Node: c.Node, Hold: hold, CPUs: cpus}, nil
}

func busy(n *state.Node, why string) error {
	return spec.Refuse(spec.CodeNodesBusy, n.Spec.Name+": "+why)
}

// OpenToHolds refuses a node that takes no holds now: it takes nothing new, or it
// is kept for others.
func OpenToHolds(st *state.State, now spec.Instant, node *state.Node) error {
	if !node.Usable() || node.Asleep() {
		why := "is not in service"
		if node.Reason != "" {
			why += " (" + node.Reason + ")"
		}
		return busy(node, why)
	}
	for i := range st.Reservations {
		reservation := &st.Reservations[i]
		if !slices.Contains(reservation.Nodes, node.Spec.Name) ||
			reservation.Flags.Has(spec.ResvTimeFloat) {
			continue
		}
		if w := timeline.Windows(reservation, now); len(w) > 0 && w[0].From <= now {
			return busy(node, "reservation "+reservation.Name+" has it")
		}
	}
	for _, uid := range node.Jobs {
		j := st.Job(uid)
		if j.Alloc.Apart != 0 || j.Alloc.Whole {
			return busy(node, fmt.Sprintf("job %d has it for itself", j.ID))
		}
	}
	return nil
}

// coreStep is how many CPUs are given at once.
func (d foreignCommands) coreStep(node *state.Node) int64 {
	if d.t.Config.Sched.Cores {
		return max(node.Spec.ThreadsPerCore, 1)
	}
	return 1
}

// placeCPUs chooses the CPUs that the holds of a node need beyond those they have,
// from the end, because jobs are given CPUs from the front.
func (d foreignCommands) placeCPUs(node *state.Node, hold *spec.ForeignHold) (spec.Bitset, error) {
	step := d.coreStep(node)
	left := spec.WholeCPUs(node.HeldMilli()+hold.MilliCPU, step) - int64(node.HeldCPU.Count())
	if left <= 0 {
		return nil, nil
	}
	open := d.t.OpenCPUs(node)
	free := int64(open.Count())
	var out spec.Bitset
	for core := (node.Spec.TopCPU() - 1) / step * step; core >= 0 && left > 0; core -= step {
		whole := true
		for k := core; k < core+step; k++ {
			whole = whole && open.Has(int(k))
		}
		if !whole {
			continue
		}
		for k := core; k < core+step; k++ {
			out = out.Set(int(k))
		}
		left -= step
	}
	if left > 0 {
		return nil, busy(
			node,
			fmt.Sprintf(
				"%d CPUs are free, and %s needs %d more",
				free,
				hold.Name(),
				int64(out.Count())+left,
			),
		)
	}
	return out, nil
}

// placeDevices finds the devices that a hold names, or chooses free ones.
func placeDevices(n *state.Node, c *TakeForeignHold) ([]spec.GPURef, error) {
	hold := &c.Hold
	var out []spec.GPURef
	for i := range n.GPUs {
		gpu := &n.GPUs[i]
		ref := spec.GPURef{UUID: gpu.UUID, Index: gpu.Index, Type: gpu.Type}
		named := slices.ContainsFunc(
			hold.GPUs,
			func(o spec.GPURef) bool { return o.UUID == gpu.UUID },
		)
		ofType := c.GPUType == "" || c.GPUType == gpu.Type
		switch {
		case named && !n.FreeWhole(i):
			return nil, busy(n, "GPU "+gpu.UUID+" is in use")
		case named:
			out = append(out, ref)
		case len(hold.GPUs) == 0 && int64(len(out)) < c.GPUs && n.FreeWhole(i) && ofType:
			out = append(out, ref)
		}
	}
	want := max(c.GPUs, int64(len(hold.GPUs)))
	if int64(len(out)) < want {
		return nil, busy(
			n,
			fmt.Sprintf("%d suitable GPUs are free, %s needs %d", len(out), hold.Name(), want),
		)
	}
	return out, nil
}

// releaseHold gives a hold back, with the CPUs that the others do not need.
func (d foreignCommands) releaseHold(c ReleaseForeignHold) error {
	n := d.t.Node(c.Node)
	if n == nil {
		return nil // it went with its last hold
	}
	at, there := n.HoldAt(c.ID)
	if !there {
		return nil
	}
	spare := int64(n.HeldCPU.Count()) - spec.WholeCPUs(n.HeldMilli()-n.Holds[at].MilliCPU, d.coreStep(n))
	var back spec.Bitset
	for _, cpu := range n.HeldCPU.Members() {
		if spare <= 0 {
			break
		}
		back = back.Set(cpu)
		spare--
	}
	return d.Emit(&event.ForeignHoldReleased{Node: c.Node, ID: c.ID, CPUs: back, Why: c.Why})
}

// isHoldAmount tells whether sums of an amount cannot overflow.
func isHoldAmount(n int64) bool { return n >= 0 && n <= maxHoldAmount }
