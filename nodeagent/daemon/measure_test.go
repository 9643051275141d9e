package daemon

import (
	"slices"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

func (s *fakeStream) measured() (out []*apiv1.Measured) {
	for _, m := range s.said {
		if k := m.GetMeasured(); k != nil {
			out = append(out, k)
		}
	}
	return out
}

// The agent answers with the runs of the attempts that live here, each with
// what it has used so far, and with nothing for others.
func TestMeasureAnswersWithWhatLives(t *testing.T) {
	s := newStage(t)
	s.shep.alive[key(4)] = true
	s.shep.alive[key(5)] = true
	s.start()
	st := s.stream(1)
	st.welcome(testCluster, key(4), key(5))
	s.until(func() bool { return slices.Equal(s.tele.connected, []bool{true}) })
	ask := func(n uint64, keys ...*apiv1.RunKey) *apiv1.Measured {
		st.in <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Measure{Measure: &apiv1.Measure{Ask: n, Attempts: keys}}}
		s.until(func() bool { return len(st.measured()) > 0 && st.measured()[len(st.measured())-1].GetAsk() == n })
		var out *apiv1.Measured
		s.do(func() { out = st.measured()[len(st.measured())-1] })
		return out
	}
	old := wireKey(key(4))
	old.Attempt++
	got := ask(1, wireKey(key(4)), wireKey(key(77)))
	if len(got.GetRuns()) != 1 {
		t.Fatalf("%v", got)
	}
	m := got.GetRuns()[0]
	if u := m.GetUsage(); m.GetRun().GetJobUid() != 4 || m.GetRss() != 3<<20 || u.GetPeakRss() != 5<<20 || !u.GetHasRss() || m.GetVm() != 7<<20 || m.GetPeakVm() != 9<<20 || !m.GetHasVm() ||
		u.GetUserCpu() != int64(spec.Second) || !slices.Equal(m.GetPids(), []int32{11, 12}) || m.GetAt() != int64(s.clock.Now()) {
		t.Errorf("%v", m)
	}
	if got := ask(2, old, wireKey(key(77))); len(got.GetRuns()) != 0 {
		t.Errorf("of other attempts: %v", got)
	}
	s.exit(key(5), 0)
	s.sync()
	if got := ask(3, wireKey(key(5))); len(got.GetRuns()) != 0 {
		t.Errorf("of a run that is over: %v", got)
	}
}
