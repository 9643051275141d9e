package acct

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// sstatField is a column of sstat. A negative width pads on the right.
type sstatField struct {
	name  string
	width int
	text  func(v *acctView, s *liveStep) string
}

// measured is one kind of use: how much on a node, and how it is written.
type measured struct {
	name string // in a vector of TRES
	get  func(m *apiv1.Measurement) (n int64, known bool)
	text func(v *acctView, n int64) string
	mean bool // the sum over nodes says nothing: their mean does
}

// spread is a kind over the nodes of a step.
type spread struct {
	most, least, sum   int64
	mostOn, leastOn, n int // indices of nodes; n nodes were measured
}

func (k *measured) over(step *liveStep) spread {
	out := spread{}
	for i, measurement := range step.on {
		x, known := k.get(measurement)
		if !known {
			continue
		}
		if out.n == 0 || x > out.most {
			out.most, out.mostOn = x, i
		}
		if out.n == 0 || x < out.least {
			out.least, out.leastOn = x, i
		}
		out.sum += x
		out.n++
	}
	return out
}

// total is the step's amount and ave that of a task.
func (k *measured) total(p spread) int64 {
	if k.mean {
		return p.sum / int64(p.n)
	}
	return p.sum
}

func (k *measured) ave(step *liveStep, p spread) int64 {
	if k.mean {
		return k.total(p)
	}
	return p.sum / step.tasks
}

// taskName names the task on a node, known where each node has one.
func (s *liveStep) taskName(i int) string {
	if s.tasks != int64(len(s.on)) {
		return ""
	}
	return tool.Itoa(i)
}

// The ways in which a column shows a kind.
func (k *measured) column(
	show func(v *acctView, s *liveStep, p spread) string,
) func(*acctView, *liveStep) string {
	return func(view *acctView, step *liveStep) string {
		if p := k.over(step); p.n > 0 {
			return show(view, step, p)
		}
		return ""
	}
}

func (k *measured) max() func(*acctView, *liveStep) string {
	return k.column(func(v *acctView, _ *liveStep, p spread) string { return k.text(v, p.most) })
}

func (k *measured) min() func(*acctView, *liveStep) string {
	return k.column(func(v *acctView, _ *liveStep, p spread) string { return k.text(v, p.least) })
}

func (k *measured) average() func(*acctView, *liveStep) string {
	return k.column(
		func(v *acctView, s *liveStep, p spread) string { return k.text(v, k.ave(s, p)) },
	)
}

func (k *measured) maxNode() func(*acctView, *liveStep) string {
	return k.column(
		func(_ *acctView, s *liveStep, p spread) string { return s.on[p.mostOn].GetNode() },
	)
}

func (k *measured) maxTask() func(*acctView, *liveStep) string {
	return k.column(func(_ *acctView, s *liveStep, p spread) string { return s.taskName(p.mostOn) })
}

func (k *measured) minNode() func(*acctView, *liveStep) string {
	return k.column(
		func(_ *acctView, s *liveStep, p spread) string { return s.on[p.leastOn].GetNode() },
	)
}

func (k *measured) minTask() func(*acctView, *liveStep) string {
	return k.column(
		func(_ *acctView, s *liveStep, p spread) string { return s.taskName(p.leastOn) },
	)
}

// formatVector writes several kinds as name=text.
func formatVector(
	kinds []*measured,
	text func(k *measured, v *acctView, s *liveStep, p spread) string,
) func(*acctView, *liveStep) string {
	return func(view *acctView, step *liveStep) string {
		var parts []string
		for _, k := range kinds {
			p := k.over(step)
			if p.n == 0 {
				continue
			}
			if t := text(k, view, step, p); t != "" {
				parts = append(parts, k.name+"="+t)
			}
		}
		return strings.Join(parts, ",")
	}
}

func (k *measured) sum() func(*acctView, *liveStep) string {
	return k.column(func(v *acctView, _ *liveStep, p spread) string { return k.text(v, k.total(p)) })
}

