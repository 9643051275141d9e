package device

// Field names a reading by DCGM's number for it: the one vocabulary that DCGM,
// exporters and dashboards share.
type Field uint16

// The fields Muster knows, by DCGM's numbers and dcgm-exporter's names.
const (
	SMClock             Field = 100
	MemClock            Field = 101
	ClockReasons        Field = 112
	MemoryTemp          Field = 140
	GPUTemp             Field = 150
	PowerUsage          Field = 155
	TotalEnergy         Field = 156
	PowerLimit          Field = 160
	PCIeReplay          Field = 202
	GPUUtil             Field = 203
	MemCopyUtil         Field = 204
	EncUtil             Field = 206
	DecUtil             Field = 207
	XIDErrors           Field = 230
	PowerViolation      Field = 240
	ThermalViolation    Field = 241
	FBFree              Field = 251
	FBUsed              Field = 252
	FBReserved          Field = 253
	ECCSBEVol           Field = 310
	ECCDBEVol           Field = 311
	ECCSBEAgg           Field = 312
	ECCDBEAgg           Field = 313
	RetiredSBE          Field = 390
	RetiredDBE          Field = 391
	RetiredPending      Field = 392
	RemappedUncorrected Field = 393
	RemappedCorrected   Field = 394
	RemapFailure        Field = 395
	RemapPending        Field = 396
	NVLinkCRCFlit       Field = 409
	NVLinkCRCData       Field = 419
	NVLinkReplay        Field = 429
	NVLinkRecovery      Field = 439
	NVLinkBandwidth     Field = 449
	VGPULicense         Field = 526
	GraphicsActive      Field = 1001
	SMActive            Field = 1002
	SMOccupancy         Field = 1003
	TensorActive        Field = 1004
	DRAMActive          Field = 1005
	FP64Active          Field = 1006
	FP32Active          Field = 1007
	FP16Active          Field = 1008
	PCIeTxBytes         Field = 1009
	PCIeRxBytes         Field = 1010
	NVLinkTxBytes       Field = 1011
	NVLinkRxBytes       Field = 1012
)

// Kind tells how a field behaves over time.
type Kind uint8

// A gauge goes up and down; a counter only grows until the device resets.
const (
	Gauge Kind = iota
	Counter
)

// String gives the kind as the TYPE line of the exposition format spells it.
func (k Kind) String() string {
	if k == Counter {
		return "counter"
	}
	return "gauge"
}

// Info describes a field.
type Info struct {
	Field    Field
	Name     string // dcgm-exporter's metric name
	Help     string // dcgm-exporter's help where it has the metric
	Unit     string // of the printed value
	Kind     Kind
	Decimals int  // the integer N of a Value is the printed value times 10^Decimals
	Core     bool // in the core set: utilisation, memory, power, SM, tensor and engine activity
	MIG      bool // has a meaning for a MIG instance
	Default  bool // exported unless a site names its own set
}

