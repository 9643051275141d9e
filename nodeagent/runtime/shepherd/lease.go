//go:build linux

package shepherd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// The shepherd ends the runs whose leases are over, whatever kept the controller's
// answers away. Beside it a guard, a process of its own, holds the same promise for
// the time in which the shepherd is stopped or dead: it reads which runs have leases
// from a file that the shepherd writes before it starts any of them.

// leaseTable is that file. It is never flushed to the disk: a reboot voids it.
type leaseTable struct {
	Boot  string      `cbor:"1,keyasint"` // boot id
	Mode  cgroup.Mode `cbor:"2,keyasint"`
	Grant plan.Grant  `cbor:"3,keyasint"` // the newest
	Runs  []leasedRun `cbor:"4,keyasint,omitempty"`
}

// leasedRun is what must be known of a run to kill it.
type leasedRun struct {
	Mark  string     `cbor:"1,keyasint"` // in the environment of its processes
	Lease plan.Lease `cbor:"2,keyasint"`
	Group string     `cbor:"3,keyasint,omitempty"` // folder of its control group; empty: it is not tracked
	PID   int        `cbor:"4,keyasint,omitempty"` // of its first process, and when that began
	Ticks uint64     `cbor:"5,keyasint,omitempty"`
}

const (
	leaseName   = "leases"
	leaseLook   = 500 * time.Millisecond // between two looks at the clock
	leaseNotice = "*** the controller has not answered this node for too long: the lease of the job is over ***"
)

// acceptGrant takes an answer of the controller to a heartbeat.
func (s *Shepherd) acceptGrant(grant plan.Grant) error {
	s.mu.Lock()
	s.grant = s.grant.Newer(grant)
	leased := s.hasLeases()
	s.mu.Unlock()
	if !leased {
		return nil
	}
	return s.writeLeases()
}

// hasLeases tells whether any run has a lease. mu is held.
func (s *Shepherd) hasLeases() bool {
	for _, r := range s.runs {
		if r.Lease.Length > 0 && r.state != plan.Exited {
			return true
		}
	}
	return false
}

// writeLeases writes the file that the guard reads.
func (s *Shepherd) writeLeases() error {
	s.leaseFile.Lock()
	defer s.leaseFile.Unlock()
	s.mu.Lock()
	table := leaseTable{Boot: s.hello.BootID, Mode: s.host.Mode(), Grant: s.grant}
	for _, r := range s.runs {
		if r.Lease.Length > 0 && r.begun && r.state != plan.Exited {
			table.Runs = append(
				table.Runs,
				leasedRun{
					Mark:  s.runMark(r.Key),
					Lease: r.Lease,
					Group: r.group.Path(),
					PID:   r.PID,
					Ticks: r.Ticks,
				},
			)
		}
	}
	s.mu.Unlock()
	data, err := cbor.Marshal(&table)
	if err != nil {
		return fmt.Errorf("write the leases: %w", err)
	}
	path := filepath.Join(s.dir, leaseName)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write the leases: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the leases: %w", err)
	}
	return nil
}

// readLeases reads the file of a shepherd's folder; an empty table where there is
// none, or only that of an earlier boot.
func readLeases(dir, boot string) (leaseTable, error) {
	data, err := os.ReadFile(filepath.Join(dir, leaseName))
	if errors.Is(err, os.ErrNotExist) {
		return leaseTable{}, nil
	}
	if err != nil {
		return leaseTable{}, fmt.Errorf("read the leases: %w", err)
	}
	decoder, err := protocol.Decoding()
	if err != nil {
		return leaseTable{}, err
	}
	var table leaseTable
	if err := decoder.Unmarshal(data, &table); err != nil {
		return leaseTable{}, fmt.Errorf("read the leases in %s: %w", dir, err)
	}
	if table.Boot != boot {
		return leaseTable{}, nil
	}
	return table, nil
}