// sstatEnergy is the energy of the nodes' parts that the step had and of its GPUs, in
// joules.
func sstatEnergy() *measured {
	return &measured{
		name: "energy",
		get: func(message *apiv1.Measurement) (int64, bool) {
			sum, known := message.GetUsage().GetEnergyMj(), message.GetUsage().GetHasEnergy()
			for _, gpu := range message.GetUsage().GetGpus() {
				if gpu.GetHas() && gpu.GetEnergyMj() > 0 {
					sum, known = sum+gpu.GetEnergyMj(), true
				}
			}
			return sum / 1000, known
		},
		text: func(_ *acctView, n int64) string { return tool.Itoa(n) },
	}
}

// sstatCounter is a counter that only some nodes have.
func sstatCounter(name string, counter spec.Counter) *measured {
	return &measured{
		name: name,
		get:  func(m *apiv1.Measurement) (int64, bool) { return counted(m.GetUsage(), counter) },
		text: func(v *acctView, n int64) string { return v.formatBytes(n) },
	}
}

// stepKinds are the kinds of what every node measures.
type stepKinds struct {
	cpu, disk, written, gpuMem, gpuUtil, mem, pages, vmem, clock *measured
}

func sstatKinds() stepKinds {
	var kinds stepKinds
	bytes := func(v *acctView, n int64) string { return v.formatBytes(n) }
	plain := func(_ *acctView, n int64) string { return tool.Itoa(n) }
	always := func(get func(u *apiv1.Usage) int64) func(*apiv1.Measurement) (int64, bool) {
		return func(m *apiv1.Measurement) (int64, bool) { return get(m.GetUsage()), true }
	}
	kinds.cpu = &measured{
		name: "cpu",
		get: always(
			func(u *apiv1.Usage) int64 { return (u.GetUserCpu() + u.GetSystemCpu()) / tool.Second },
		),
		text: func(_ *acctView, n int64) string { return format.Duration(n) },
	}
	kinds.disk = &measured{name: "fs/disk", get: always((*apiv1.Usage).GetReadBytes), text: bytes}
	kinds.written = &measured{name: "fs/disk", get: always((*apiv1.Usage).GetWriteBytes), text: bytes}
	gpus := func(of func(g *apiv1.GpuUsage) (n, whole int64)) func(*apiv1.Measurement) (int64, bool) {
		return func(measurement *apiv1.Measurement) (sum int64, known bool) {
			var all int64
			for _, gpu := range measurement.GetUsage().GetGpus() {
				if gpu.GetHas() {
					n, whole := of(gpu)
					sum, all, known = sum+n, all+whole, true
				}
			}
			if all > 0 {
				sum = (sum + all/2) / all
			}
			return sum, known
		}
	}
	kinds.gpuMem = &measured{
		name: "gres/gpumem",
		get:  gpus(func(g *apiv1.GpuUsage) (int64, int64) { return g.GetPeakMem(), 0 }),
		text: func(_ *acctView, n int64) string { return formatMegabytes(n) },
	}
	kinds.gpuUtil = &measured{
		name: "gres/gpuutil",
		mean: true,
		text: plain,
		get: gpus(func(usage *apiv1.GpuUsage) (int64, int64) {
			return usage.GetUtilNs() * 100, usage.GetNoProcess() + usage.GetIdle() + usage.GetBusy()
		}),
	}
	kinds.mem = &measured{
		name: "mem",
		get:  func(m *apiv1.Measurement) (int64, bool) { return m.GetUsage().GetPeakRss(), m.GetUsage().GetHasRss() },
		text: bytes,
	}
	kinds.pages = &measured{name: "pages", get: always((*apiv1.Usage).GetMajFaults), text: plain}
	kinds.vmem = &measured{
		name: "vmem",
		get:  func(m *apiv1.Measurement) (int64, bool) { return m.GetPeakVm(), m.GetHasVm() },
		text: bytes,
	}
	kinds.clock = &measured{
		name: "freq",
		mean: true,
		text: formatFrequency,
		get: func(message *apiv1.Measurement) (int64, bool) {
			return message.GetUsage().GetCpuKhz(), message.GetUsage().GetCpuKhz() > 0
		},
	}
	return kinds
}

