package spec

import "slices"

// Counter names what is counted of a run only where its node can: the kernel must
// have the counter, or the run must have had the node to itself.
type Counter uint8

// The counters; the values are stored, so that one is never used again.
const (
	CounterNetIn Counter = iota + 1
	CounterNetOut
	CounterNetIn6
	CounterNetOut6
	CounterNetLoopback
	CounterFabricIn
	CounterFabricOut
	CounterLustreRead
	CounterLustreWrite
	CounterNFSRead
	CounterNFSWrite
	CounterReadOps
	CounterWriteOps
	CounterMinFaults
	CounterVolSwitches
	CounterInvSwitches
	CounterThrottled
	CounterCPUStall
	CounterMemStall
	CounterIOStall
)

// CounterInfo is what a counter means.
type CounterInfo struct {
	Counter Counter
	Name    string // in the store and in views
	Unit    string // bytes, microseconds, or empty for a number of things
	// TRES is the name under which sacct has it, and In that it is read or received.
	TRES string
	In   bool
	Help string
}

// Counters lists them all.
//
//muster:table one row for each counter
func Counters() []CounterInfo {
	const (
		bytes  = "bytes"
		micros = "microseconds"
		alone  = "; counted while the run's job has the node alone"
	)
	return []CounterInfo{
		{CounterNetIn, "net_in", bytes, "", true, "received over the network by IP, without loopback and RDMA"},
		{CounterNetOut, "net_out", bytes, "", false, "sent over the network by IP, without loopback and RDMA"},
		{CounterNetIn6, "net_in6", bytes, "", true, "the part of net_in that came by IPv6"},
		{CounterNetOut6, "net_out6", bytes, "", false, "the part of net_out that went by IPv6"},
		{CounterNetLoopback, "net_loopback", bytes, "", false, "sent within the node over loopback"},
		{CounterFabricIn, "fabric_in", bytes, "ic/ofed", true, "received by the node's InfiniBand and RoCE ports, or those of SysfsInterfaces" + alone},
		{CounterFabricOut, "fabric_out", bytes, "ic/ofed", false, "sent by the node's InfiniBand and RoCE ports, or those of SysfsInterfaces" + alone},
		{CounterLustreRead, "lustre_read", bytes, "fs/lustre", true, "read from Lustre" + alone},
		{CounterLustreWrite, "lustre_write", bytes, "fs/lustre", false, "written to Lustre" + alone},
		{CounterNFSRead, "nfs_read", bytes, "", true, "read from NFS servers" + alone},
		{CounterNFSWrite, "nfs_write", bytes, "", false, "written to NFS servers" + alone},
		{CounterReadOps, "read_ops", "", "", true, "requests to read local disks"},
		{CounterWriteOps, "write_ops", "", "", false, "requests to write local disks"},
		{CounterMinFaults, "min_faults", "", "", false, "page faults that read no disk"},
		{CounterVolSwitches, "vol_switches", "", "", false, "times that a thread gave its CPU up to wait"},
		{CounterInvSwitches, "inv_switches", "", "", false, "times that a thread was taken off its CPU"},
		{CounterThrottled, "throttled_us", micros, "", false, "held back by a limit of CPU time"},
		{CounterCPUStall, "cpu_stall_us", micros, "", false, "time in which some task waited for a CPU"},
		{CounterMemStall, "mem_stall_us", micros, "", false, "time in which some task waited for memory"},
		{CounterIOStall, "io_stall_us", micros, "", false, "time in which some task waited for a disk"},
	}
}

// CounterValue is how much of a counter there was. One that is not in a list was not
// counted, which is not the same as 0.
type CounterValue struct {
	Counter Counter `cbor:"1,keyasint,omitempty" since:"2"`
	N       int64   `cbor:"2,keyasint,omitempty" since:"2"`
}

// CounterValues are some counters, in order.
type CounterValues []CounterValue

func (c CounterValues) findCounter(counter Counter) (int, bool) {
	return slices.BinarySearchFunc(
		c,
		counter,
		func(x CounterValue, want Counter) int { return int(x.Counter) - int(want) },
	)
}

// Get gives a counter; ok is false where it was not counted.
func (c CounterValues) Get(counter Counter) (n int64, ok bool) {
	i, ok := c.findCounter(counter)
	if !ok {
		return 0, false
	}
	return c[i].N, true
}

// With is the list with a counter set.
func (c CounterValues) With(counter Counter, n int64) CounterValues {
	i, ok := c.findCounter(counter)
	if ok {
		c[i].N = n
		return c
	}
	return slices.Insert(c, i, CounterValue{Counter: counter, N: n})
}

// Add sums two lists into a new one.
func (c CounterValues) Add(more CounterValues) CounterValues {
	if len(c)+len(more) == 0 {
		return nil
	}
	sum := make(CounterValues, 0, max(len(c), len(more)))
	for len(c) > 0 && len(more) > 0 {
		switch {
		case c[0].Counter < more[0].Counter:
			sum, c = append(sum, c[0]), c[1:]
		case c[0].Counter > more[0].Counter:
			sum, more = append(sum, more[0]), more[1:]
		default:
			both := CounterValue{Counter: c[0].Counter, N: c[0].N + more[0].N}
			sum = append(sum, both)
			c, more = c[1:], more[1:]
		}
	}
	return append(append(sum, c...), more...)
}

// Without is what is left of a list when a part of it is taken off.
func (c CounterValues) Without(part CounterValues) CounterValues {
	left := slices.Clone(c)
	for i := range left {
		n, _ := part.Get(left[i].Counter)
		left[i].N = max(left[i].N-n, 0)
	}
	return left
}
