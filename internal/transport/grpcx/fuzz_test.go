package grpcx

import (
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// FuzzCount: a message that protobuf reads has no more elements than were
// counted.
func FuzzCount(f *testing.F) {
	seed, err := proto.Marshal(&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: []string{"1", "", "2"}, States: []uint32{1, 2, 300}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var m apiv1.ListJobsRequest
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		const most = 1 << 30
		left := most
		countValues(data, m.ProtoReflect().Descriptor(), &left, maxDepth)
		texts := len(m.GetFilter().GetJobs()) + len(m.GetFilter().GetUsers()) + len(m.GetFilter().GetNames())
		if counted := most - left; counted < texts {
			t.Fatalf("%d texts, %d values counted in %x", texts, counted, data)
		}
	})
}
