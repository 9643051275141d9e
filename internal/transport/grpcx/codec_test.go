package grpcx

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

func request(script, env string) *apiv1.SubmitRequest {
	return &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "train", Tasks: 3}, Script: &apiv1.Blob{Data: []byte(script)},
		Environment: &apiv1.Blob{Data: []byte(env)}, TestOnly: true, Tag: 7, Rest: []*apiv1.JobSpec{{Name: "second"}, {Name: "third"}}}
}

func encoded(t testing.TB, m protobuf.Message) []byte {
	t.Helper()
	data, err := protobuf.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// same reads data with the codec and with protobuf and wants the same of both.
func same(t *testing.T, c *Codec, data []byte) *apiv1.SubmitRequest {
	t.Helper()
	want := &apiv1.SubmitRequest{}
	wantErr := protobuf.Unmarshal(data, want)
	got := request("left", "over") // what was there before is gone afterwards
	err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes.Clone(data))}, got)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("error %v, protobuf says %v", err, wantErr)
	}
	if err == nil && !protobuf.Equal(got, want) {
		t.Fatalf("read\n%v\nprotobuf reads\n%v", got, want)
	}
	return got
}

func TestReadsWhatProtobufReads(t *testing.T) {
	c := NewCodec()
	plain := encoded(t, request("#!/bin/sh\n", "A=1\x00"))
	script := encoded(t, &apiv1.SubmitRequest{Script: &apiv1.Blob{Data: []byte("one")}})
	other := encoded(t, &apiv1.SubmitRequest{Script: &apiv1.Blob{Sha256: []byte("two")}, Tag: 9})
	for name, data := range map[string][]byte{
		"nothing":          nil,
		"as usual":         plain,
		"by its hash":      other,
		"twice":            append(bytes.Clone(script), encoded(t, &apiv1.SubmitRequest{Script: &apiv1.Blob{Data: []byte("three")}})...),
		"merged with hash": append(bytes.Clone(script), other...),
		"hash before":      append(bytes.Clone(other), script...),
		"an unknown field": protowire.AppendString(protowire.AppendTag(bytes.Clone(plain), 900, protowire.BytesType), "of a later release"),
		"empty":            encoded(t, &apiv1.SubmitRequest{Script: &apiv1.Blob{}, Environment: &apiv1.Blob{}}),
		"large":            encoded(t, request(string(make([]byte, maxKept+1)), "x")),
		"of another type":  protowire.AppendVarint(protowire.AppendTag(nil, fieldScript, protowire.VarintType), 5),
		"a broken blob":    protowire.AppendBytes(protowire.AppendTag(nil, fieldScript, protowire.BytesType), []byte{0x0a, 0x7f}),
	} {
		t.Run(name, func(t *testing.T) {
			same(t, c, data)
			same(t, c, data)
		})
	}
	for n := range plain { // whatever a broken connection leaves
		same(t, c, plain[:n])
	}
}

func TestContentsAreKept(t *testing.T) {
	c := NewCodec()
	a, b := same(t, c, encoded(t, request("same", "first"))), same(t, c, encoded(t, request("same", "second")))
	if &a.Script.Data[0] != &b.Script.Data[0] {
		t.Error("a script that came twice is in memory twice")
	}
	if string(a.Environment.Data) != "first" || string(b.Environment.Data) != "second" {
		t.Errorf("environments %q and %q", a.Environment.Data, b.Environment.Data)
	}
}

// The buffer of a connection is used again for the next message.
func TestContentsOutliveTheBuffer(t *testing.T) {
	c, m := NewCodec(), &apiv1.SubmitRequest{}
	data := encoded(t, request("script", "env"))
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, m); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if string(m.Script.Data) != "script" || string(m.Environment.Data) != "env" || m.Spec.Name != "train" {
		t.Errorf("after the buffer was used again: %v", m)
	}
}

func FuzzReadsWhatProtobufReads(f *testing.F) {
	f.Add(encoded(f, request("#!/bin/sh\n", "A=1\x00")))
	c := NewCodec()
	f.Fuzz(func(t *testing.T, data []byte) { same(t, c, data) })
}

func BenchmarkUnmarshal(b *testing.B) {
	data := encoded(b, request(string(make([]byte, 4096)), string(make([]byte, 8192))))
	c := NewCodec()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, &apiv1.SubmitRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}
