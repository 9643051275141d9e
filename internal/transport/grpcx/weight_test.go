package grpcx

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

func encodedMessage(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestExceeds: what counts is the number of values, at any depth, and not the
// size of one.
func TestExceeds(t *testing.T) {
	for name, c := range map[string]struct {
		m    proto.Message
		most int
		want bool
	}{
		"a large script":      {&apiv1.SubmitRequest{Script: &apiv1.Blob{Data: make([]byte, 4<<20)}}, 10, false},
		"many empty texts":    {&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: make([]string, 50_000)}}, 49_000, true},
		"as many as allowed":  {&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: make([]string, 50_000)}}, 50_001, false},
		"many empty messages": {&apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Array: empties(50_000)}}, 40_000, true},
		"a small message":     {&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: make([]string, 100)}}, 10, false},
	} {
		empty := c.m.ProtoReflect().New().Interface()
		if got := exceedsValues(encodedMessage(t, c.m), empty, c.most); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func empties(n int) []*apiv1.TaskRange {
	out := make([]*apiv1.TaskRange, n)
	for i := range out {
		out[i] = &apiv1.TaskRange{}
	}
	return out
}

// TestExceedsReadsAnything: bytes of no meaning neither break it nor count more
// than they are.
func TestExceedsReadsAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bytes")
		left := len(data) + 1
		countValues(data, (&apiv1.SubmitRequest{}).ProtoReflect().Descriptor(), &left, maxDepth)
		if left < 0 {
			t.Fatalf("%d bytes have more than %d values", len(data), len(data)+1)
		}
	})
}
