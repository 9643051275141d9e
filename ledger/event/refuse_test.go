package event_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/event/eventtest"
	"github.com/musterhpc/muster/ledger/event/record"
)

// raw builds a batch from parts, to say what the codec never would.
func raw(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case list:
			b = record.AppendHead(b, record.MajorArray, uint64(p))
		case fields:
			b = record.AppendHead(b, record.MajorMap, uint64(p))
		case int:
			b = record.AppendInt(b, int64(p))
		case string:
			b = record.AppendString(b, p)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

type (
	list   int // the head of an array
	fields int // the head of a map
)

func TestRefusals(t *testing.T) {
	// NodeReturned (73) of node n1 at sequence 1.
	envelope := raw(list(6), 1, 0, fields(0), fields(0), 73)
	tests := []struct {
		name string
		data []byte
		want error
	}{
		{"one event", raw(list(2), 1, list(1), envelope, fields(1), 1, "n1"), nil},
		{"no event", raw(list(2), 1, list(0)), nil},
		{"newer version", raw(list(2), int(event.Version)+1, list(0)), event.ErrNewer},
		{"newer version in another shape", raw(list(3), int(event.Version)+1, "whatever"), event.ErrNewer},
		{"more parts of a batch", raw(list(3), 1, list(0), 0), event.ErrNewer},
		{"more parts of an envelope", raw(list(2), 1, list(1), list(7), 1, 0, fields(0), fields(0), 73, fields(1), 1, "n1", 0), event.ErrNewer},
		{"unknown kind", raw(list(2), 1, list(1), list(6), 1, 0, fields(0), fields(0), 999, fields(0)), event.ErrNewer},
		{"unknown kind beyond 16 bits", raw(list(2), 1, list(1), list(6), 1, 0, fields(0), fields(0), 65536+73, fields(1), 1, "n1"), event.ErrNewer},
		{"unknown field", raw(list(2), 1, list(1), envelope, fields(2), 1, "n1", 77, 1), event.ErrNewer},
		{"unknown field of the actor", raw(list(2), 1, list(1), list(6), 1, 0, fields(1), 9, 1, fields(0), 73, fields(1), 1, "n1"), event.ErrNewer},
		{"empty", nil, event.ErrMalformed},
		{"not an array", raw("batch"), event.ErrMalformed},
		{"version 0", raw(list(2), 0, list(0)), event.ErrMalformed},
		{"no version", raw(list(0)), event.ErrMalformed},
		{"bytes behind", raw(list(2), 1, list(0), 7), event.ErrMalformed},
		{"too many events claimed", raw(list(2), 1, list(1<<40)), event.ErrMalformed},
		{"field twice", raw(list(2), 1, list(1), envelope, fields(2), 1, "n1", 1, "n2"), event.ErrMalformed},
		{"number for a name", raw(list(2), 1, list(1), envelope, fields(1), 1, 5), event.ErrMalformed},
		{"text that is not UTF-8", raw(list(2), 1, list(1), envelope, fields(1), 1, []byte{0x62, 0xff, 0xfe}), event.ErrMalformed},
		{"long form of a number", raw(list(2), []byte{0x18, 0x01}, list(0)), event.ErrMalformed},
		{"indefinite length", []byte{0x9f, 0x01, 0x80, 0xff}, event.ErrMalformed},
	}
	c := newCodec(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.Decode(tt.data)
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// TestCutShort cuts a batch at every byte: never an event less without a word.
func TestCutShort(t *testing.T) {
	c := newCodec(t)
	for _, k := range event.Kinds() {
		data, err := c.Encode([]event.Envelope{eventtest.FullEnvelope(k)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range data {
			if _, err := c.Decode(data[:i]); !errors.Is(err, event.ErrMalformed) {
				t.Fatalf("%s cut to %d of %d bytes: %v", k, i, len(data), err)
			}
		}
	}
}

// FuzzDecode: any bytes give events or an error, never a panic; what was read
// is written and read again unchanged.
func FuzzDecode(f *testing.F) {
	c := newCodec(f)
	for _, k := range event.Kinds() {
		data, err := c.Encode([]event.Envelope{eventtest.FullEnvelope(k)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		batch, err := c.Decode(data)
		if err != nil {
			if !errors.Is(err, event.ErrNewer) && !errors.Is(err, event.ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		once, err := c.Encode(batch)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Decode(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		twice, err := c.Encode(again)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("written twice it differs: %v\n%x\n%x", err, once, twice)
		}
	})
}
