package limit

import (
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// dataFrame is a DATA frame with padding.
func dataFrame(id uint32, payload []byte, pad int, padded, ends bool) []byte {
	flags := byte(0)
	body := payload
	if padded {
		flags |= flagPadded
		body = append(append([]byte{byte(pad)}, payload...), make([]byte, pad)...)
	}
	if ends {
		flags |= flagEnd
	}
	return append(frameHeader(len(body), frameData, flags, id), body...)
}

func frameHeader(length int, kind, flags byte, id uint32) []byte {
	h := []byte{byte(length >> 16), byte(length >> 8), byte(length), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(h[5:], id)
	return h
}

// TestMeter: over random streams, cut at random places, the meter counts what a
// plain reading of whole messages leaves over.
func TestMeter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		wire := make([]byte, prefaceSize)
		open := map[uint32][]byte{} // what each stream has sent
		var order []uint32
		for range rapid.IntRange(0, 40).Draw(rt, "frames") {
			id := uint32(rapid.IntRange(1, 4).Draw(rt, "stream"))*2 - 1
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0:
				wire = append(append(wire, frameHeader(4, frameReset, 0, id)...), 0, 0, 0, 0)
				delete(open, id)
			case 1:
				n := rapid.IntRange(0, 20).Draw(rt, "other")
				wire = append(append(wire, frameHeader(n, 0x1, 0, id)...), make([]byte, n)...)
			default:
				var payload []byte
				for range rapid.IntRange(0, 2).Draw(rt, "messages") {
					n := rapid.IntRange(0, 30).Draw(rt, "size")
					payload = binary.BigEndian.AppendUint32(append(payload, 0), uint32(n))
					payload = append(payload, make([]byte, n)...)
				}
				// What is cut off here comes with the next frame of the stream.
				cut := rapid.IntRange(0, len(payload)).Draw(rt, "cut")
				ends := rapid.IntRange(0, 4).Draw(rt, "end") == 0
				padded := rapid.Bool().Draw(rt, "padded")
				if len(open[id]) == 0 {
					order = append(order, id)
				}
				wire = append(wire, dataFrame(id, payload[:cut], rapid.IntRange(0, 9).Draw(rt, "pad"), padded, ends)...)
				open[id] = append(open[id], payload[:cut]...)
				if ends {
					delete(open, id)
				}
			}
		}
		var want int64
		for _, sent := range open {
			for len(sent) >= prefixSize {
				n := prefixSize + int(binary.BigEndian.Uint32(sent[1:]))
				if n > len(sent) {
					break
				}
				sent = sent[n:]
			}
			want += int64(len(sent))
			if len(sent) > 0 {
				want += streamCost
			}
		}
		var m Meter
		for len(wire) > 0 {
			n := rapid.IntRange(1, len(wire)).Draw(rt, "read")
			m.Observe(wire[:n], time.Unix(int64(len(wire)), 0))
			wire = wire[n:]
		}
		if m.Oldest().IsZero() != (want == 0) {
			rt.Fatalf("%d are unfinished, the oldest since %s", want, m.Oldest())
		}
		if m.Unfinished() != want {
			rt.Fatalf("the meter says %d, %d are unfinished (%d streams)", m.Unfinished(), want, len(order))
		}
	})
}

// TestMeterForgetsStreams: frames for ever new streams, empty or with whole messages,
// leave nothing behind.
func TestMeterForgetsStreams(t *testing.T) {
	var m Meter
	m.Observe(make([]byte, prefaceSize), time.Time{})
	whole := []byte{0, 0, 0, 0, 2, 'h', 'i'}
	for id := uint32(1); id < 2000; id += 4 {
		m.Observe(dataFrame(id, nil, 0, false, false), time.Time{})
		m.Observe(dataFrame(id+2, whole, 3, true, false), time.Time{})
	}
	if len(m.streams) != 0 || m.Unfinished() != 0 {
		t.Errorf("%d streams are remembered, %d bytes unfinished", len(m.streams), m.Unfinished())
	}
}

// FuzzMeter: any bytes are read without a panic and never count as less than
// nothing or more than they are.
func FuzzMeter(f *testing.F) {
	f.Add(append(make([]byte, prefaceSize), dataFrame(1, []byte{0, 0, 0, 0, 9, 1, 2}, 3, true, false)...))
	f.Add(append(make([]byte, prefaceSize), frameHeader(0, frameData, flagPadded, 1)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Meter
		m.Observe(b, time.Time{})
		if n := m.unfinished; n < 0 || n > int64(len(b)) {
			t.Errorf("%d unfinished of %d bytes", n, len(b))
		}
	})
}
