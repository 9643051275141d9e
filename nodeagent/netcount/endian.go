package netcount

import "encoding/binary"

// isLittleEndian tells how this machine's words lie in memory.
func isLittleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
