package daemon_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/accounting/daemon"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// careStream collects findings.
type careStream struct {
	grpc.ServerStream
	ctx   context.Context
	found []*apiv1.MaintainReply
}

func (s *careStream) Context() context.Context { return s.ctx }

func (s *careStream) Send(r *apiv1.MaintainReply) error {
	if r.GetOf() == 0 {
		s.found = append(s.found, r)
	}
	return nil
}

// care runs a verb and gives what is bad.
func (r *rig) care(verb, name string) (bad []string) {
	r.t.Helper()
	s := &careStream{ctx: r.t.Context()}
	if err := r.Service().Maintain(&apiv1.MaintainRequest{Verb: verb, Name: name}, s); err != nil {
		r.t.Fatalf("%s: %v", verb, err)
	}
	if len(s.found) == 0 {
		r.t.Fatalf("%s finds nothing at all", verb)
	}
	for _, f := range s.found {
		if f.GetBad() {
			bad = append(bad, f.GetName()+": "+f.GetText())
		}
	}
	return bad
}

// TestCare: a store that has what the ledger says is verified, one in which a
// number was changed is not; a backup that was made while rows came is
// restored to its position, and what came since is counted again, once.
func TestCare(t *testing.T) {
	log := busy(t, 400)
	half := len(log) / 2
	ledger := newLedger(t)
	ledger.add(t, log[:half], 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	who := daemon.Caller{Admin: true}
	r.cfg.Identify = func(context.Context) daemon.Caller { return who }
	r.start()
	r.stored(uint64(half))
	if bad := r.care("verify", ""); bad != nil {
		t.Errorf("a good store: %v", bad)
	}
	if bad := r.care("doctor", ""); bad != nil {
		t.Errorf("a good store: %v", bad)
	}
	r.care("backup", "half")
	ledger.add(t, log[half:], 25)
	r.stored(uint64(len(log)))
	exec := func(sql string) {
		t.Helper()
		if err := r.store.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for sql, table := range map[string]string{
		"ALTER TABLE muster.jobs UPDATE alloc_cpus = alloc_cpus + 1 WHERE uid = 5 SETTINGS mutations_sync = 1": "jobs",
		"ALTER TABLE muster.steps DELETE WHERE uid = 7 SETTINGS mutations_sync = 1":                            "steps",
		"INSERT INTO muster.job_gpus SELECT * FROM muster.job_gpus WHERE uid = 9":                              "job_gpus",
	} {
		exec(sql)
		if bad := strings.Join(r.care("verify", ""), "\n"); !strings.Contains(bad, table+": ") {
			t.Errorf("after %s: %s", sql, bad)
		}
	}
	r.care("restore", "half")
	for began := time.Now(); r.Status().Seq != uint64(len(log)) || !r.Status().Up; {
		if time.Since(began) > time.Minute {
			t.Fatalf("the ingester does not come back: %+v", r.Status())
		}
		time.Sleep(20 * time.Millisecond) //muster:sleep until the ingester has caught up
	}
	if bad := r.care("verify", ""); bad != nil {
		t.Errorf("after the restore: %v", bad)
	}
	if got, w := r.rows(), want(t, log); got != w {
		t.Errorf("after the restore:\n%s\nwant\n%s", got, w)
	}
	for _, name := range []string{"", "../x", "a/b", "x'; DROP DATABASE muster", ".hidden", "nosuch"} {
		if err := r.Service().Maintain(&apiv1.MaintainRequest{Verb: "restore", Name: name}, &careStream{ctx: t.Context()}); err == nil {
			t.Errorf("restore %q works", name)
		}
	}
	for verb, c := range map[string][2]string{"backup": {"half", "there is a backup half already: choose another name"}, "restore": {"nosuch", "there is no backup nosuch"}} {
		err := r.Service().Maintain(&apiv1.MaintainRequest{Verb: verb, Name: c[0]}, &careStream{ctx: t.Context()})
		if spec.CodeOf(err) != spec.CodeBadRequest || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s %s: %v, want %s", verb, c[0], err, c[1])
		}
	}
	if said := strings.Join(r.care("doctor", ""), "\n"); strings.Contains(said, "canceled") {
		t.Errorf("after restores that failed the doctor says %s", said)
	}
	if bad := r.care("verify", ""); bad != nil {
		t.Errorf("after restores that failed: %v", bad)
	}
	who = daemon.Caller{User: "alice"}
	if err := r.Service().Maintain(&apiv1.MaintainRequest{Verb: "doctor"}, &careStream{ctx: t.Context()}); spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("a user is a doctor: %v", err)
	}
}
