package daemon

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// hostile fills a message with extremes and with what is nearly right.
func hostile(t *rapid.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, fields.Len()-1), 0, 5).Draw(t, "fields") {
		f := fields.Get(i)
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			list := m.Mutable(f).List()
			for range rapid.IntRange(1, 3).Draw(t, "len") {
				hostile(t, list.AppendMutable().Message())
			}
		case f.IsList():
			m.Mutable(f).List().Append(extreme(t, f))
		case f.Message() != nil:
			hostile(t, m.Mutable(f).Message())
		default:
			m.Set(f, extreme(t, f))
		}
	}
}

func extreme(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	ints := []int64{-1, 0, 1, 2, 3, 8, 9, 64, 65535, 1 << 20, 1 << 24, math.MaxInt32, math.MaxUint32, 1 << 40, math.MaxInt64, math.MinInt64}
	if rapid.Bool().Draw(t, "modest") {
		ints = []int64{0, 1, 2, 3, 8, 9, 64, int64(spec.Minute)}
	}
	words := []string{"", "gpu", "gpu:a100", "n1", "n[1-2]", "n[1-999999999]", "afterok:1", "afterany:4294967295", "normal", "root", "alice", "a b\n", "%99999999j"}
	n := rapid.SampledFrom(ints).Draw(t, string(f.Name()))
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 == 1)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(n)))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.SampledFrom(words).Draw(t, string(f.Name())))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{1})
	}
	t.Fatalf("field %s is of a kind this test does not know", f.FullName())
	return protoreflect.Value{}
}

// survive submits a message, runs two passes, and shows the job: whatever was
// asked for, it is refused or it does no harm.
func survive(t interface{ Fatalf(string, ...any) }, base *state.State, m *apiv1.JobSpec) (accepted bool) {
	js, err := wire.ToJobSpec(m)
	if err != nil {
		if spec.CodeOf(err) == 0 {
			t.Fatalf("read as %v", err)
		}
		return false
	}
	js.User, js.UID, js.GID = "alice", 1000, 1000
	js.Script = spec.Hash{1}
	now := base.At.Add(spec.Second)
	s := base.Fork()
	tr := trial.On(s, now, event.Actor{Kind: event.ActorUser, UID: 1000, Name: "alice"}, "")
	res, err := scheduler.Decide(tr, scheduler.Submit{Spec: js})
	if err != nil {
		if spec.CodeOf(err) == 0 {
			t.Fatalf("%v\n%v", err, m)
		}
		return false
	}
	for range 2 {
		frozen := s.Freeze()
		out, err := scheduler.Pass(frozen, now, scheduler.PassOptions{Starts: 100})
		if err != nil {
			t.Fatalf("pass: %v\n%v", err, m)
		}
		if _, err := scheduler.Decide(tr, scheduler.Starts{Proposal: &out.Proposal}); err != nil {
			t.Fatalf("starts: %v\n%v", err, m)
		}
		if err := s.Check(); err != nil {
			t.Fatalf("%v\n%v", err, m)
		}
		tr.Now = tr.Now.Add(spec.Minute)
	}
	if _, err := scheduler.Decide(tr, scheduler.Tick{}); err != nil {
		t.Fatalf("tick: %v\n%v", err, m)
	}
	j := s.Job(res.UID)
	if j == nil {
		return true
	}
	for _, n := range [...]int64{j.Req.CPU, j.Req.Mem, j.Req.Node, j.Req.Billing} {
		if n < 0 {
			t.Fatalf("asks for %+v\n%v", j.Req, m)
		}
	}
	return true
}

func readyState(t testing.TB) *state.State {
	w := startWith(t, 1)
	w.register("n1", "n2")
	w.submit(&apiv1.JobSpec{Name: "first"})
	w.submit(&apiv1.JobSpec{Name: "held", Hold: true})
	return w.c.View().State
}

func TestHostileSubmissionsDoNoHarm(t *testing.T) {
	base := readyState(t)
	accepted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := &apiv1.JobSpec{}
		hostile(t, m.ProtoReflect())
		if survive(t, base, m) {
			accepted++
		} else {
			refused++
		}
	})
	if accepted == 0 || refused == 0 {
		t.Errorf("%d accepted, %d refused: the test shows nothing", accepted, refused)
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
}

func FuzzSubmission(f *testing.F) {
	base := readyState(f)
	for _, m := range []*apiv1.JobSpec{
		{Name: "a", Tasks: 4, CpusPerTask: 2, MemPerCpu: 100, TimeLimit: int64(spec.Hour)},
		{PerNode: []*apiv1.Count{{Name: "gpu", N: 1}}, MinNodes: 2, MaxNodes: 2, Array: []*apiv1.TaskRange{{First: 0, Last: 9, Step: 3}}, ArrayThrottle: 2},
		{Dependency: "afterok:1,singleton", Begin: 1 << 60, Nodes: "n1", Exclude: "n2"},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &apiv1.JobSpec{}
		if proto.Unmarshal(data, m) == nil {
			survive(t, base, m)
		}
	})
}
