package rpcstatus

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// TypeURL names the encoded Error where gRPC's status carries it as a detail.
const TypeURL = "type.googleapis.com/muster.transport.v1.Error"

// The encoding is this protobuf message, written by hand so that a client needs no reflection
// for it:
//
//	message Error  { uint32 wire = 1; sint32 number = 2; string message = 3; string slurm = 4; repeated Detail details = 5; }
//	message Detail { string key = 1; string value = 2; }
const (
	fieldWire    = 1
	fieldNumber  = 2
	fieldMessage = 3
	fieldSlurm   = 4
	fieldDetail  = 5

	maxText    = 64 << 10
	maxDetails = 256
)

// ErrMalformed is what Parse returns for bytes that are not an encoded Error.
var ErrMalformed = errors.New("status: malformed error on the wire")

// Append appends the encoding of e to buffer. Texts beyond 64 KiB are cut, details beyond 256 are
// left out, and bytes that are not UTF-8 are replaced: an error must always be sendable.
func Append(buffer []byte, e *Error) []byte {
	buffer = protowire.AppendTag(buffer, fieldWire, protowire.VarintType)
	buffer = protowire.AppendVarint(buffer, uint64(e.Wire))
	if e.Number != 0 {
		buffer = protowire.AppendTag(buffer, fieldNumber, protowire.VarintType)
		buffer = protowire.AppendVarint(buffer, protowire.EncodeZigZag(int64(e.Number)))
	}
	buffer = appendText(buffer, fieldMessage, e.Message)
	buffer = appendText(buffer, fieldSlurm, e.Slurm)
	for i, detail := range e.Details {
		if i == maxDetails {
			break
		}
		var m []byte
		m = appendText(m, 1, detail.Key)
		m = appendText(m, 2, detail.Value)
		buffer = protowire.AppendTag(buffer, fieldDetail, protowire.BytesType)
		buffer = protowire.AppendBytes(buffer, m)
	}
	return buffer
}

func appendText(buffer []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return buffer
	}
	buffer = protowire.AppendTag(buffer, field, protowire.BytesType)
	return protowire.AppendString(buffer, clean(text))
}

func clean(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	if utf8.ValidString(text) {
		return text
	}
	out := make([]byte, 0, len(text))
	for _, r := range text {
		out = utf8.AppendRune(out, r)
		if len(out) > maxText-utf8.UTFMax {
			break
		}
	}
	return string(out)
}

// Parse decodes one encoded Error. Unknown fields are skipped: the schema only grows. A wire
// code of OK or one this release does not know becomes Unknown, so that an error can never read
// as a success.
func Parse(data []byte) (*Error, error) {
	e := &Error{}
	err := fields(data, func(num protowire.Number, varint uint64, bytes []byte) error {
		switch num {
		case fieldWire:
			e.Wire = Code(min(varint, 1<<31))
		case fieldNumber:
			e.Number = int32(protowire.DecodeZigZag(varint))
		case fieldMessage:
			e.Message = clean(string(bytes))
		case fieldSlurm:
			e.Slurm = clean(string(bytes))
		case fieldDetail:
			if len(e.Details) == maxDetails {
				return ErrMalformed
			}
			detail, err := parseDetail(bytes)
			if err != nil {
				return err
			}
			e.Details = append(e.Details, detail)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if e.Wire == OK || e.Wire > lastCode {
		e.Wire = Unknown
	}
	return e, nil
}

func parseDetail(data []byte) (Detail, error) {
	var detail Detail
	err := fields(data, func(num protowire.Number, _ uint64, bytes []byte) error {
		switch num {
		case 1:
			detail.Key = clean(string(bytes))
		case 2:
			detail.Value = clean(string(bytes))
		}
		return nil
	})
	return detail, err
}

// fields walks a message and calls visit for each varint and bytes field; a known number with
// the wrong type reads as zero.
func fields(data []byte, visit func(protowire.Number, uint64, []byte) error) error {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ErrMalformed
		}
		data = data[n:]
		var varint uint64
		var bytes []byte
		switch typ {
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(num, typ, data)
		}
		if n < 0 {
			return ErrMalformed
		}
		data = data[n:]
		if err := visit(num, varint, bytes); err != nil {
			return err
		}
	}
	return nil
}
