package host

import "github.com/musterhpc/muster/spec"

// Stats is how a node does. Times are nanoseconds since the node's start.
type Stats struct {
	CPUs               int
	UserNS, NiceNS     int64
	SystemNS, IdleNS   int64
	IOWaitNS, IRQNS    int64
	SoftIRQNS, StealNS int64
	MemoryBytes        int64
	MemoryAvailable    int64
	LoadCenti          [3]int64 // load over 1, 5 and 15 minutes, hundredths
	BootTime           spec.Instant
	TmpDiskBytes       int64 // 0 when unknown
	TmpDiskAvailable   int64
}

// ReadBusyCPU is the CPU time that everything on the node has used, in nanoseconds;
// what a hypervisor gave to others is not in it.
func ReadBusyCPU(src Source) (int64, error) {
	stat, err := readParsed(src.Proc, "stat", ParseStat)
	if err != nil {
		return 0, err
	}
	return stat.UserNS + stat.NiceNS + stat.SystemNS + stat.IRQNS + stat.SoftIRQNS, nil
}

// ReadStats reads how the node does now. It opens three files of /proc and one
// of /sys, so it suits every collection. Errors wrap ErrHost.
func ReadStats(src Source) (Stats, error) {
	stat, err := readParsed(src.Proc, "stat", ParseStat)
	if err != nil {
		return Stats{}, err
	}
	memory, err := readParsed(src.Proc, "meminfo", ParseMeminfo)
	if err != nil {
		return Stats{}, err
	}
	load, err := readParsed(src.Proc, "loadavg", ParseLoadavg)
	if err != nil {
		return Stats{}, err
	}
	stats := Stats{
		UserNS: stat.UserNS, NiceNS: stat.NiceNS, SystemNS: stat.SystemNS, IdleNS: stat.IdleNS,
		IOWaitNS: stat.IOWaitNS, IRQNS: stat.IRQNS, SoftIRQNS: stat.SoftIRQNS, StealNS: stat.StealNS,
		MemoryBytes: memory.TotalBytes, MemoryAvailable: memory.AvailableBytes, LoadCenti: load, BootTime: stat.BootTime,
	}
	if online, err := readText(src.Sys, "devices/system/cpu/online"); err == nil {
		cpus, err := ParseList(online)
		if err == nil {
			stats.CPUs = len(cpus)
		}
	}
	if src.Statfs != nil && src.TmpFS != "" {
		if total, available, err := src.Statfs(src.TmpFS); err == nil {
			stats.TmpDiskBytes, stats.TmpDiskAvailable = total, available
		}
	}
	return stats, nil
}
