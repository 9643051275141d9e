package render

import (
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

func filterView() *JobView { return &JobView{Env: &tool.Env{}} }

// TestJobFilter: what a filter keeps.
func TestJobFilter(t *testing.T) {
	jobs := []*apiv1.JobInfo{
		{JobId: 1, User: "alice", Partition: "gpu,cpu", State: uint32(spec.Pending), Hold: 1, Reason: &apiv1.Reason{Code: "JobHeldUser"}, Spec: &apiv1.JobSpec{Name: "train big", Account: "ml"}},
		{JobId: 2, User: "bob", Partition: "cpu", State: uint32(spec.Running), Nodes: "n[1-3]", Spec: &apiv1.JobSpec{Name: "post", Account: "ml"}},
		{JobId: 30, User: "bob", Partition: "gpu", State: uint32(spec.Completed), Spec: &apiv1.JobSpec{Name: "alice", Account: "bio"}, ReqTres: &apiv1.Tres{Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 2}}}},
	}
	for _, tt := range []struct {
		text string
		want []uint32
	}{
		{"", []uint32{1, 2, 30}}, {"alice", []uint32{1, 30}}, {"user:alice", []uint32{1}}, {"-user:alice", []uint32{2, 30}}, {"user:ALICE,bob account:ml", []uint32{1, 2}},
		{"partition:cpu", []uint32{1, 2}}, {"state:r,pd", []uint32{1, 2}}, {"is:held", []uint32{1}}, {"is:over", []uint32{30}}, {"node:n2", []uint32{2}}, {"job:30", []uint32{30}},
		{`name:"train big"`, []uint32{1}}, {"is:gpu", []uint32{30}}, {"reason:jobhelduser", []uint32{1}}, {"unknown:key", nil}, {"user:", nil}, {`"`, []uint32{1, 2, 30}},
	} {
		var got []uint32
		f := ParseJobFilter(tt.text)
		for _, j := range jobs {
			if f.Matches(j, filterView()) {
				got = append(got, j.GetJobId())
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q keeps %v, want %v", tt.text, got, tt.want)
		}
	}
}

// FuzzJobFilter: any text is a filter, and a value that is quoted for a link is
// one term again.
func FuzzJobFilter(f *testing.F) {
	f.Add("user:alice -state:pd \"a b\"")
	f.Fuzz(func(t *testing.T, text string) {
		ParseJobFilter(text).Matches(&apiv1.JobInfo{JobId: 1}, filterView())
		value := strings.ReplaceAll(text, `"`, "")
		if value = strings.TrimSpace(value); value != "" {
			if parts := splitQuoted("user:" + QuotedTerm(value)); len(parts) != 1 || parts[0] != "user:"+value {
				t.Errorf("%q becomes %q", value, parts)
			}
		}
	})
}
