package wire

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// fill gives every field of a message a value, a zero one now and then.
func fill(t *rapid.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if rapid.IntRange(0, 3).Draw(t, "skip") == 0 {
			continue
		}
		switch {
		case f.IsList():
			l := m.Mutable(f).List()
			for range rapid.IntRange(0, 3).Draw(t, "elements") {
				if f.Kind() == protoreflect.MessageKind {
					fill(t, l.AppendMutable().Message())
				} else {
					l.Append(value(t, f))
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			fill(t, m.Mutable(f).Message())
		default:
			m.Set(f, value(t, f))
		}
	}
}

func value(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.String().Draw(t, "text"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "flag"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(0, 2).Draw(t, "enum")))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	}
	t.Fatalf("%s is of a kind that nothing here can write: %s", f.FullName(), f.Kind())
	return protoreflect.Value{}
}

func TestSubmissionIsTheBytesOfProtobuf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &apiv1.SubmitRequest{}
		fill(t, m.ProtoReflect())
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := AppendSubmitRequest([]byte("before"), m)
		if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Fatalf("%v\nhave %x\nwant %x", err, got[6:], want)
		}
	})
}

func TestReplyIsReadAsProtobufReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, got := &apiv1.SubmitReply{}, &apiv1.SubmitReply{}
		fill(t, m.ProtoReflect())
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := ParseSubmitReply(b, got); err != nil || !proto.Equal(m, got) {
			t.Fatalf("%v\nhave %v\nwant %v", err, got, m)
		}
		cut := b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]
		want := proto.Unmarshal(cut, &apiv1.SubmitReply{})
		if err := ParseSubmitReply(cut, &apiv1.SubmitReply{}); (err == nil) != (want == nil) {
			t.Fatalf("cut to %d of %d bytes: %v, protobuf says %v", len(cut), len(b), err, want)
		}
	})
}

func TestTextThatIsNotUTF8IsRefusedHere(t *testing.T) {
	for _, m := range []*apiv1.SubmitRequest{
		{Spec: &apiv1.JobSpec{Comment: "\xff"}},
		{Spec: &apiv1.JobSpec{Args: []string{"ok", "a\xc0b"}}},
		{Spec: &apiv1.JobSpec{PerNode: []*apiv1.Count{{Name: "\x80"}}}},
	} {
		if _, err := AppendSubmitRequest(nil, m); !errors.Is(err, ErrNotUTF8) {
			t.Errorf("%v: %v", m, err)
		}
		if _, err := proto.Marshal(m); err == nil {
			t.Errorf("%v: protobuf takes it", m)
		}
	}
}

func BenchmarkAppendSubmitRequest(b *testing.B) {
	m := &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "a", Tasks: 1, WorkDir: "/home/alice", Stdout: "/dev/null"},
		Script: &apiv1.Blob{Data: make([]byte, 4096)}, Environment: &apiv1.Blob{Data: make([]byte, 8192)}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := AppendSubmitRequest(nil, m); err != nil {
			b.Fatal(err)
		}
	}
}
