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
func (d foreignCommands) take(command TakeForeignHold) error {
	node := d.t.Node(command.Node)
	if node == nil || node.Removed {
		return spec.Refuse(spec.CodeInvalidNodeName, command.Node)
	}
	if err := wellFormed(&command); err != nil {
		return err
	}
	if at, there := node.HoldAt(command.Hold.ID); there {
		return sameHold(&node.Holds[at], &command)
	}
	ev, err := d.place(node, &command)
	if err != nil && command.Running {
		d.res.Message = fmt.Sprintf(
			"%s runs without room in the ledger: %s",
			command.Hold.Name(),
			refusalDetail(err),
		)
		return d.DrainNode(command.Node, d.res.Message)
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
func wellFormed(command *TakeForeignHold) error {
	hold := &command.Hold
	switch {
	case hold.ID == "" || len(hold.ID) > maxHoldText || len(hold.Owner) > maxHoldText || len(hold.Space) > maxHoldText:
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("a hold needs an id, and its names have at most %d bytes", maxHoldText),
		)
	case !isHoldAmount(hold.MilliCPU) || !isHoldAmount(hold.Mem) || command.GPUs < 0:
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"hold %s asks for %d thousandths of CPUs, %d MiB and %d GPUs; each must be from 0 to 2^40",
				hold.Name(),
				hold.MilliCPU,
				hold.Mem,
				command.GPUs,
			),
		)
	case len(hold.GPUs) > 0 && command.GPUs != 0 && command.GPUs != int64(len(hold.GPUs)):
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"hold %s names %d GPUs and asks for %d",
				hold.Name(),
				len(hold.GPUs),
				command.GPUs,
			),
		)
	}
	return nil
}

// maxHoldAmount keeps sums of holds within 64 bits.
const maxHoldAmount = 1 << 40

// sameHold refuses another hold under the id of one that is there.
func sameHold(have *spec.ForeignHold, command *TakeForeignHold) error {
	asked := command.Hold
	if len(asked.GPUs) == 0 && command.GPUs == int64(len(have.GPUs)) {
		asked.GPUs = have.GPUs // it was given these
	}
	if have.SameAmounts(&asked) {
		return nil
	}
	return spec.Refuse(
		spec.CodeBadRequest,
		fmt.Sprintf(
			"hold %s is on %s with other amounts: release it first", have.Name(), command.Node,
		),
	)
}

// place finds room for a hold on a node.
func (d foreignCommands) place(
	node *state.Node,
	command *TakeForeignHold,
) (*event.ForeignHoldTaken, error) {
	hold := command.Hold
	if !command.Running {
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
	hold.GPUs, err = placeDevices(node, command)
	if err != nil {
		return nil, err
	}
	return &event.ForeignHoldTaken{Node: command.Node, Hold: hold, CPUs: cpus}, nil
}

func busy(node *state.Node, reason string) error {
	return spec.Refuse(spec.CodeNodesBusy, node.Spec.Name+": "+reason)
}

// OpenToHolds refuses a node that accepts no holds now, because it is out of service or
// reserved for others.
func OpenToHolds(cluster *state.State, now spec.Instant, node *state.Node) error {
	if !node.Usable() || node.Asleep() {
		reason := "is not in service"
		if node.Reason != "" {
			reason += " (" + node.Reason + ")"
		}
		return busy(node, reason)
	}
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		if !slices.Contains(reservation.Nodes, node.Spec.Name) ||
			reservation.Flags.Has(spec.ResvTimeFloat) {
			continue
		}
		if w := timeline.Windows(reservation, now); len(w) > 0 && w[0].From <= now {
			return busy(node, "reservation "+reservation.Name+" has it")
		}
	}
	for _, uid := range node.Jobs {
		job := cluster.Job(uid)
		if job.Alloc.Apart != 0 || job.Alloc.Whole {
			return busy(node, fmt.Sprintf("job %d has it for itself", job.ID))
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
func placeDevices(node *state.Node, command *TakeForeignHold) ([]spec.GPURef, error) {
	hold := &command.Hold
	var gpus []spec.GPURef
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		ref := spec.GPURef{UUID: gpu.UUID, Index: gpu.Index, Type: gpu.Type}
		named := slices.ContainsFunc(
			hold.GPUs,
			func(o spec.GPURef) bool { return o.UUID == gpu.UUID },
		)
		ofType := command.GPUType == "" || command.GPUType == gpu.Type
		switch {
		case named && !node.FreeWhole(i):
			return nil, busy(node, "GPU "+gpu.UUID+" is in use")
		case named:
			gpus = append(gpus, ref)
		case len(hold.GPUs) == 0 && int64(len(gpus)) < command.GPUs && node.FreeWhole(i) && ofType:
			gpus = append(gpus, ref)
		}
	}
	want := max(command.GPUs, int64(len(hold.GPUs)))
	if int64(len(gpus)) < want {
		return nil, busy(
			node,
			fmt.Sprintf("%d suitable GPUs are free, %s needs %d", len(gpus), hold.Name(), want),
		)
	}
	return gpus, nil
}

// releaseHold gives a hold back, with the CPUs that the others do not need.
func (d foreignCommands) releaseHold(command ReleaseForeignHold) error {
	node := d.t.Node(command.Node)
	if node == nil {
		return nil // it went with its last hold
	}
	at, there := node.HoldAt(command.ID)
	if !there {
		return nil
	}
	spare := int64(
		node.HeldCPU.Count(),
	) - spec.WholeCPUs(node.HeldMilli()-node.Holds[at].MilliCPU, d.coreStep(node))
	var back spec.Bitset
	for _, cpu := range node.HeldCPU.Members() {
		if spare <= 0 {
			break
		}
		back = back.Set(cpu)
		spare--
	}
	return d.Emit(
		&event.ForeignHoldReleased{
			Node: command.Node, ID: command.ID, CPUs: back, Why: command.Why,
		},
	)
}

// isHoldAmount tells whether sums of an amount cannot overflow.
func isHoldAmount(n int64) bool { return n >= 0 && n <= maxHoldAmount }
