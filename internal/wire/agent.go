package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Inventory writes what an agent found.
func Inventory(inventory *spec.Inventory) *apiv1.Inventory {
	out := &apiv1.Inventory{
		BootId:         inventory.BootID,
		BootedAt:       int64(inventory.BootedAt),
		AgentStarted:   int64(inventory.AgentStarted),
		AgentVersion:   inventory.AgentVersion,
		Hostname:       inventory.Hostname,
		Addr:           inventory.Addr,
		Os:             inventory.OS,
		Arch:           inventory.Arch,
		Cpus:           inventory.CPUs,
		Sockets:        inventory.Sockets,
		CoresPerSocket: inventory.CoresPerSocket,
		ThreadsPerCore: inventory.ThreadsPerCore,
		Mem:            inventory.Mem,
		TmpDisk:        inventory.TmpDisk,
		Gres:           Counts(inventory.GRES),
		MetricsAddr:    inventory.MetricsAddr,
		Degraded:       inventory.Degraded,
		Socket:         inventory.Socket,
	}
	for k := range inventory.GPUs {
		out.Gpus = append(out.Gpus, GPU(&inventory.GPUs[k]))
	}
	return out
}

// ToInventory reads what an agent found.
func ToInventory(inventory *apiv1.Inventory) spec.Inventory {
	out := spec.Inventory{
		BootID:         inventory.GetBootId(),
		BootedAt:       spec.Instant(inventory.GetBootedAt()),
		AgentStarted:   spec.Instant(inventory.GetAgentStarted()),
		AgentVersion:   inventory.GetAgentVersion(),
		Hostname:       inventory.GetHostname(),
		Addr:           inventory.GetAddr(),
		OS:             inventory.GetOs(),
		Arch:           inventory.GetArch(),
		CPUs:           inventory.GetCpus(),
		Sockets:        inventory.GetSockets(),
		CoresPerSocket: inventory.GetCoresPerSocket(),
		ThreadsPerCore: inventory.GetThreadsPerCore(),
		Mem:            inventory.GetMem(),
		TmpDisk:        inventory.GetTmpDisk(),
		GRES:           ToCounts(inventory.GetGres()),
		MetricsAddr:    inventory.GetMetricsAddr(),
		Degraded:       inventory.GetDegraded(),
		Socket:         inventory.GetSocket(),
	}
	for _, gpu := range inventory.GetGpus() {
		out.GPUs = append(out.GPUs, ToGPU(gpu))
	}
	return out
}

// Usage writes what an attempt used.
func Usage(usage *spec.Usage) *apiv1.Usage {
	out := &apiv1.Usage{
		UserCpu:    int64(usage.UserCPU),
		SystemCpu:  int64(usage.SystemCPU),
		PeakRss:    usage.PeakRSS,
		HasRss:     usage.HasRSS,
		ReadBytes:  usage.ReadB,
		WriteBytes: usage.WriteB,
		EnergyMj:   usage.EnergyMJ,
		HasEnergy:  usage.HasEnergy,
		MajFaults:  usage.MajFaults,
		MemMibS:    usage.MemMiBS,
		OomKilled:  usage.OOMKilled,
		PeakVm:     usage.PeakVM,
		CpuKhz:     usage.CPUKHz,
		Counters:   Counters(usage.Counters),
		Tasks:      taskSpreads(usage.Tasks),
	}
	for i := range usage.GPUs {
		gpuUsage := &usage.GPUs[i]
		out.Gpus = append(
			out.Gpus,
			&apiv1.GpuUsage{
				Uuid:      gpuUsage.UUID,
				NoProcess: int64(gpuUsage.NoProcess),
				Idle:      int64(gpuUsage.Idle),
				Busy:      int64(gpuUsage.Busy),
				UtilNs: int64(
					gpuUsage.UtilNS,
				),
				SmNs:      int64(gpuUsage.SMNS),
				TensorNs:  int64(gpuUsage.TensorNS),
				PeakMem:   gpuUsage.PeakMem,
				MemMibS:   gpuUsage.MemMiBS,
				EnergyMj:  gpuUsage.EnergyMJ,
				Throttled: int64(gpuUsage.Throttled),
				Xids:      gpuUsage.XIDs,
				Has:       gpuUsage.Has,
				Method:    uint32(gpuUsage.Method),
				Share:     gpuUsage.Share,
			},
		)
	}
	return out
}