// rememberGrant takes the newest answer that a shepherd in this folder had. Without
// it every lease would be counted from the run's order.
func (s *Shepherd) rememberGrant(dir string) {
	table, err := readLeases(dir, s.hello.BootID)
	if err != nil {
		s.log.Error("leases count from the orders of their runs", "err", err)
		return
	}
	s.mu.Lock()
	s.grant = s.grant.Newer(table.Grant)
	s.mu.Unlock()
}

// takeLease makes sure that a run is ended in time before it is started: its lease
// is in the file, and a guard reads that. An order that was read too late is refused.
func (s *Shepherd) takeLease(r *run) error {
	if r.Lease.Length == 0 {
		return nil
	}
	s.mu.Lock()
	over := r.Lease.Ending(s.grant, proc.BootClock())
	s.mu.Unlock()
	if over {
		return errors.New(
			"the order came when the run's lease was over: the agent or the shepherd was stopped, or the controller does not answer",
		)
	}
	if err := s.writeLeases(); err != nil {
		return err
	}
	return s.ensureGuard()
}

// refuseLate ends a run whose order came too late; see takeLease.
func (s *Shepherd) refuseLate(r *run, err error) {
	s.log.Error("run not started", aboutRun(r), "err", err)
	s.concludeRun(r, &plan.Exit{Key: r.Key, Code: 1, Failure: plan.NotBegun, Message: err.Error()})
}

// keepLeases enforces leases for as long as the shepherd lives.
func (s *Shepherd) keepLeases(ctx context.Context) {
	tick := time.NewTicker(leaseLook)
	defer tick.Stop()
	for look := 0; ; look++ {
		select {
		case <-ctx.Done():
			return
		case <-s.gone:
			return
		case <-tick.C:
		}
		s.enforceLeases()
		if look%10 == 0 {
			s.refreshLeases()
		}
	}
}

// refreshLeases takes runs that are over out of the file and starts a guard that
// was killed again.
func (s *Shepherd) refreshLeases() {
	s.mu.Lock()
	leased := s.hasLeases()
	changed := leased || s.leasesKept
	s.leasesKept = leased
	s.mu.Unlock()
	if !changed {
		return
	}
	err := s.writeLeases()
	if leased {
		err = errors.Join(err, s.ensureGuard())
	}
	if err != nil {
		s.log.Error("leases of running jobs are enforced by this process alone", "err", err)
	}
}

// enforceLeases ends what must not live any more.
func (s *Shepherd) enforceLeases() {
	clock := proc.BootClock()
	var ending, over []*run
	s.mu.Lock()
	grant := s.grant
	for _, r := range s.runs {
		switch {
		case r.state == plan.Exited || r.state == plan.Starting:
		case r.Lease.Over(grant, clock):
			r.leaseOver = true
			over = append(over, r)
		case r.Lease.Ending(grant, clock) && !r.leaseOver:
			r.leaseOver = true
			ending = append(ending, r)
		}
	}
	s.mu.Unlock()
	for _, r := range ending {
		left := spec.Span(r.Lease.Until(grant) - clock)
		s.log.Warn(
			"the lease of a run ends: the controller has not answered this node",
			aboutRun(r),
			"lease",
			int64(r.Lease.Length.Seconds()),
		)
		if err := s.terminateRuns(plan.Terminate{Key: r.Key, Scope: plan.ScopeRun, Grace: left, Notice: leaseNotice}); err != nil {
			s.log.Error("end of a lease", aboutRun(r), "err", err)
		}
	}
	for _, r := range over {
		s.killRun(r)
	}
}

// endedByLease tells whether it was the end of its lease that ended a run, by this
// process or by the guard.
func (s *Shepherd) endedByLease(r *run, exit *plan.Exit) bool {
	if r.Lease.Length == 0 || !exit.Started {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.leaseOver ||
		exit.Signal == int32(unix.SIGKILL) && r.Lease.Over(s.grant, proc.BootClock())
}
