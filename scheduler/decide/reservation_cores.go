package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// A reservation may keep some cores of nodes instead of whole ones. Which cores
// they are is settled job by job: the reservation has so many of each node, the
// jobs in it have no more than these together, and the others no more than the
// rest. Memory of the nodes is everybody's, and so are GPUs, unless it keeps some
// of them too: then it is with these as with the cores. Flags loosen that: see
// decision 75.

// nodeCount reads NodeCnt.
func (a *resvAsk) nodeCount(value string) error {
	n, err := strconv.ParseUint(value, 10, 20)
	if err != nil || n == 0 {
		return spec.Refuse(spec.CodeNodeCountInvalid, value)
	}
	a.r.Want, a.choose = uint32(n), true
	return nil
}

// coreCount reads CoreCnt: how many cores, or with Nodes how many of each.
func (a *resvAsk) coreCount(value string) error {
	a.cores = nil
	for item := range strings.SplitSeq(value, ",") {
		n, err := strconv.ParseUint(item, 10, 20)
		if err != nil || n == 0 {
			return spec.Refuse(spec.CodeCPUCountInvalid, "CoreCnt="+value)
		}
		a.cores = append(a.cores, uint32(n))
	}
	return nil
}

// resvTRES reads TRES=cpu=16,node=2,license/matlab=1.
func (d reservationCommands) resvTRES(request *resvAsk, value string) error {
	for item := range strings.SplitSeq(strings.ToLower(value), ",") {
		name, number, _ := strings.Cut(item, "=")
		lic, isLicence := strings.CutPrefix(name, "license/")
		gpu, isGPU := strings.CutPrefix(name, "gres/gpu")
		switch {
		case isGPU && (gpu == "" || gpu[0] == ':'):
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil || n <= 0 || request.gpus > 0 ||
				!slices.Contains(d.t.Config.GresTypes, "gpu") {
				return spec.Refuse(spec.CodeInvalidGRES, "TRES="+item)
			}
			request.gpus, request.gpuType = n, strings.TrimPrefix(gpu, ":")
		case request.perNode && name != "cpu":
			return spec.Refuse(spec.CodeBadRequest, "TRESPerNode="+item+
				": cpu and gres/gpu are of a node")
		case name == "cpu":
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil || n <= 0 {
				return spec.Refuse(spec.CodeCPUCountInvalid, "TRES="+item)
			}
			request.cpus = n
		case name == "node":
			if err := request.nodeCount(number); err != nil {
				return err
			}
		case isLicence:
			list, err := d.resvLicences(lic + "=" + number)
			if err != nil {
				return err
			}
			request.r.Licenses = append(slices.Clone(request.r.Licenses), list...)
		default:
			return spec.Refuse(spec.CodeDisabled, "TRES="+item+
				" of a reservation is not implemented in this release: cpu, node, gres/gpu and license/name are")
		}
	}
	return nil
}

// settleResvCores works out of which nodes a reservation has how many cores.
func (d reservationCommands) settleResvCores(request *resvAsk) error {
	reservation := request.r
	asked := request.cores != nil || request.cpus > 0 || request.gpus > 0
	if !asked && (request.nodes != "" || request.choose) {
		return spec.Refuse(spec.CodeCPUCountInvalid, "this is a core reservation; set CoreCnt")
	}
	if asked {
		choose := d.chooseCores
		reservation.GPUs = nil
		if request.gpus > 0 {
			choose = d.chooseGPUs
		} else if request.perNode {
			return spec.Refuse(spec.CodeCPUCountInvalid, "TRESPerNode is for GPUs: cores of each node are Nodes= with CoreCnt=2,4")
		}
		if err := choose(request); err != nil {
			return err
		}
	}
	for i, name := range reservation.Nodes {
		node := d.t.Node(name)
		if node == nil {
			continue
		}
		if free, who := d.freeCores(reservation, node); free < int64(reservation.Cores[i]) {
			return spec.Refuse(
				spec.CodeNodesBusy,
				fmt.Sprintf(
					"%s has %d cores for it in that time, and %d are asked for%s",
					name,
					free,
					reservation.Cores[i],
					who,
				),
			)
		}
		if free, who := d.freeGPUs(reservation, node); free < reservation.GPUsOf(name) {
			return spec.Refuse(
				spec.CodeNodesBusy,
				fmt.Sprintf(
					"%s has %d GPUs for it in that time, and %d are asked for%s",
					name,
					free,
					reservation.GPUsOf(name),
					who,
				),
			)
		}
	}
	reservation.TRES = d.coresTRES(reservation)
	return nil
}