// Fields lists every known field, ascending by number. The caller owns the
// slice.
func Fields() []Info {
	return []Info{
		{SMClock, "DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", "MHz", Gauge, 0, false, false, true},
		{MemClock, "DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "MHz", Gauge, 0, false, false, true},
		{ClockReasons, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "Bitmap of the reasons that hold the clocks down.", "bits", Gauge, 0, false, false, true},
		{MemoryTemp, "DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", "C", Gauge, 0, false, false, true},
		{GPUTemp, "DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "C", Gauge, 0, false, false, true},
		{PowerUsage, "DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "W", Gauge, 3, true, false, true},
		{TotalEnergy, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", "mJ", Counter, 0, false, false, true},
		{PowerLimit, "DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit in force (in W).", "W", Gauge, 3, false, false, true},
		{PCIeReplay, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "1", Counter, 0, false, false, true},
		{GPUUtil, "DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "%", Gauge, 0, true, false, true},
		{MemCopyUtil, "DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "%", Gauge, 0, true, false, true},
		{EncUtil, "DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", "%", Gauge, 0, false, false, true},
		{DecUtil, "DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", "%", Gauge, 0, false, false, true},
		{XIDErrors, "DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", "xid", Gauge, 0, false, false, true},
		{PowerViolation, "DCGM_FI_DEV_POWER_VIOLATION", "Time the clocks were held down by the power limit (in ns).", "ns", Counter, 0, false, false, true},
		{ThermalViolation, "DCGM_FI_DEV_THERMAL_VIOLATION", "Time the clocks were held down by the temperature limit (in ns).", "ns", Counter, 0, false, false, true},
		{FBFree, "DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", "MiB", Gauge, 0, true, true, true},
		{FBUsed, "DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "MiB", Gauge, 0, true, true, true},
		{FBReserved, "DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved by the driver (in MiB).", "MiB", Gauge, 0, false, true, true},
		{ECCSBEVol, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Single-bit memory errors since the driver was loaded.", "1", Counter, 0, false, false, true},
		{ECCDBEVol, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Double-bit memory errors since the driver was loaded.", "1", Counter, 0, false, false, true},
		{ECCSBEAgg, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Single-bit memory errors over the life of the device.", "1", Counter, 0, false, false, true},
		{ECCDBEAgg, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Double-bit memory errors over the life of the device.", "1", Counter, 0, false, false, true},
		{RetiredSBE, "DCGM_FI_DEV_RETIRED_SBE", "Memory pages retired after single-bit errors.", "1", Counter, 0, false, false, false},
		{RetiredDBE, "DCGM_FI_DEV_RETIRED_DBE", "Memory pages retired after double-bit errors.", "1", Counter, 0, false, false, false},
		{RetiredPending, "DCGM_FI_DEV_RETIRED_PENDING", "Memory pages that wait for a reset to be retired.", "1", Counter, 0, false, false, false},
		{RemappedUncorrected, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors", "1", Counter, 0, false, false, true},
		{RemappedCorrected, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors", "1", Counter, 0, false, false, true},
		{RemapFailure, "DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", "bool", Gauge, 0, false, false, true},
		{RemapPending, "DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether a row waits for a reset to be remapped.", "bool", Gauge, 0, false, false, true},
		{NVLinkCRCFlit, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "Flow-control errors on all NVLinks.", "1", Counter, 0, false, false, false},
		{NVLinkCRCData, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "Data checksum errors on all NVLinks.", "1", Counter, 0, false, false, false},
		{NVLinkReplay, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Retries on all NVLinks.", "1", Counter, 0, false, false, true},
		{NVLinkRecovery, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Recoveries on all NVLinks.", "1", Counter, 0, false, false, true},
		{NVLinkBandwidth, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Total number of NVLink bandwidth counters for all lanes", "", Counter, 0, false, false, true},
		{VGPULicense, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "vGPU License status", "bool", Gauge, 0, false, false, true},
		{GraphicsActive, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics or compute engine was active.", "ratio", Gauge, 6, true, true, true},
		{SMActive, "DCGM_FI_PROF_SM_ACTIVE", "Ratio of cycles a multiprocessor had at least one warp, averaged over all of them.", "ratio", Gauge, 6, true, true, true},
		{SMOccupancy, "DCGM_FI_PROF_SM_OCCUPANCY", "Ratio of resident warps to the most a multiprocessor can hold.", "ratio", Gauge, 6, true, true, true},
		{TensorActive, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor pipe was active.", "ratio", Gauge, 6, true, true, true},
		{DRAMActive, "DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of cycles the memory interface moved data.", "ratio", Gauge, 6, true, true, true},
		{FP64Active, "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "Ratio of cycles the 64-bit pipe was active.", "ratio", Gauge, 6, false, true, false},
		{FP32Active, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "Ratio of cycles the 32-bit pipe was active.", "ratio", Gauge, 6, false, true, false},
		{FP16Active, "DCGM_FI_PROF_PIPE_FP16_ACTIVE", "Ratio of cycles the 16-bit pipe was active.", "ratio", Gauge, 6, false, true, false},
		{PCIeTxBytes, "DCGM_FI_PROF_PCIE_TX_BYTES", "Bytes a second the device sent over PCIe, headers and payload.", "B/s", Gauge, 0, false, true, true},
		{PCIeRxBytes, "DCGM_FI_PROF_PCIE_RX_BYTES", "Bytes a second the device received over PCIe, headers and payload.", "B/s", Gauge, 0, false, true, true},
		{NVLinkTxBytes, "DCGM_FI_PROF_NVLINK_TX_BYTES", "Bytes a second the device sent over NVLink, headers and payload.", "B/s", Gauge, 0, false, false, true},
		{NVLinkRxBytes, "DCGM_FI_PROF_NVLINK_RX_BYTES", "Bytes a second the device received over NVLink, headers and payload.", "B/s", Gauge, 0, false, false, true},
	}
}

// The bits of ClockReasons.
const (
	ReasonIdle          int64 = 1 << 0
	ReasonAppClocks     int64 = 1 << 1
	ReasonPowerCap      int64 = 1 << 2
	ReasonHWSlowdown    int64 = 1 << 3
	ReasonSWThermal     int64 = 1 << 5
	ReasonHWThermal     int64 = 1 << 6
	ReasonHWPowerBrake  int64 = 1 << 7
	ReasonsThermal            = ReasonSWThermal | ReasonHWThermal
	ReasonsPower              = ReasonPowerCap | ReasonHWPowerBrake
	ReasonsThrottleMask       = ReasonsThermal | ReasonsPower | ReasonHWSlowdown
)

// Ratio is the fixed point of ratio fields: one whole.
const Ratio int64 = 1_000_000
