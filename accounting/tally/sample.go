package tally

// GPUSample is one reading of a device or MIG instance: not an event of the
// ledger, and not counted; it goes into the store beside what is.
type GPUSample struct {
	At      int64 // Unix seconds
	Node    string
	UUID    string
	Index   uint32 // of the device on its node
	Profile string // of a MIG instance
	// Who held it alone then; all empty where nobody did, or several.
	UID                      uint64
	Attempt, JobID           uint32
	User, Account, Partition string
	Seconds                  uint32 // to the next reading
	Values                   [SampleFields]int64
}

// NotMeasured is the value of a field that was not read. No field is negative.
const NotMeasured = -1

// SampleFields is the number of fields of a sample.
const SampleFields = 21

// SampleField is a field of a sample: its column in the store.
type SampleField struct {
	Name  string
	Bits  int // of the unsigned number that holds it
	About string
}

// SampleColumns lists the fields in the order of GPUSample.Values. They are
// rounded to what a chart shows: a thousandth, a watt, a megabyte a second. The
// digits behind that are noise, which no codec makes smaller.
//
//muster:table one entry for each field
func SampleColumns() [SampleFields]SampleField {
	return [SampleFields]SampleField{
		{"util", 8, "utilisation in percent (not of MIG instances)"},
		{"mem_util", 8, "time that memory was read or written, in percent (not of MIG instances)"},
		{"engine", 16, "graphics or compute engine active, in thousandths"},
		{"sm", 16, "multiprocessors active, in thousandths"},
		{"occupancy", 16, "resident warps, in thousandths"},
		{"tensor", 16, "tensor pipe active, in thousandths"},
		{"dram", 16, "memory interface active, in thousandths"},
		{"memory_mib", 32, "memory in use in MiB"},
		{"power_w", 16, "power in watts"},
		{"energy_j", 64, "energy since the driver was loaded, in joules"},
		{"temp_c", 8, "temperature in degrees Celsius"},
		{"mem_temp_c", 8, "temperature of the memory in degrees Celsius"},
		{"sm_mhz", 16, "clock of the multiprocessors in MHz"},
		{"mem_mhz", 16, "clock of the memory in MHz"},
		{"throttle", 32, "what holds the clocks down, as bits"},
		{"pcie_tx_mb", 32, "sent over PCIe in MB a second"},
		{"pcie_rx_mb", 32, "received over PCIe in MB a second"},
		{"nvlink_tx_mb", 32, "sent over NVLink in MB a second"},
		{"nvlink_rx_mb", 32, "received over NVLink in MB a second"},
		{"xid", 16, "number of the last error of the driver; 0 = none"},
		{"processes", 16, "processes on the device"},
	}
}

// UsageSample is one reading of what a run uses on a node: as little an event
// of the ledger as GPUSample.
type UsageSample struct {
	At                       int64 // Unix seconds
	Node                     string
	UID                      uint64
	Attempt, JobID           uint32
	Step                     int32
	User, Account, Partition string
	Seconds                  uint32 // to the next reading
	CPU                      int64  // in use since the reading before, in thousandths; NotMeasured
	RSS                      int64  // KiB resident
}