// coresTRES is what a reservation of cores has of its nodes.
func (d reservationCommands) coresTRES(reservation *spec.Reservation) spec.TRES {
	sum := spec.TRES{Node: int64(len(reservation.Nodes))}
	for _, name := range reservation.Nodes {
		node := d.t.Node(name)
		if node == nil {
			continue
		}
		kept := timeline.KeptOn(reservation, node)
		sum.CPU += kept.CPU
		if kept.GPU > 0 {
			sum = sum.With("gres/gpu", sum.Get("gres/gpu")+kept.GPU)
		}
	}
	return sum
}

// replaceCores gives a reservation of cores others for those of nodes that went
// out of service, with REPLACE also for those that its jobs took. What cannot be
// replaced stays.
func (d reservationCommands) replaceCores(reservation *spec.Reservation) error {
	before := slices.Clone(reservation.Nodes)
	reservation.Nodes = slices.Clone(before)
	for i, name := range before {
		old := d.t.Node(name)
		if old != nil && old.Usable() &&
			!(reservation.Flags.Has(spec.ResvReplace) && d.runsIn(reservation, old)) {
			continue
		}
		typ := ""
		if old != nil && len(old.GPUs) > 0 {
			typ = old.GPUs[0].Type
		}
		for _, node := range d.resvNodes(reservation) {
			if slices.Contains(reservation.Nodes, node.Spec.Name) ||
				(reservation.GPUs != nil && !oneKind(node, typ)) {
				continue
			}
			cores, _ := d.freeCores(reservation, node)
			gpus, _ := d.freeGPUs(reservation, node)
			if cores >= int64(reservation.Cores[i]) &&
				(reservation.GPUs == nil || gpus >= int64(reservation.GPUs[i])) {
				reservation.Nodes[i] = node.Spec.Name
				break
			}
		}
	}
	if slices.Equal(reservation.Nodes, before) {
		return nil
	}
	reservation.Cores, reservation.GPUs = slices.Clone(
		reservation.Cores,
	), slices.Clone(
		reservation.GPUs,
	)
	d.sortCores(reservation)
	reservation.TRES = d.coresTRES(reservation)
	return d.Emit(&event.ReservationPut{Reservation: *reservation})
}

// runsIn tells whether a job of a reservation runs on a node.
func (d reservationCommands) runsIn(reservation *spec.Reservation, node *state.Node) bool {
	return slices.ContainsFunc(
		node.Jobs,
		func(uid spec.JobUID) bool { return d.t.Job(uid).Alloc.Reservation == reservation.Name },
	)
}

