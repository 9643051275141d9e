package slurmconf

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// TestChangeScheduler: a changed option stands where it was, a new one at the
// end, everything else stays, and the configuration it came from does too.
func TestChangeScheduler(t *testing.T) {
	c := &spec.Config{ClusterName: "c"}
	c.Sched = spec.SchedConfig{Firm: 1, PackMix: true, Params: []string{"pack_mix", "bf_firm=1", "bf_resolution=60"}}
	got, err := ChangeScheduler(c, []spec.KeyValue{{Key: "BF_Firm", Value: "3"}, {Key: "bf_promise", Value: "prediction"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pack_mix", "BF_Firm=3", "bf_resolution=60", "bf_promise=prediction"}
	if !slices.Equal(got.Sched.Params, want) {
		t.Errorf("the line is %q, want %q", got.Sched.Params, want)
	}
	if s := got.Sched; s.Firm != 3 || !s.PredictRuns || !s.PackMix || s.BFResolution != spec.Minute || got.ClusterName != "c" {
		t.Errorf("%+v", s)
	}
	if c.Sched.Firm != 1 || c.Sched.PredictRuns || c.Sched.Params[1] != "bf_firm=1" {
		t.Errorf("the configuration it came from was changed: %+v", c.Sched)
	}
	for _, bad := range []struct {
		set  []spec.KeyValue
		want string
	}{
		{[]spec.KeyValue{{Key: "bf_frim", Value: "1"}}, "bf_firm"},
		{[]spec.KeyValue{{Key: "bf_window", Value: "1"}}, "bf_window"},
		{[]spec.KeyValue{{Key: "bf_firm", Value: "x"}}, "whole number"},
		{[]spec.KeyValue{{Key: "bf_firm", Value: "1"}, {Key: "bf_firm", Value: "2"}}, "given twice"},
	} {
		if _, err := ChangeScheduler(c, bad.set); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v: %v, want %q", bad.set, err, bad.want)
		}
	}
}