// ToUsage reads what an attempt used.
func ToUsage(usage *apiv1.Usage) spec.Usage {
	out := spec.Usage{
		UserCPU:   spec.Span(usage.GetUserCpu()),
		SystemCPU: spec.Span(usage.GetSystemCpu()),
		PeakRSS:   usage.GetPeakRss(),
		HasRSS:    usage.GetHasRss(),
		ReadB:     usage.GetReadBytes(),
		WriteB:    usage.GetWriteBytes(),
		EnergyMJ:  usage.GetEnergyMj(),
		HasEnergy: usage.GetHasEnergy(),
		MajFaults: usage.GetMajFaults(),
		MemMiBS:   usage.GetMemMibS(),
		OOMKilled: usage.GetOomKilled(),
		PeakVM:    usage.GetPeakVm(),
		CPUKHz:    usage.GetCpuKhz(),
		Counters:  ToCounters(usage.GetCounters()),
		Tasks:     toTaskSpreads(usage.GetTasks()),
	}
	for _, gpu := range usage.GetGpus() {
		out.GPUs = append(
			out.GPUs,
			spec.GPUUsage{
				UUID:      gpu.GetUuid(),
				NoProcess: spec.Span(gpu.GetNoProcess()),
				Idle:      spec.Span(gpu.GetIdle()),
				Busy: spec.Span(
					gpu.GetBusy(),
				),
				UtilNS:    spec.Span(gpu.GetUtilNs()),
				SMNS:      spec.Span(gpu.GetSmNs()),
				TensorNS:  spec.Span(gpu.GetTensorNs()),
				PeakMem:   gpu.GetPeakMem(),
				MemMiBS:   gpu.GetMemMibS(),
				EnergyMJ:  gpu.GetEnergyMj(),
				Throttled: spec.Span(gpu.GetThrottled()),
				XIDs:      gpu.GetXids(),
				Has:       gpu.GetHas(),
				Method:    spec.GPUMethod(gpu.GetMethod()),
				Share:     gpu.GetShare(),
			},
		)
	}
	return out
}

// ToStepResult reads how a batch script ended; nil stays nil.
func ToStepResult(run *apiv1.RunEnded) *event.StepResult {
	if run == nil {
		return nil
	}
	return &event.StepResult{
		Started: spec.Instant(run.GetStarted()),
		Ended:   spec.Instant(run.GetEnded()),
		Exit: spec.ExitStatus{
			Code:   run.GetExitCode(),
			Signal: run.GetExitSignal(),
		},
		Unknown: run.GetUnknown(),
		Detail:  run.GetDetail(),
	}
}

// GPUFault writes what happened to a GPU.
func GPUFault(fault *spec.GPUFault) *apiv1.GpuFault {
	return &apiv1.GpuFault{
		Uuid:  fault.UUID,
		Kind:  uint32(fault.Kind),
		Xid:   fault.XID,
		Class: fault.Class,
		Text:  fault.Text,
		At:    int64(fault.At),
		Count: fault.Count,
		JobUid: uint64(
			fault.Job,
		),
		JobId:   uint64(fault.JobID),
		Attempt: fault.Attempt,
		Idle:    int64(fault.Idle),
		Warned:  fault.Warned,
		Cancel:  int64(fault.Cancel),
	}
}

// maxFaultText bounds what an agent can put into the ledger with a fault.
const maxFaultText = 256

// ToGPUFault reads it. What an agent says is cut to what the ledger takes.
func ToGPUFault(fault *apiv1.GpuFault) spec.GPUFault {
	cut := func(s string) string { return s[:min(len(s), maxFaultText)] }
	return spec.GPUFault{
		UUID:  cut(fault.GetUuid()),
		Kind:  spec.GPUFaultKind(min(fault.GetKind(), 255)),
		XID:   fault.GetXid(),
		Class: cut(fault.GetClass()),
		Text:  cut(fault.GetText()),
		At: spec.Instant(
			fault.GetAt(),
		),
		Count:   fault.GetCount(),
		Job:     spec.JobUID(fault.GetJobUid()),
		Attempt: fault.GetAttempt(),
		Idle:    spec.Span(fault.GetIdle()),
	}
}
