package durable

import "hash/crc32"

// castagnoli is the polynomial for which processors have an instruction. It is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C of data.
func Checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// ExtendChecksum continues a checksum, or a salt, over more data.
func ExtendChecksum(sum uint32, data []byte) uint32 { return crc32.Update(sum, castagnoli, data) }
