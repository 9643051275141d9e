package device

// XIDClass groups the driver's error numbers by who has to act.
type XIDClass uint8

// The classes of XID.
const (
	XIDUnknown     XIDClass = iota // not in the table: show the number
	XIDApplication                 // the job's own program: look at the job
	XIDMemory                      // device memory: watch, or drain when uncontained
	XIDLink                        // NVLink or PCIe
	XIDDriver                      // driver or firmware: a reset usually helps
	XIDFatal                       // the device is gone or must not be used
)

// String names the class.
func (c XIDClass) String() string {
	switch c {
	case XIDApplication:
		return "application"
	case XIDMemory:
		return "memory"
	case XIDLink:
		return "link"
	case XIDDriver:
		return "driver"
	case XIDFatal:
		return "fatal"
	case XIDUnknown:
	}
	return "unknown"
}

// ClassifyXID gives the class of a driver error number.
func ClassifyXID(xid int) XIDClass {
	switch xid {
	case 13, 31, 32, 43, 44, 45, 68, 69, 109:
		return XIDApplication
	case 63, 64, 92, 93, 94:
		return XIDMemory
	case 74, 38, 121, 136, 145, 149:
		return XIDLink
	case 8, 16, 25, 56, 57, 61, 62, 119, 120, 122, 123:
		return XIDDriver
	case 48, 79, 95, 110, 140, 142:
		return XIDFatal
	}
	return XIDUnknown
}
