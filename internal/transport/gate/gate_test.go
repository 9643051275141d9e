package gate_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/gate"
)

// TestAgain: of a call whose answer was lost nobody knows whether it was carried out. What only looks is asked again, a submission
// with a number says that it is repeated, and nothing else is sent twice.
func TestAgain(t *testing.T) {
	submission := func(number uint64) []byte {
		b, err := proto.Marshal(&apiv1.SubmitRequest{Request: number, Spec: &apiv1.JobSpec{Name: "j"}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		method  string
		payload []byte
		want    bool
	}{
		{"/muster.v1.Cluster/ListJobs", nil, true},
		{"/muster.v1.Cluster/WatchJob", nil, true},
		{"/muster.v1.Cluster/Cancel", nil, false},
		{"/muster.v1.Cluster/ControlJobs", nil, false},
		{"/muster.v1.Cluster/Submit", submission(0), false},
		{"/muster.v1.Cluster/Submit", submission(7), true},
		{"/muster.v1.Cluster/Submit", []byte{0xff}, false},
		{"/muster.v1.Shell/Sbatch", nil, false},
		{"/muster.v1.Nothing/There", nil, false},
		{"", nil, false},
	} {
		again, ok := gate.Again(c.method, c.payload)
		if ok != c.want {
			t.Errorf("%s may be repeated: %v, want %v", c.method, ok, c.want)
		}
		if c.method == "/muster.v1.Cluster/Submit" && ok {
			var req apiv1.SubmitRequest
			if err := proto.Unmarshal(again, &req); err != nil || !req.GetAgain() || req.GetRequest() != 7 || req.GetSpec().GetName() != "j" {
				t.Errorf("the submission is repeated as %v (%v)", &req, err)
			}
		}
	}
}
