// Package gpuseries is the one table of what a GPU sample holds: the list of the message, the field
// of the device that it is read from, and the column of the store. The agent fills the lists by it
// and accounting reads them by it. A test holds the table to the message and to the columns, because
// a list that is missing here would be dropped without an error.
package gpuseries

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// Figure is one list of a series.
type Figure struct {
	Column string // of the accounting store, as in tally.SampleColumns
	// Field of a device that the figure is read from; 0 for the number of processes, which is
	// counted and not read.
	Field device.Field
	// Scale divides the number of the device: samples are rounded to what a chart shows.
	Scale int64
	List  func(*apiv1.GpuSeries) *[]int64
}

// figures are in the order of the message and of the columns.
//
//muster:table one row for each list of a series
var figures = [...]Figure{
	{"util", device.GPUUtil, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.Util }},
	{"mem_util", device.MemCopyUtil, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.MemUtil }},
	{"engine", device.GraphicsActive, thousandths, func(s *apiv1.GpuSeries) *[]int64 { return &s.Engine }},
	{"sm", device.SMActive, thousandths, func(s *apiv1.GpuSeries) *[]int64 { return &s.Sm }},
	{"occupancy", device.SMOccupancy, thousandths, func(s *apiv1.GpuSeries) *[]int64 { return &s.Occupancy }},
	{"tensor", device.TensorActive, thousandths, func(s *apiv1.GpuSeries) *[]int64 { return &s.Tensor }},
	{"dram", device.DRAMActive, thousandths, func(s *apiv1.GpuSeries) *[]int64 { return &s.Dram }},
	{"memory_mib", device.FBUsed, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.Memory }},
	{"power_w", device.PowerUsage, milli, func(s *apiv1.GpuSeries) *[]int64 { return &s.Power }},
	{"energy_j", device.TotalEnergy, milli, func(s *apiv1.GpuSeries) *[]int64 { return &s.Energy }},
	{"temp_c", device.GPUTemp, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.Temp }},
	{"mem_temp_c", device.MemoryTemp, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.MemTemp }},
	{"sm_mhz", device.SMClock, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.SmClock }},
	{"mem_mhz", device.MemClock, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.MemClock }},
	{"throttle", device.ClockReasons, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.Throttle }},
	{"pcie_tx_mb", device.PCIeTxBytes, mega, func(s *apiv1.GpuSeries) *[]int64 { return &s.PcieTx }},
	{"pcie_rx_mb", device.PCIeRxBytes, mega, func(s *apiv1.GpuSeries) *[]int64 { return &s.PcieRx }},
	{"nvlink_tx_mb", device.NVLinkTxBytes, mega, func(s *apiv1.GpuSeries) *[]int64 { return &s.NvlinkTx }},
	{"nvlink_rx_mb", device.NVLinkRxBytes, mega, func(s *apiv1.GpuSeries) *[]int64 { return &s.NvlinkRx }},
	{"xid", device.XIDErrors, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.Xid }},
	{"processes", 0, 1, func(s *apiv1.GpuSeries) *[]int64 { return &s.Processes }},
}

const (
	thousandths = device.Ratio / 1000 // of a ratio, which a device gives in millionths
	milli       = 1000
	mega        = 1_000_000
)

// Figures are the lists of a series in the order of the columns. The caller must not change them.
func Figures() []Figure { return figures[:] }
