// Package nvml is the GPU provider over NVIDIA's driver library, which is
// loaded at run time: the program builds and starts on machines without it,
// and Open then says so with gpu.ErrUnavailable.
//
// It reads what the library can say cheaply. The activity ratios of the
// profiling counters (DCGM_FI_PROF_*) are not among them, and neither are the
// PCIe rates, for which the library sleeps; nodes that want them run DCGM.
// Functions that an older driver lacks are left out, each checked by name
// first, because calling a missing one would end the process.
package nvml