// sstatFields are the columns in the order of --helpformat.
//
//muster:table one row for each column
func sstatFields() []sstatField {
	kinds := sstatKinds()
	power := sstatEnergy()
	in, out := sstatVectors()
	empty := func(*acctView, *liveStep) string { return "" }
	most := func(k *measured, v *acctView, _ *liveStep, p spread) string { return k.text(v, p.most) }
	least := func(k *measured, v *acctView, _ *liveStep, p spread) string { return k.text(v, p.least) }
	mean := func(k *measured, v *acctView, s *liveStep, p spread) string { return k.text(v, k.ave(s, p)) }
	total := func(k *measured, v *acctView, _ *liveStep, p spread) string { return k.text(v, k.total(p)) }
	mostOn := func(_ *measured, _ *acctView, s *liveStep, p spread) string { return s.on[p.mostOn].GetNode() }
	leastOn := func(_ *measured, _ *acctView, s *liveStep, p spread) string { return s.on[p.leastOn].GetNode() }
	mostTask := func(_ *measured, _ *acctView, s *liveStep, p spread) string { return s.taskName(p.mostOn) }
	leastTask := func(_ *measured, _ *acctView, s *liveStep, p spread) string { return s.taskName(p.leastOn) }
	return []sstatField{
		{"AllocTRES", 10, func(v *acctView, s *liveStep) string { return v.formatTRES(s.alloc) }}, {"AveCPU", 10, kinds.cpu.average()}, {"AveCPUFreq", 10, kinds.clock.average()},
		{"AveDiskRead", 12, kinds.disk.average()}, {"AveDiskWrite", 12, kinds.written.average()}, {"AvePages", 10, kinds.pages.average()}, {"AveRSS", 10, kinds.mem.average()}, {"AveVMSize", 10, kinds.vmem.average()},
		{"ConsumedEnergy", 14, power.sum()}, {"ConsumedEnergyRaw", 17, power.sum()}, {"JobID", -12, func(_ *acctView, s *liveStep) string { return s.id }},
		{"MaxDiskRead", 12, kinds.disk.max()}, {"MaxDiskReadNode", 15, kinds.disk.maxNode()}, {"MaxDiskReadTask", 15, kinds.disk.maxTask()},
		{"MaxDiskWrite", 12, kinds.written.max()}, {"MaxDiskWriteNode", 16, kinds.written.maxNode()}, {"MaxDiskWriteTask", 16, kinds.written.maxTask()},
		{"MaxPages", 8, kinds.pages.max()}, {"MaxPagesNode", 12, kinds.pages.maxNode()}, {"MaxPagesTask", 14, kinds.pages.maxTask()},
		{"MaxRSS", 10, kinds.mem.max()}, {"MaxRSSNode", 10, kinds.mem.maxNode()}, {"MaxRSSTask", 10, kinds.mem.maxTask()},
		{"MaxVMSize", 10, kinds.vmem.max()}, {"MaxVMSizeNode", 14, kinds.vmem.maxNode()}, {"MaxVMSizeTask", 14, kinds.vmem.maxTask()},
		{"MinCPU", 10, kinds.cpu.min()}, {"MinCPUNode", 10, kinds.cpu.minNode()}, {"MinCPUTask", 10, kinds.cpu.minTask()},
		{"Nodelist", 20, func(_ *acctView, s *liveStep) string { return s.nodes }}, {"NTasks", 8, func(_ *acctView, s *liveStep) string { return tool.Itoa(s.tasks) }}, {"Pids", 20, livePids},
		{"ReqCPUFreq", 10, empty}, {"ReqCPUFreqMin", 13, empty}, {"ReqCPUFreqMax", 13, empty}, {"ReqCPUFreqGov", 13, empty},
		{"TRESUsageInAve", 14, formatVector(in, mean)}, {"TRESUsageInMax", 14, formatVector(in, most)}, {"TRESUsageInMaxNode", 18, formatVector(in, mostOn)}, {"TRESUsageInMaxTask", 18, formatVector(in, mostTask)},
		{"TRESUsageInMin", 14, formatVector(in, least)}, {"TRESUsageInMinNode", 18, formatVector(in, leastOn)}, {"TRESUsageInMinTask", 18, formatVector(in, leastTask)}, {"TRESUsageInTot", 14, formatVector(in, total)},
		{"TRESUsageOutAve", 15, formatVector(out, mean)}, {"TRESUsageOutMax", 15, formatVector(out, most)}, {"TRESUsageOutMaxNode", 19, formatVector(out, mostOn)}, {"TRESUsageOutMaxTask", 19, formatVector(out, mostTask)},
		{"TRESUsageOutMin", 15, formatVector(out, least)}, {"TRESUsageOutMinNode", 19, formatVector(out, leastOn)}, {"TRESUsageOutMinTask", 19, formatVector(out, leastTask)}, {"TRESUsageOutTot", 15, formatVector(out, total)},
	}
}

