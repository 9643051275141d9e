package stepio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

func anyFrame(t *rapid.T) plan.Frame {
	f := plan.Frame{Number: rapid.Uint64().Draw(t, "number")}
	rank := rapid.Uint32().Draw(t, "rank")
	small := rapid.Int32()
	data := func() []byte { return bytes.Clone(rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "data")) }
	switch rapid.IntRange(1, 8).Draw(t, "what") {
	case hasStarted:
		f.Started = &plan.TaskPIDs{}
		for range rapid.IntRange(1, 5).Draw(t, "tasks") {
			f.Started.Ranks, f.Started.PIDs = append(f.Started.Ranks, rapid.Uint32().Draw(t, "r")), append(f.Started.PIDs, small.Draw(t, "pid"))
		}
	case hasOutput:
		f.Output = &plan.Output{Rank: rank, Stream: rapid.Uint8Range(1, 2).Draw(t, "stream"), Data: data()}
	case hasExit:
		f.Exit = &plan.TaskExit{Rank: rank, Code: small.Draw(t, "code"), Signal: small.Draw(t, "signal"), Core: rapid.Bool().Draw(t, "core"),
			Error: rapid.String().Draw(t, "error"), Start: spec.Instant(rapid.Int64().Draw(t, "start")), End: 7,
			Usage: plan.Usage{UserCPU: 5, SystemCPU: spec.Span(rapid.Int64().Draw(t, "cpu")), PeakRSS: 9}}
	case hasEnd:
		f.End = &plan.FrameEnd{Code: small.Draw(t, "code"), Signal: small.Draw(t, "signal"), Error: rapid.String().Draw(t, "error")}
	case hasNotice:
		f.Notice = rapid.String().Draw(t, "notice")
	case hasFence:
		f.Fence = &plan.Fence{Number: rapid.Uint64().Draw(t, "fence"), Node: rank, Data: data()}
		if rapid.Bool().Draw(t, "joined") {
			f.Fence.Joined, f.Fence.Group, f.Fence.Nodes = true, rapid.String().Draw(t, "group"), []uint32{rank, 7}
		}
	case hasModex:
		modex := anyModex(t)
		f.Modex = &modex
	case hasAbort:
		f.Abort = true
	}
	return f
}

func anyModex(t *rapid.T) plan.Modex {
	return plan.Modex{Kind: plan.ModexAnswer, Number: rapid.Uint64().Draw(t, "number"), From: rapid.Uint32().Draw(t, "from"), To: 3,
		Rank: rapid.Uint32().Draw(t, "rank"), Status: rapid.Int32().Draw(t, "status"), Data: []byte{0, 1}}
}

func anyMessage(t *rapid.T) Message {
	m := Message{Kind: Kind(rapid.IntRange(int(Open), int(Modex)).Draw(t, "kind"))}
	data := bytes.Clone(rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "data"))
	switch m.Kind {
	case Open:
		m.Node, m.Credential, m.UpTo = rapid.String().Draw(t, "node"), data, rapid.Uint64().Draw(t, "upto")
		m.Address, m.UID = rapid.String().Draw(t, "address"), rapid.Uint32().Draw(t, "uid")
		m.Run = plan.Key(rapid.Uint64().Draw(t, "job"), rapid.Uint32().Draw(t, "attempt"), rapid.Int32().Draw(t, "step"))
	case Refused:
		m.Code, m.Text = Code(rapid.Uint8().Draw(t, "code")), rapid.String().Draw(t, "text")
	case Frame:
		m.Frame = anyFrame(t)
	case Ack:
		m.UpTo = rapid.Uint64().Draw(t, "upto")
	case Input, Taken:
		m.Rank, m.Offset, m.Data = rapid.Int32().Draw(t, "rank"), rapid.Uint64().Draw(t, "offset"), data
	case Signal:
		m.Signal = rapid.Int32().Draw(t, "signal")
	case Resize:
		m.Window = plan.Window{Rows: uint32(rapid.Uint16().Draw(t, "rows")), Columns: 80}
	case Merged:
		m.Fence = plan.Fence{Number: rapid.Uint64().Draw(t, "fence"), Node: 3, Data: data}
	case Modex:
		m.Modex = anyModex(t)
	case Opened:
	}
	return m
}

// What is written is read again, message after message, and no shorter text is
// a message.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(anyMessage), 1, 5).Draw(t, "messages")
		var b []byte
		for i := range list {
			b = Append(b, &list[i])
		}
		r := NewReader(bufio.NewReader(bytes.NewReader(b)))
		for i := range list {
			got, err := r.Next()
			if err != nil || !reflect.DeepEqual(got, list[i]) {
				t.Fatalf("message %d: %+v (%v), want %+v", i, got, err, list[i])
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("behind the last: %v", err)
		}
		one := Append(nil, &list[0])
		cut := rapid.IntRange(1, len(one)-1).Draw(t, "cut")
		if m, err := NewReader(bytes.NewReader(one[:cut])).Next(); err == nil {
			t.Fatalf("cut at %d of %d: %+v", cut, len(one), m)
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add(Append(Append(nil, &Message{Kind: Open, Node: "n1", Credential: []byte("x")}), &Message{Kind: Frame, Frame: plan.Frame{Number: 1, Notice: "a"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for {
			m, err := r.Next()
			if err != nil {
				return
			}
			again, err := NewReader(bytes.NewReader(Append(nil, &m))).Next()
			if err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("%+v is read back as %+v (%v)", m, again, err)
			}
		}
	})
}

// A process of the user's says what it likes; the agent that passes it on lives.
func TestFramesThatDoNotFit(t *testing.T) {
	b := Append(nil, &Message{Kind: Frame, Frame: plan.Frame{Number: 1, Started: &plan.TaskPIDs{Ranks: []uint32{1, 2, 3}, PIDs: []int32{7}}}})
	m, err := NewReader(bytes.NewReader(b)).Next()
	if err != nil || !reflect.DeepEqual(m.Frame.Started, &plan.TaskPIDs{Ranks: []uint32{1}, PIDs: []int32{7}}) {
		t.Errorf("%+v: %v", m.Frame.Started, err)
	}
}

// Who has shown no credential yet can send little.
func TestTheFirstMessageIsSmall(t *testing.T) {
	for _, c := range []struct {
		size int
		want error
	}{{MaxOpen / 2, nil}, {MaxOpen, ErrMessage}} {
		b := Append(nil, &Message{Kind: Open, Credential: make([]byte, c.size)})
		if _, err := NewReader(bytes.NewReader(b)).First(); !errors.Is(err, c.want) {
			t.Errorf("a credential of %d bytes: %v, want %v", c.size, err, c.want)
		}
		if _, err := NewReader(bytes.NewReader(b)).Next(); err != nil {
			t.Errorf("a later message of %d bytes: %v", c.size, err)
		}
	}
}
