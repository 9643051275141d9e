package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
)

func TestLaunchSurvivesTheWire(t *testing.T) {
	in := Launch{Runs: []plan.RunSpec{{Key: plan.Key(7, 1, plan.StepBatch), JobID: 42, UID: 1000, Groups: []uint32{4, 5},
		Script: []byte("#!/bin/sh\n"), Env: []string{"A=b"}, Rlimits: []plan.Rlimit{{Resource: 7, Soft: 1, Hard: plan.RlimitKeep}},
		Limits: plan.Limits{MemoryBytes: 1 << 30, SwapBytes: plan.NoSwap}}}}
	frame, err := Encode(Message{ID: 9, Op: OpLaunch}, in)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(append(frame, frame...)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := r.Next()
		if err != nil || m.ID != 9 || m.Op != OpLaunch {
			t.Fatalf("%+v, %v", m, err)
		}
		var out Launch
		if err := r.Decode(m, &out); err != nil || !reflect.DeepEqual(in, out) {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestErrorsCompareByCode(t *testing.T) {
	err := fmt.Errorf("signal: %w", &Error{Code: CodeNotFound, Text: "no run 1.0.batch"})
	if !errors.Is(err, ErrNotFound) || errors.Is(&Error{Code: CodeInternal, Text: "x"}, ErrNotFound) {
		t.Error("codes are not compared")
	}
}

func TestWriterKeepsOrderAndReportsABrokenPipe(t *testing.T) {
	pr, pw := io.Pipe()
	w := NewWriter(pw)
	go func() {
		for i := range 100 {
			_ = w.Send([]byte{byte(i)})
		}
		w.Close()
		_ = pw.Close()
	}()
	got, err := io.ReadAll(pr)
	if err != nil || len(got) != 100 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for i, b := range got {
		if int(b) != i {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	_, pw2 := io.Pipe()
	_ = pw2.CloseWithError(io.ErrClosedPipe)
	broken := NewWriter(pw2)
	for broken.Send([]byte("x")) == nil {
	}
	broken.Close()
}

func FuzzReader(f *testing.F) {
	frame, _ := Encode(Message{ID: 1, Op: OpAck}, Keys{Keys: []plan.RunKey{plan.Key(1, 2, 3)}})
	f.Add(frame)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := r.Next()
			if err != nil {
				return
			}
			var k Keys
			var l Launch
			_ = r.Decode(m, &k)
			_ = r.Decode(m, &l)
		}
	})
}
