package log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Layer carries the connections between members: it accepts those that others open to this one,
// and opens connections to others by the addresses that [Member] has. Authentication is its
// business.
type Layer interface {
	net.Listener
	Dial(address string, timeout time.Duration) (net.Conn, error)
}

// NewTransport returns raft's protocol over a layer, for Options.Transport. patience bounds
// each exchange; that of a snapshot grows with its size.
func NewTransport(layer Layer, patience time.Duration, logger *slog.Logger) raft.Transport {
	ending := newEndingLayer(layer)
	return transport{NetworkTransport: raft.NewNetworkTransportWithConfig(
		&raft.NetworkTransportConfig{Stream: streams{ending}, MaxPool: 3, Timeout: patience,
			Logger: newHCLog(logger)},
	), ending: ending}
}

// streams is a Layer in raft's words.
type streams struct{ Layer }

func (s streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.Layer.Dial(string(address), timeout)
}

// memberKey is where a folder remembers which member of a group it belongs to. A folder of a
// cluster of one has none.
const memberKey = "Member"

// claimFolder makes the folder this member's, or refuses one that is another's. What a
// controller alone has written it takes into the group: from here on its log has a
// configuration with this member's name and address.
func (d *Durable) claimFolder(fresh bool, trans raft.Transport) error {
	was, err := d.store.Get([]byte(memberKey))
	if err != nil {
		return err
	}
	if len(was) > 0 {
		if string(was) != d.opts.NodeID {
			return fmt.Errorf(
				"%s belongs to controller %s, and this one is %s: set its name back, or start with an empty folder",
				d.opts.Dir,
				was,
				d.opts.NodeID,
			)
		}
		return nil
	}
	if !fresh {
		if d.opts.Found != nil {
			if err := d.opts.Found(); err != nil {
				return err
			}
		}
		if err := d.leaveSolitude(trans); err != nil {
			return err
		}
	}
	return d.store.Set([]byte(memberKey), []byte(d.opts.NodeID))
}

// refuseGroup keeps a controller that is configured alone from a ledger of which others have a
// part: what it wrote there would not be on a majority of them.
func (d *Durable) refuseGroup() error {
	was, err := d.store.Get([]byte(memberKey))
	if err != nil || len(was) == 0 {
		return err
	}
	return fmt.Errorf(
		"%s is part of a group of controllers, as %s: name the group's controllers in slurm.conf (SlurmctldHost), or make a log of its own from the archive with musterd ledger rebuild",
		d.opts.Dir,
		was,
	)
}

// leaveSolitude appends what the only member of a group may decide by itself: that its name and
// address are others now.
func (d *Durable) leaveSolitude(trans raft.Transport) error {
	last, err := d.store.LastIndex()
	if err != nil {
		return err
	}
	indexes, err := d.snaps.listIndexes()
	if err != nil {
		return err
	}
	if len(indexes) > 0 {
		last = max(last, indexes[0])
	}
	term, err := d.store.GetUint64([]byte(termKey))
	if err != nil {
		return err
	}
	self := []Member{{ID: d.opts.NodeID, Address: string(trans.LocalAddr())}}
	d.opts.Logger.Info(
		"the ledger of a single controller becomes that of a group",
		"member",
		d.opts.NodeID,
		"address",
		self[0].Address,
	)
	return d.store.StoreLog(
		&raft.Log{
			Index: last + 1,
			Term:  term,
			Type:  raft.LogConfiguration,
			Data:  raft.EncodeConfiguration(raftConfiguration(self)),
		},
	)
}

// Fresh tells whether a folder holds no ledger yet, without opening it. A folder that is not
// there is fresh.
func Fresh(fs FS, dir string) (bool, error) {
	for _, sub := range []string{"raft", "snapshots"} {
		path := dir + "/" + sub
		if err := fs.MkdirAll(path); err != nil {
			return false, err
		}
		names, err := fs.ReadDir(path)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(
			names,
			func(n string) bool { return strings.HasSuffix(n, ".wal") || strings.HasSuffix(n, snapSuffix) },
		) {
			return false, nil
		}
	}
	return true, nil
}

// Group is who takes part, in the configuration that this member knows last.
func (d *Durable) Group() []Member {
	var members []Member
	for _, s := range d.raft.GetConfiguration().Configuration().Servers {
		members = append(
			members,
			Member{ID: string(s.ID), Address: string(s.Address), Joining: s.Suffrage != raft.Voter},
		)
	}
	return members
}

// Term is the number of the last election that this member knows of.
func (d *Durable) Term() uint64 { return d.raft.CurrentTerm() }

// Changed is closed at the next change of leadership.
func (d *Durable) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// LeadOver is closed when the present lead of this member ends; at once if it does not lead.
func (d *Durable) LeadOver() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over != nil {
		return d.over
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Add takes a member into the group, or changes its address or whether it votes. Only the
// leader can.
func (d *Durable) Add(ctx context.Context, member Member) error {
	add := d.raft.AddVoter
	if member.Joining {
		add = d.raft.AddNonvoter
	}
	return d.changeGroup(
		ctx,
		"add "+member.ID,
		add(raft.ServerID(member.ID), raft.ServerAddress(member.Address), 0, patienceOf(ctx)),
	)
}

// Remove takes a member out of the group. Only the leader can; it may remove itself and stops
// leading then.
func (d *Durable) Remove(ctx context.Context, id string) error {
	return d.changeGroup(
		ctx,
		"remove "+id,
		d.raft.RemoveServer(raft.ServerID(id), 0, patienceOf(ctx)),
	)
}

// HandOver gives the lead to another member, or with an empty id to the one that has most of
// the log.
func (d *Durable) HandOver(ctx context.Context, id string) error {
	if id == "" {
		return d.changeGroup(ctx, "hand over", d.raft.LeadershipTransfer())
	}
	for _, member := range d.Group() {
		if member.ID == id && !member.Joining {
			return d.changeGroup(
				ctx,
				"hand over to "+id,
				d.raft.LeadershipTransferToServer(
					raft.ServerID(member.ID),
					raft.ServerAddress(member.Address),
				),
			)
		}
	}
	return fmt.Errorf("hand over: %s %w", id, ErrNoVoter)
}

func patienceOf(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return max(time.Until(at), time.Millisecond)
	}
	return 0
}

// changeGroup waits for a change without outliving the caller: raft's futures may stay silent
// at a shutdown.
func (d *Durable) changeGroup(ctx context.Context, what string, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	var err error
	select {
	case err = <-done:
	case <-d.done:
		err = ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) {
		return &NotLeaderError{Leader: d.Leader()}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
