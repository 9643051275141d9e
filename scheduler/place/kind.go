package place

// Counts says what a Kind counts. A Kind counts one thing: the values exclude each
// other.
type Counts uint8

// What a Kind may count.
const (
	// CountsGRES: a resource that comes in several types, or that is no GPU. Type ""
	// counts all of its types.
	CountsGRES Counts = iota
	// CountsDevice: the GPU at position Device, in the parts that it can be held in.
	CountsDevice
	// CountsDeviceParts: what is held in parts of the GPU at position Device, on nodes
	// where only one GPU may be shared at a time.
	CountsDeviceParts
	// CountsPartitionCPUs: the CPUs that jobs of the partition Name may use
	// (MaxCPUsPerNode).
	CountsPartitionCPUs
	// CountsSharedCPUs: the same where jobs of the partition share CPUs, each CPU
	// counted as often as there may be jobs on it.
	CountsSharedCPUs
	// CountsReservedCPUs: the CPUs that the reservation Name keeps.
	CountsReservedCPUs
	// CountsReservedGPUs: the GPUs that it keeps.
	CountsReservedGPUs
	// CountsOpenCPUs: the CPUs left to jobs of the reservation Name, where these may
	// take more than it keeps, and to jobs in no reservation. It is all of the node
	// without what those jobs hold and what other reservations keep.
	CountsOpenCPUs
	// CountsOpenGPUs: the same of GPUs.
	CountsOpenGPUs
	// CountsRealCPUs: the CPUs that nobody holds, whoever keeps them.
	CountsRealCPUs
)

// isLimit tells a counter that bounds only the jobs of a partition or reservation, and
// is no resource of the node.
func (c Counts) isLimit() bool { return c >= CountsPartitionCPUs }

// isReserved tells a counter that belongs to a reservation.
func (c Counts) isReserved() bool { return c >= CountsReservedCPUs && c <= CountsOpenGPUs }

// gpusOfReservation tells a counter of the GPUs of a reservation.
func (c Counts) gpusOfReservation() bool { return c == CountsReservedGPUs || c == CountsOpenGPUs }

// isOpen tells a counter of a reservation whose jobs may take more than it keeps.
func (c Counts) isOpen() bool { return c == CountsOpenCPUs || c == CountsOpenGPUs }

// Kind is one further counter of a Shape.
type Kind struct {
	Counts Counts
	Name   string // of the resource, partition or reservation; empty for devices
	Type   string // of the resource or the device
	N      int64  // how many there are
	Device int    // position of the device that CountsDevice and CountsDeviceParts are about
	Part   string // what a device can be held in parts of, or empty
	One    bool   // only one such device of the node may be shared at a time
}
