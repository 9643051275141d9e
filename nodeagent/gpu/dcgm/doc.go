// Package dcgm is the GPU provider over NVIDIA's Data Center GPU Manager, which
// is loaded at run time: the program builds and starts on machines without it,
// and Open then says so with gpu.ErrUnavailable.
//
// The manager runs inside the agent (embedded) or is an nv-hostengine that
// already runs (Config.HostEngine). It watches the fields at the agent's
// collection period, and a sample takes the latest values, so that a
// collection waits for no hardware. The manager stands on the driver library,
// and so does this package: inventory, processes and error events come from
// package nvml, readings from the manager.
//
// The profiling fields (DCGM_FI_PROF_*) need rights and a device that has them.
// Where the manager refuses, everything else works and Note says why they are
// missing. When a host engine goes away, samples fail until it is back; the
// provider dials it again every few seconds.
//
// A process has one connection to one manager: open at most one Provider.
package dcgm
