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

// Append appends the encoding of e to b. Texts beyond 64 KiB are cut, details beyond 256 are
// left out, and bytes that are not UTF-8 are replaced: an error must always be sendable.
func Append(b []byte, e *Error) []byte {
	b = protowire.AppendTag(b, fieldWire, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(e.Wire))
	if e.Number != 0 {
		b = protowire.AppendTag(b, fieldNumber, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeZigZag(int64(e.Number)))
	}
	b = appendText(b, fieldMessage, e.Message)
	b = appendText(b, fieldSlurm, e.Slurm)
	for i, detail := range e.Details {
		if i == maxDetails {
			break
		}
		var m []byte
		m = appendText(m, 1, detail.Key)
		m = appendText(m, 2, detail.Value)
		b = protowire.AppendTag(b, fieldDetail, protowire.BytesType)
		b = protowire.AppendBytes(b, m)
	}
	return b
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, clean(s))
}

func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	if utf8.ValidString(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	for _, r := range s {
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
func Parse(b []byte) (*Error, error) {
	e := &Error{}
	err := fields(b, func(num protowire.Number, varint uint64, bytes []byte) error {
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
			d, err := parseDetail(bytes)
			if err != nil {
				return err
			}
			e.Details = append(e.Details, d)
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

func parseDetail(b []byte) (Detail, error) {
	var detail Detail
	err := fields(b, func(num protowire.Number, _ uint64, bytes []byte) error {
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
func fields(b []byte, visit func(protowire.Number, uint64, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		var varint uint64
		var bytes []byte
		switch typ {
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return ErrMalformed
		}
		b = b[n:]
		if err := visit(num, varint, bytes); err != nil {
			return err
		}
	}
	return nil
}
