package plan

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

func kinds(list []Action) []ActionKind {
	var out []ActionKind
	for _, a := range list {
		out = append(out, a.Kind)
	}
	return out
}

func TestStepCases(t *testing.T) {
	k := Key(1, 0, StepBatch)
	exit := &Exit{Key: k, Code: 3}
	running, exited := Observed{Key: k, State: Running}, Observed{Key: k, State: Exited, Exit: exit}
	killing := running
	killing.TermUntil = 500
	for _, c := range []struct {
		name string
		prep func(*Memory)
		in   Input
		pol  Policy
		want []ActionKind
	}{
		{"new wish", nil, Input{Up: true, Wishes: []Wish{{Key: k}}}, Policy{}, []ActionKind{DoLaunch}},
		{"the shepherd is down", nil, Input{Wishes: []Wish{{Key: k}}}, Policy{}, nil},
		{"begun and unknown: lost", nil, Input{Up: true, Wishes: []Wish{{Key: k, Begun: true}}}, Policy{}, []ActionKind{ReportMissing}},
		{"accepted and unknown: lost", func(m *Memory) { m.Launched(LaunchResult{Key: k, Status: Accepted}) },
			Input{Up: true, Wishes: []Wish{{Key: k}}}, Policy{}, []ActionKind{ReportMissing}},
		{"refused: again", func(m *Memory) { m.Launched(LaunchResult{Key: k, Status: Refused}) },
			Input{Up: true, Wishes: []Wish{{Key: k}}}, Policy{}, []ActionKind{DoLaunch}},
		{"ended long ago: a stale wish", func(m *Memory) { m.Launched(LaunchResult{Key: k, Status: Ended}) },
			Input{Up: true, Wishes: []Wish{{Key: k}}}, Policy{}, []ActionKind{ReportMissing}},
		{"running as wished", nil, Input{Up: true, Wishes: []Wish{{Key: k}}, Observed: []Observed{running}}, Policy{}, []ActionKind{ReportStarted}},
		{"to be stopped", nil, Input{Up: true, Wishes: []Wish{{Key: k, Stop: true}}, Observed: []Observed{running}}, Policy{}, []ActionKind{ReportStarted, DoTerminate}},
		{"being stopped in time", nil, Input{Up: true, Wishes: []Wish{{Key: k, Stop: true, Grace: 600}}, Observed: []Observed{killing}}, Policy{}, []ActionKind{ReportStarted}},
		{"being stopped too late", nil, Input{Up: true, Wishes: []Wish{{Key: k, Stop: true, Grace: 400}}, Observed: []Observed{killing}}, Policy{}, []ActionKind{ReportStarted, DoTerminate}},
		{"stop what is not there", nil, Input{Up: true, Wishes: []Wish{{Key: k, Stop: true}}}, Policy{}, []ActionKind{ReportMissing}},
		{"exit", nil, Input{Up: true, Observed: []Observed{exited}}, Policy{}, []ActionKind{ReportExit}},
		{"exit confirmed", func(m *Memory) { m.Confirmed(k) }, Input{Up: true, Observed: []Observed{exited}}, Policy{}, []ActionKind{DoAck}},
		{"stranger, list incomplete", nil, Input{Up: true, Observed: []Observed{running}}, Policy{KillOrphans: true}, nil},
		{"stranger", nil, Input{Up: true, Complete: true, Observed: []Observed{running}}, Policy{}, []ActionKind{ReportOrphan}},
		{"stranger, at once", nil, Input{Up: true, Complete: true, Observed: []Observed{running}}, Policy{KillOrphans: true}, []ActionKind{ReportOrphan, DoTerminate}},
		{"an earlier attempt of what is desired, at once", nil, Input{Up: true, Complete: true, Wishes: []Wish{{Key: Key(k.Job, k.Attempt+1, k.Step)}}, Observed: []Observed{running}},
			Policy{KillOrphans: true, OrphanAfter: 10, OrphanGrace: 900}, []ActionKind{ReportOrphan, DoTerminate, DoLaunch}},
		{"a stranger beside what is desired, not yet", nil, Input{Up: true, Complete: true, Wishes: []Wish{{Key: Key(k.Job+1, k.Attempt+1, k.Step)}}, Observed: []Observed{running}},
			Policy{KillOrphans: true, OrphanAfter: 10, OrphanGrace: 900}, []ActionKind{ReportOrphan, DoLaunch}},
		{"stranger, not yet", nil, Input{Up: true, Complete: true, Observed: []Observed{running}}, Policy{KillOrphans: true, OrphanAfter: 10}, []ActionKind{ReportOrphan}},
	} {
		var m Memory
		if c.prep != nil {
			c.prep(&m)
		}
		if got := kinds(m.Step(c.in, c.pol)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		for _, a := range m.Step(c.in, c.pol) {
			switch a.Kind {
			case ReportStarted, ReportExit, ReportMissing, ReportOrphan:
				t.Errorf("%s: %v is reported twice on one connection", c.name, a.Kind)
			default:
			}
		}
	}
}

// world is a controller, a network, an agent and a shepherd, each simple
// enough to be obviously right, around the real Memory.
type world struct {
	now     spec.Instant
	stream  uint64
	up      bool
	mem     Memory
	wishes  map[RunKey]*Wish
	shep    map[RunKey]*Observed
	tomb    map[RunKey]bool
	begun   map[RunKey]int  // how often a process was really started
	recExit map[RunKey]bool // exits the controller has
	missing map[RunKey]bool // runs the controller was told are missing
	owed    map[RunKey]bool // exits that exist and are not acknowledged
}

func newWorld() *world {
	return &world{up: true, wishes: map[RunKey]*Wish{}, shep: map[RunKey]*Observed{}, tomb: map[RunKey]bool{}, begun: map[RunKey]int{},
		recExit: map[RunKey]bool{}, missing: map[RunKey]bool{}, owed: map[RunKey]bool{}}
}

func sorted[V any](m map[RunKey]V) []RunKey {
	var out []RunKey
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, RunKey.Compare)
	return out
}

