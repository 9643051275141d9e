package daemon

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// mixedGroup is a group whose other members know versions of the ledger up to known.
type mixedGroup struct{ known atomic.Uint32 }

func (*mixedGroup) List(context.Context) *apiv1.ControllersReply { return &apiv1.ControllersReply{} }
func (*mixedGroup) Change(context.Context, *apiv1.ChangeControllersRequest) (string, error) {
	return "", errors.New("not here")
}

func (g *mixedGroup) Agree(_ context.Context, now uint32, then func(uint32) error) error {
	if g.known.Load() <= now && now < event.Version {
		return spec.Refuse(spec.CodeLedgerVersion, "upgrade b")
	}
	if v := min(g.known.Load(), event.Version); v > now {
		return then(v)
	}
	return nil
}

// startOld runs a controller on the ledger of an older release.
func startOld(t *testing.T, group Group, change func(*Deps)) *world {
	t.Helper()
	return startOldWith(t, testConfig(), group, change)
}

func startOldWith(t *testing.T, config *spec.Config, group Group, change func(*Deps)) *world {
	t.Helper()
	return startDeps(t, config, func(d *Deps) {
		d.Group = group
		d.Identify = func(context.Context) Caller { return Caller{User: "root", Admin: true} }
		if change != nil {
			change(d)
		}
		batch, err := d.Codec.Encode([]event.Envelope{{Seq: 1, At: d.Clock.Now(),
			Event: &event.ClusterCreated{UUID: [16]byte{1}, Name: "test", Version: event.Version - 1}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Log.Append(frameBatch(1, nil, batch)).Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// newerToken is a command that writes a field which came with version 2.
func newerToken(id string) scheduler.IssueUserToken {
	return scheduler.IssueUserToken{Token: event.UserTokenIssued{ID: id, User: "alice", UID: 1000, Key: "k",
		Expires: realClock{}.Now().Add(spec.Hour), Login: "https://id.example.org"}}
}

// TestNothingIsRefusedBehindARise: what waits in the queue behind the rise of the version, such as
// the end of a run with what it counted, is decided with the new version and written under it.
func TestNothingIsRefusedBehindARise(t *testing.T) {
	group := &mixedGroup{}
	group.known.Store(1)
	w := startOld(t, group, nil)
	system := event.Actor{Kind: event.ActorSystem}
	plain := newerToken("plain")
	plain.Token.Login = ""
	queue := []*request{
		{cmd: plain, actor: system, reply: make(chan reply, 1)},
		{cmd: scheduler.RaiseVersion{To: event.Version}, actor: system, reply: make(chan reply, 1)},
		{cmd: newerToken("newer"), actor: system, reply: make(chan reply, 1)},
	}
	idle := newWriter(w.c) // nobody else takes from its queue
	for _, r := range queue[1:] {
		idle.cmds <- r
	}
	if batch := idle.gatherCommands(queue[0]); !slices.Equal(batch, queue[:2]) {
		t.Fatalf("a batch of %d commands, want it to end with the rise", len(batch))
	}
	if batch := idle.gatherCommands(<-idle.cmds); !slices.Equal(batch, queue[2:]) {
		t.Errorf("a batch of %d commands, want what was behind the rise", len(batch))
	}
}

// TestNothingNewerIsWritten: while a member of the group does not know a version, a command that
// needs it is refused, what is decided with it is not, and nothing of it reaches the ledger.
func TestNothingNewerIsWritten(t *testing.T) {
	group := &mixedGroup{}
	group.known.Store(1)
	w := startOld(t, group, nil)
	ctx := context.Background()
	system := event.Actor{Kind: event.ActorSystem}
	plain := newerToken("plain")
	plain.Token.Login = ""
	requests := []*request{
		{cmd: plain, actor: system, reply: make(chan reply, 1)},
		{cmd: newerToken("newer"), actor: system, reply: make(chan reply, 1)},
		{cmd: scheduler.Policy{Events: []event.Event{&event.AccountPut{Account: spec.Account{Name: "a"}}}}, actor: system, reply: make(chan reply, 1)},
	}
	for _, r := range requests {
		if err := w.c.writer.enqueueCommand(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range requests {
		err := w.c.writer.awaitReply(ctx, r).err
		if i == 1 && spec.CodeOf(err) != spec.CodeLedgerVersion || i != 1 && err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	st := w.c.View().State
	if len(st.Access.Users) != 1 || st.Version != 1 {
		t.Errorf("%d tokens at version %d, want one at 1", len(st.Access.Users), st.Version)
	}
	raise := &apiv1.ChangeControllersRequest{RaiseLedger: true}
	if _, err := w.svc.ChangeControllers(ctx, raise); spec.CodeOf(err) != spec.CodeLedgerVersion {
		t.Errorf("raised while a member is older: %v", err)
	}
	list, err := w.svc.ListControllers(ctx, &apiv1.ControllersRequest{})
	if err != nil || list.GetLedgerVersion() != 1 || list.GetLedgerNewest() != event.Version || list.GetRaiseWaits() == "" {
		t.Errorf("the list says %v (%v)", list, err)
	}
	group.known.Store(event.Version)
	rep, err := w.svc.ChangeControllers(ctx, raise)
	if err != nil || rep.GetLedgerVersion() != event.Version {
		t.Errorf("not raised: %v (%v)", rep, err)
	}
	if rep := w.c.writer.commitCommand(ctx, &request{cmd: newerToken("newer"), actor: system}); rep.err != nil {
		t.Errorf("after the raise: %v", rep.err)
	}
	seq := w.c.View().State.Seq
	if _, err := w.svc.ChangeControllers(ctx, raise); err != nil || w.c.View().State.Seq != seq {
		t.Errorf("raised again (%v): seq %d, before %d", err, w.c.View().State.Seq, seq)
	}
}

// TestNewerConfiguration starts an upgraded controller whose slurm.conf has what the ledger's
// version has no word for: it starts without that, and has it once the version is raised.
func TestNewerConfiguration(t *testing.T) {
	group := &mixedGroup{}
	group.known.Store(event.Version)
	config := testConfig()
	config.Limits.MPIDefault = "pmix"
	w := startOldWith(t, config, group, func(d *Deps) {
		d.Reload = func() (*spec.Config, []string, error) { return config, nil, nil }
	})
	if got := w.c.View().State.Config; got.Limits.MPIDefault != "" || got.Limits.DefMemPerCPU != 100 {
		t.Errorf("before the raise the limits are %+v", got.Limits)
	}
	if config.Limits.MPIDefault != "pmix" {
		t.Error("the file's own configuration was changed")
	}
	if _, err := w.svc.ChangeControllers(context.Background(), &apiv1.ChangeControllersRequest{RaiseLedger: true}); err != nil {
		t.Fatal(err)
	}
	if got := w.c.View().State.Config.Limits.MPIDefault; got != "pmix" {
		t.Errorf("after the raise MpiDefault is %q", got)
	}
}

// raiseClock is a clock whose monotonic part is set by the test.
type raiseClock struct {
	realClock
	mono atomic.Int64
}

func (c *raiseClock) Monotonic() spec.Span { return spec.Span(c.mono.Load()) }
func (c *raiseClock) After(d spec.Span) (<-chan struct{}, func()) {
	return c.realClock.After(min(d, spec.Millisecond))
}

// TestRaisedInTime: the version is raised once all members have known it for as long as the site
// said, counted anew when one goes back.
func TestRaisedInTime(t *testing.T) {
	clock := &raiseClock{}
	group := &mixedGroup{}
	group.known.Store(event.Version)
	w := startOld(t, group, func(d *Deps) {
		d.Clock = clock
		d.Settings.RaiseAfter = spec.Hour
	})
	raiseAt := func() int64 {
		list, err := w.svc.ListControllers(context.Background(), &apiv1.ControllersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return list.GetRaiseAt()
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			if t.Context().Err() != nil {
				t.Fatal(what)
			}
			time.Sleep(time.Millisecond) //muster:sleep the list of controllers is asked, and tells nobody that it changed
		}
	}
	until("it says when", func() bool { return raiseAt() != 0 })
	group.known.Store(event.Version - 1)
	until("it forgets", func() bool { return raiseAt() == 0 })
	clock.mono.Store(int64(2 * spec.Hour))
	group.known.Store(event.Version)
	until("it counts anew", func() bool { return raiseAt() != 0 })
	if v := w.c.View().State.Version; v != event.Version-1 {
		t.Errorf("raised to %d with time that passed before", v)
	}
	clock.mono.Add(int64(spec.Hour))
	until("it raises", func() bool { return w.c.View().State.Version == event.Version })
}