// sstatVectors are the kinds in the vectors of what a step reads and uses, and what it writes.
func sstatVectors() (in, out []*measured) {
	kinds := sstatKinds()
	in = []*measured{
		kinds.cpu, sstatEnergy(), kinds.disk, sstatCounter("fs/lustre", spec.CounterLustreRead),
		kinds.gpuMem, kinds.gpuUtil, sstatCounter("ic/ofed", spec.CounterFabricIn),
		kinds.mem, kinds.pages, kinds.vmem,
	}
	out = []*measured{
		kinds.written,
		sstatCounter("fs/lustre", spec.CounterLustreWrite),
		sstatCounter("ic/ofed", spec.CounterFabricOut),
	}
	return in, out
}

// liveStepTree is a running step in the words of the steps of accounting: requested is what it
// reads and uses, consumed what it writes.
func liveStepTree(step *liveStep) tree.Object {
	clock := sstatKinds().clock
	frequency := clock.over(step)
	energy := sstatEnergy().over(step)
	var hosts []string
	for _, measurement := range step.on {
		hosts = append(hosts, measurement.GetNode())
	}
	khz := int64(0)
	if frequency.n > 0 {
		khz = clock.ave(step, frequency)
	}
	in, out := sstatVectors()
	return tree.Object{
		{
			Key: "nodes",
			Value: tree.Object{
				{Key: "count", Value: len(step.on)},
				{Key: "range", Value: hostlist.Fold(hosts)},
				{Key: "list", Value: tree.Strings(hosts)},
			},
		},
		{Key: "tasks", Value: tree.Object{{Key: "count", Value: step.tasks}}},
		{Key: "pid", Value: livePids(nil, step)},
		{Key: "state", Value: tree.List{spec.Running.String()}},
		{
			Key: "statistics",
			Value: tree.Object{
				{Key: "CPU", Value: tree.Object{{Key: "actual_frequency", Value: khz}}},
				{Key: "energy", Value: tree.Object{{Key: "consumed", Value: render.Number(energy.sum, energy.n > 0, false)}}},
			},
		},
		{Key: "step", Value: tree.Object{{Key: "id", Value: step.id}}},
		{
			Key: "tres",
			Value: tree.Object{
				{Key: "requested", Value: usageTree(step, in)},
				{Key: "consumed", Value: usageTree(step, out)},
				{Key: "allocated", Value: render.TRESTree(step.alloc)},
			},
		},
	}
}

// usageTree is what a step used of each kind that was measured.
func usageTree(step *liveStep, kinds []*measured) tree.Object {
	vector := func(count func(k *measured, p spread) int64) tree.List {
		var list []*apiv1.NamedCount
		for _, k := range kinds {
			if p := k.over(step); p.n > 0 {
				list = append(list, &apiv1.NamedCount{Name: k.name, N: count(k, p)})
			}
		}
		return render.TRESList(list)
	}
	return tree.Object{
		{Key: "max", Value: vector(func(_ *measured, p spread) int64 { return p.most })},
		{Key: "min", Value: vector(func(_ *measured, p spread) int64 { return p.least })},
		{Key: "average", Value: vector(func(k *measured, p spread) int64 { return k.ave(step, p) })},
		{Key: "total", Value: vector(func(k *measured, p spread) int64 { return k.total(p) })},
	}
}

// livePids lists the processes of a step, node after node.
func livePids(_ *acctView, step *liveStep) string {
	var parts []string
	for _, message := range step.on {
		for _, pid := range message.GetPids() {
			parts = append(parts, tool.Itoa(pid))
		}
	}
	return strings.Join(parts, ",")
}