// step runs the agent once; lose drops an action on its way, or its answer.
func (w *world) step(t *rapid.T, complete bool, pol Policy, lose func() bool) int {
	in := Input{Now: w.now, Stream: w.stream, Complete: complete, Up: w.up}
	for _, k := range sorted(w.wishes) {
		in.Wishes = append(in.Wishes, *w.wishes[k])
	}
	for _, k := range sorted(w.shep) {
		in.Observed = append(in.Observed, *w.shep[k])
	}
	actions := w.mem.Step(in, pol)
	for _, a := range actions {
		if lose() {
			continue
		}
		switch a.Kind {
		case DoLaunch:
			w.launch(t, a.Key, lose)
		case DoTerminate:
			if o := w.shep[a.Key]; o != nil && o.State != Exited {
				o.TermUntil = w.now.Add(a.Grace)
				w.end(a.Key, None)
			}
		case ReportStarted:
			if x := w.wishes[a.Key]; x != nil {
				x.Begun = true
			}
		case ReportExit:
			w.recExit[a.Key] = true
			delete(w.wishes, a.Key)
			if !lose() {
				w.mem.Confirmed(a.Key)
			}
		case ReportMissing:
			w.missing[a.Key] = true
			delete(w.wishes, a.Key)
		case DoAck:
			if !w.recExit[a.Key] {
				t.Fatalf("%v is acknowledged, and the controller does not have its exit", a.Key)
			}
			if o := w.shep[a.Key]; o != nil && o.State == Exited {
				delete(w.shep, a.Key)
				delete(w.owed, a.Key)
				w.tomb[a.Key] = true
			}
		case ReportOrphan:
		}
	}
	return len(actions)
}

func (w *world) launch(t *rapid.T, k RunKey, lose func() bool) {
	if w.missing[k] {
		t.Fatalf("%v was reported as missing and is launched now", k)
	}
	if x := w.wishes[k]; x == nil || x.Begun || x.Stop {
		t.Fatalf("%v is launched against the wish %+v", k, x)
	}
	res := LaunchResult{Key: k, Status: Accepted}
	switch {
	case w.shep[k] != nil:
		res.Status = Known
	case w.tomb[k]:
		res.Status = Ended
	default:
		w.begun[k]++
		w.shep[k] = &Observed{Key: k, State: Running, Start: w.now}
	}
	if !lose() {
		w.mem.Launched(res)
	}
}

func (w *world) end(k RunKey, f Failure) {
	w.shep[k].State, w.shep[k].Exit = Exited, &Exit{Key: k, Failure: f}
	w.owed[k] = true
}

func TestRunsStartOnceAndExitsArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		next := uint64(0)
		pick := func(label string, from []RunKey) (RunKey, bool) {
			if len(from) == 0 {
				return RunKey{}, false
			}
			return rapid.SampledFrom(from).Draw(t, label), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"wish": func(*rapid.T) { next++; w.wishes[Key(next, 0, StepBatch)] = &Wish{Key: Key(next, 0, StepBatch)} },
			"stop": func(*rapid.T) {
				if k, ok := pick("stop", sorted(w.wishes)); ok {
					w.wishes[k].Stop = true
				}
			},
			"controller forgets": func(*rapid.T) {
				if k, ok := pick("forget", sorted(w.wishes)); ok {
					delete(w.wishes, k)
				}
			},
			"job ends": func(*rapid.T) {
				if k, ok := pick("end", sorted(w.shep)); ok && w.shep[k].State != Exited {
					w.end(k, None)
				}
			},
			"shepherd restarts": func(t *rapid.T) {
				for _, k := range sorted(w.shep) {
					w.shep[k].TermUntil = 0
					if w.shep[k].State != Exited && rapid.Bool().Draw(t, "lost") {
						w.end(k, Lost)
					}
				}
			},
			"shepherd loses its folder": func(*rapid.T) {
				for _, k := range sorted(w.shep) {
					// What the controller does not know yet is beyond repair.
					if x := w.wishes[k]; x != nil && x.Begun {
						delete(w.shep, k)
						delete(w.owed, k)
					}
				}
			},
			"shepherd down":      func(t *rapid.T) { w.up = rapid.Bool().Draw(t, "up") },
			"agent restarts":     func(*rapid.T) { w.mem = Memory{}; w.stream++ },
			"controller returns": func(*rapid.T) { w.stream++ },
			"time":               func(*rapid.T) { w.now += 7 },
			"step": func(t *rapid.T) {
				w.step(t, rapid.Bool().Draw(t, "complete"), Policy{KillOrphans: true, OrphanAfter: 20},
					func() bool { return rapid.IntRange(0, 4).Draw(t, "lose") == 0 })
			},
			"": func(t *rapid.T) {
				for k, n := range w.begun {
					if n > 1 {
						t.Fatalf("%v was started %d times", k, n)
					}
				}
			},
		})
		// The faults end: everything must become idle, and every exit arrive.
		w.up = true
		w.stream++
		for i := 0; ; i++ {
			w.now += 100
			if n := w.step(t, true, Policy{KillOrphans: true, OrphanAfter: 20}, func() bool { return false }); n == 0 {
				break
			}
			if i > 20 {
				t.Fatal("the agent did not become idle")
			}
		}
		if len(w.owed) > 0 {
			t.Fatalf("exits never arrived: %v", sorted(w.owed))
		}
		for _, k := range sorted(w.shep) {
			if w.wishes[k] == nil {
				t.Fatalf("%v runs and nobody wants it", k)
			}
		}
		for _, k := range sorted(w.wishes) {
			if w.shep[k] == nil {
				t.Fatalf("%v is desired and does not run", k)
			}
		}
	})
}

func TestStepDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in Input
		in.Up, in.Complete = true, rapid.Bool().Draw(t, "complete")
		for i := range rapid.IntRange(0, 12).Draw(t, "runs") {
			k := Key(uint64(i/2), 0, int32(i%2))
			if rapid.Bool().Draw(t, "wished") {
				in.Wishes = append(in.Wishes, Wish{Key: k, Stop: rapid.Bool().Draw(t, "stop"), Begun: rapid.Bool().Draw(t, "begun")})
			}
			if rapid.Bool().Draw(t, "there") {
				o := Observed{Key: k, State: rapid.SampledFrom([]State{Starting, Running, Ending, Exited}).Draw(t, "state")}
				if o.State == Exited {
					o.Exit = &Exit{Key: k}
				}
				in.Observed = append(in.Observed, o)
			}
		}
		var a, b Memory
		first := a.Step(in, Policy{KillOrphans: true})
		slices.Reverse(in.Wishes)
		slices.Reverse(in.Observed)
		if second := b.Step(in, Policy{KillOrphans: true}); !reflect.DeepEqual(first, second) {
			t.Fatalf("%+v\n%+v", first, second)
		}
	})
}

func TestRunKeysReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := Key(rapid.Uint64().Draw(t, "job"), rapid.Uint32().Draw(t, "attempt"), rapid.Int32().Draw(t, "step"))
		k.Epoch = rapid.Uint64().Draw(t, "epoch")
		if back, err := ParseRunKey(k.String()); err != nil || back != k {
			t.Fatalf("%v: %v, %v", k, back, err)
		}
		encoded, err := cbor.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		var back RunKey
		if err := cbor.Unmarshal(encoded, &back); err != nil || back != k {
			t.Fatalf("%v: %x is read as %v, %v", k, encoded, back, err)
		}
	})
	for _, bad := range []string{"", "1", "1.2", "1.2.3.x", "1.2.3.0", "1.2.3.4.5", "x.0.0", "1.-1.0", "1.0.bat"} {
		if _, err := ParseRunKey(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestRunKeysOfOlderReleases: a key without an epoch is written as releases
// before epochs wrote and read it, so that their shepherds and journals go on.
func TestRunKeysOfOlderReleases(t *testing.T) {
	type old struct {
		_       struct{} `cbor:",toarray"`
		Job     uint64
		Attempt uint32
		Step    int32
	}
	before, err := cbor.Marshal(old{Job: 7, Attempt: 2, Step: StepBatch})
	if err != nil {
		t.Fatal(err)
	}
	now, err := cbor.Marshal(Key(7, 2, StepBatch))
	if err != nil || !bytes.Equal(before, now) {
		t.Errorf("%x is not %x: %v", now, before, err)
	}
	var back RunKey
	if err := cbor.Unmarshal(before, &back); err != nil || back != Key(7, 2, StepBatch) {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range [][]byte{{0x80}, {0x82, 1, 2}, {0x83, 1, 0x1b, 1, 0, 0, 0, 0, 0, 0, 0, 1}, {0x85, 1, 1, 1, 1, 1}, {0x60}} {
		if err := cbor.Unmarshal(bad, &back); err == nil {
			t.Errorf("%x was read as %v", bad, back)
		}
	}
}
