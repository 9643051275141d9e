package front

import "encoding/binary"

// helloQuery is the driver's first question. Only this exact text is answered by the front.
const helloQuery = "SELECT displayName(), version(), revision(), timezone()"

// Revisions of ClickHouse's protocol from which a Native block carries more.
const withSerialization = 54454 // one byte a column: has it a custom serialization?

// helloBlock is the answer to helloQuery as one Native block at the asker's revision. The
// revision it tells is 0: that is how the engine writes Native, so that is how the driver must
// read from here on.
func (id identity) helloBlock(revision uint64) []byte {
	var buffer []byte
	if revision > 0 {
		// Block info: field 1 is_overflows = false, field 2 bucket_num = -1, end.
		buffer = append(buffer, 1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0)
	}
	buffer = append(buffer, 4, 1) // columns, rows
	column := func(name, kind string, value []byte) {
		buffer = appendText(buffer, name)
		buffer = appendText(buffer, kind)
		if revision >= withSerialization {
			buffer = append(buffer, 0)
		}
		buffer = append(buffer, value...)
	}
	column("displayName()", "String", appendText(nil, id.displayName))
	column("version()", "String", appendText(nil, id.version))
	column("revision()", "UInt32", make([]byte, 4))
	column("timezone()", "String", appendText(nil, id.timezone))
	return buffer
}

// appendText appends s with its length as a varint before it.
func appendText(buffer []byte, text string) []byte {
	return append(binary.AppendUvarint(buffer, uint64(len(text))), text...)
}