// chooseCores sets the nodes of a reservation of cores, and how many it has of
// each: of named nodes what was said, of a number of nodes the same of each, and
// else of one node after the other what it can give.
func (d reservationCommands) chooseCores(request *resvAsk) error {
	reservation := request.r
	reservation.Flags &^= spec.ResvSpecNodes | wholeResv
	if request.nodes != "" {
		return d.namedCores(request)
	}
	var total int64 // in CPUs where a.cpus is given
	for _, n := range request.cores {
		total += int64(n)
	}
	want := int64(0)
	if request.choose {
		want = int64(reservation.Want)
	}
	total = max(total, request.cpus)
	if want > total {
		return spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf("%d nodes for %s", want, format.Plural(total, "core", "cores")),
		)
	}
	reservation.Nodes, reservation.Cores = nil, nil
	type share struct {
		node  *state.Node
		cores int64
	}
	var list []share
	left := total
	for _, node := range d.resvNodes(reservation) {
		threads := int64(1)
		if request.cpus > 0 {
			threads = max(node.Spec.ThreadsPerCore, 1)
		}
		free, _ := d.freeCores(reservation, node)
		take := min(free, (left+threads-1)/threads)
		if want > 0 {
			each := (left + want - int64(len(list)) - 1) / (want - int64(len(list)))
			take = (each + threads - 1) / threads
			if free < take {
				continue
			}
		}
		if take > 0 {
			list, left = append(list, share{node, take}), left-take*threads
		}
		if left <= 0 {
			break
		}
	}
	if left > 0 {
		return spec.Refuse(
			spec.CodeNodesBusy,
			fmt.Sprintf("%d of %d cores are not free in that time", left, total),
		)
	}
	slices.SortFunc(list, func(a, b share) int { return int(a.node.ID) - int(b.node.ID) })
	for _, s := range list {
		reservation.Nodes, reservation.Cores = append(
			reservation.Nodes,
			s.node.Spec.Name,
		), append(
			reservation.Cores,
			uint32(s.cores),
		)
	}
	return nil
}

// namedCores takes so many cores of each of the nodes that were named.
func (d reservationCommands) namedCores(request *resvAsk) error {
	if err := d.listResvNodes(request); err != nil {
		return err
	}
	if request.cpus > 0 || len(request.cores) != len(request.r.Nodes) {
		return spec.Refuse(
			spec.CodeCPUCountInvalid,
			fmt.Sprintf(
				"with Nodes, CoreCnt is a number for each of the %d nodes: CoreCnt=2,4",
				len(request.r.Nodes),
			),
		)
	}
	request.r.Cores = request.cores
	return nil
}

// freeCores is how many cores of a node a reservation could have: those that no
// other has at the same time, and no job that may run into it. who says who has
// the others.
func (d reservationCommands) freeCores(
	reservation *spec.Reservation,
	node *state.Node,
) (free int64, who string) {
	threads := max(node.Spec.ThreadsPerCore, 1)
	held, who, whole := d.heldBeside(reservation, node)
	if whole {
		return 0, who
	}
	for i := range d.t.Parts.List {
		if partition := &d.t.Parts.List[i]; partition.Nodes.Has(int(node.ID)) &&
			partition.Spec.Sharers(spec.Oversubscribe) > 1 {
			return 0, "; partition " + partition.Spec.Name +
				" shares its CPUs (OverSubscribe), so that only whole nodes can be reserved"
		}
	}
	return max(node.CPUs-held.CPU, 0) / threads, who
}

// heldBeside is what others hold of a node while a reservation is there: other
// reservations, the last of which who names, and jobs that may run into it.
// whole tells that one of them has the whole node.
func (d reservationCommands) heldBeside(
	reservation *spec.Reservation,
	node *state.Node,
) (held place.Free, who string, whole bool) {
	mine := timeline.Windows(reservation, d.t.Now)
	for i := range d.t.Reservations {
		o := &d.t.Reservations[i]
		if o.Name == reservation.Name || (reservation.Flags|o.Flags)&resvShare != 0 ||
			!slices.Contains(o.Nodes, node.Spec.Name) ||
			!windowsMeet(mine, timeline.Windows(o, d.t.Now)) {
			continue
		}
		who = "; reservation " + o.Name + " is there"
		if o.Cores == nil {
			return held, who, true
		}
		kept := timeline.KeptOn(o, node)
		held.CPU += kept.CPU
		held.GPU += kept.GPU
	}
	if reservation.Flags.Has(spec.ResvIgnoreJobs) {
		return held, who, false
	}
	for _, uid := range node.Jobs {
		job := d.t.Job(uid)
		if i := job.Alloc.Index(node.ID); i >= 0 && !job.Done.Has(i) &&
			job.Alloc.Reservation != reservation.Name &&
			max(job.Deadline(), d.t.Now+1) > reservation.Start {
			held.CPU += int64(job.Alloc.Nodes[i].CPUs.Count())
			held.GPU += int64(len(job.Alloc.Nodes[i].GPUs))
		}
	}
	return held, who, false
}
