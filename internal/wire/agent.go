package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Inventory writes what an agent found.
func Inventory(i *spec.Inventory) *apiv1.Inventory {
	out := &apiv1.Inventory{BootId: i.BootID, BootedAt: int64(i.BootedAt), AgentStarted: int64(i.AgentStarted), AgentVersion: i.AgentVersion,
		Hostname: i.Hostname, Addr: i.Addr, Os: i.OS, Arch: i.Arch, Cpus: i.CPUs, Sockets: i.Sockets, CoresPerSocket: i.CoresPerSocket,
		ThreadsPerCore: i.ThreadsPerCore, Mem: i.Mem, TmpDisk: i.TmpDisk, Gres: Counts(i.GRES), MetricsAddr: i.MetricsAddr, Degraded: i.Degraded, Socket: i.Socket}
	for k := range i.GPUs {
		out.Gpus = append(out.Gpus, GPU(&i.GPUs[k]))
	}
	return out
}

// ToInventory reads what an agent found.
func ToInventory(i *apiv1.Inventory) spec.Inventory {
	out := spec.Inventory{BootID: i.GetBootId(), BootedAt: spec.Instant(i.GetBootedAt()), AgentStarted: spec.Instant(i.GetAgentStarted()),
		AgentVersion: i.GetAgentVersion(), Hostname: i.GetHostname(), Addr: i.GetAddr(), OS: i.GetOs(), Arch: i.GetArch(), CPUs: i.GetCpus(),
		Sockets: i.GetSockets(), CoresPerSocket: i.GetCoresPerSocket(), ThreadsPerCore: i.GetThreadsPerCore(), Mem: i.GetMem(),
		TmpDisk: i.GetTmpDisk(), GRES: ToCounts(i.GetGres()), MetricsAddr: i.GetMetricsAddr(), Degraded: i.GetDegraded(), Socket: i.GetSocket()}
	for _, g := range i.GetGpus() {
		out.GPUs = append(out.GPUs, ToGPU(g))
	}
	return out
}

// Usage writes what an attempt used.
func Usage(u *spec.Usage) *apiv1.Usage {
	out := &apiv1.Usage{UserCpu: int64(u.UserCPU), SystemCpu: int64(u.SystemCPU), PeakRss: u.PeakRSS, HasRss: u.HasRSS,
		ReadBytes: u.ReadB, WriteBytes: u.WriteB, EnergyMj: u.EnergyMJ, HasEnergy: u.HasEnergy, MajFaults: u.MajFaults,
		MemMibS: u.MemMiBS, OomKilled: u.OOMKilled, PeakVm: u.PeakVM, CpuKhz: u.CPUKHz}
	for i := range u.GPUs {
		g := &u.GPUs[i]
		out.Gpus = append(out.Gpus, &apiv1.GpuUsage{Uuid: g.UUID, NoProcess: int64(g.NoProcess), Idle: int64(g.Idle), Busy: int64(g.Busy),
			UtilNs: int64(g.UtilNS), SmNs: int64(g.SMNS), TensorNs: int64(g.TensorNS), PeakMem: g.PeakMem, MemMibS: g.MemMiBS,
			EnergyMj: g.EnergyMJ, Throttled: int64(g.Throttled), Xids: g.XIDs, Has: g.Has, Method: uint32(g.Method), Share: g.Share})
	}
	return out
}

// ToUsage reads what an attempt used.
func ToUsage(u *apiv1.Usage) spec.Usage {
	out := spec.Usage{UserCPU: spec.Span(u.GetUserCpu()), SystemCPU: spec.Span(u.GetSystemCpu()), PeakRSS: u.GetPeakRss(), HasRSS: u.GetHasRss(),
		ReadB: u.GetReadBytes(), WriteB: u.GetWriteBytes(), EnergyMJ: u.GetEnergyMj(), HasEnergy: u.GetHasEnergy(), MajFaults: u.GetMajFaults(),
		MemMiBS: u.GetMemMibS(), OOMKilled: u.GetOomKilled(), PeakVM: u.GetPeakVm(), CPUKHz: u.GetCpuKhz()}
	for _, g := range u.GetGpus() {
		out.GPUs = append(out.GPUs, spec.GPUUsage{UUID: g.GetUuid(), NoProcess: spec.Span(g.GetNoProcess()), Idle: spec.Span(g.GetIdle()),
			Busy: spec.Span(g.GetBusy()), UtilNS: spec.Span(g.GetUtilNs()), SMNS: spec.Span(g.GetSmNs()), TensorNS: spec.Span(g.GetTensorNs()),
			PeakMem: g.GetPeakMem(), MemMiBS: g.GetMemMibS(), EnergyMJ: g.GetEnergyMj(), Throttled: spec.Span(g.GetThrottled()), XIDs: g.GetXids(), Has: g.GetHas(),
			Method: spec.GPUMethod(g.GetMethod()), Share: g.GetShare()})
	}
	return out
}

// ToStepResult reads how a batch script ended; nil stays nil.
func ToStepResult(r *apiv1.RunEnded) *event.StepResult {
	if r == nil {
		return nil
	}
	return &event.StepResult{Started: spec.Instant(r.GetStarted()), Ended: spec.Instant(r.GetEnded()),
		Exit: spec.ExitStatus{Code: r.GetExitCode(), Signal: r.GetExitSignal()}, Unknown: r.GetUnknown(), Detail: r.GetDetail()}
}

// GPUFault writes what happened to a GPU.
func GPUFault(f *spec.GPUFault) *apiv1.GpuFault {
	return &apiv1.GpuFault{Uuid: f.UUID, Kind: uint32(f.Kind), Xid: f.XID, Class: f.Class, Text: f.Text, At: int64(f.At), Count: f.Count,
		JobUid: uint64(f.Job), JobId: uint64(f.JobID), Attempt: f.Attempt, Idle: int64(f.Idle), Warned: f.Warned, Cancel: int64(f.Cancel)}
}

// maxFaultText bounds what an agent can put into the ledger with a fault.
const maxFaultText = 256

// ToGPUFault reads it. What an agent says is cut to what the ledger takes.
func ToGPUFault(f *apiv1.GpuFault) spec.GPUFault {
	cut := func(s string) string { return s[:min(len(s), maxFaultText)] }
	return spec.GPUFault{UUID: cut(f.GetUuid()), Kind: spec.GPUFaultKind(min(f.GetKind(), 255)), XID: f.GetXid(), Class: cut(f.GetClass()), Text: cut(f.GetText()),
		At: spec.Instant(f.GetAt()), Count: f.GetCount(), Job: spec.JobUID(f.GetJobUid()), Attempt: f.GetAttempt(), Idle: spec.Span(f.GetIdle())}
}
