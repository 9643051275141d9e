package main

import (
	"context"
	"path/filepath"

	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
)

// deliveredByTarget tells the other controllers how far this trail has come, so that
// the next leader begins there. A target that has not settled anything yet began with
// this lead.
func (t *auditTrail) deliveredByTarget(s *server) map[string]peers.Delivered {
	if t == nil {
		return nil
	}
	out := map[string]peers.Delivered{}
	for i, exporter := range t.exporters {
		pos := exporter.Saved()
		if epochs := s.ctl.View().State.Epochs; pos == (audit.Position{}) && len(epochs) > 0 {
			began := epochs[len(epochs)-1]
			pos = audit.Position{Epoch: began.Value, Seq: began.Seq}
		}
		out[t.names[i]] = peers.Delivered{To: sharedTarget(s.cfg, t.names[i]), Position: pos}
	}
	return out
}

// sharedTarget is where a target is, if it is not on this host.
func sharedTarget(cfg *conffile.Config, name string) string {
	if name != "syslog" {
		return ""
	}
	network, _, err := cfg.Audit.SyslogAddress()
	if err != nil || network == "unix" {
		return ""
	}
	return cfg.Audit.Syslog
}

// copyDelivered keeps, while this controller stands by, how far the leader's audit
// trail has come: else what the leader had not delivered when it was lost would be
// missing from the trail.
func (s *server) copyDelivered(ctx context.Context) error {
	said := ""
	for clock.PauseFor(ctx, peers.AskPatience) {
		lead := s.durable.Leader()
		if !lead.Known || lead.Self {
			continue
		}
		err := s.copyDeliveredFrom(ctx, lead.Address)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			s.log.Warn("how far the leader's audit trail has come is not known here", "error", err)
		}
	}
	return nil
}

func (s *server) copyDeliveredFrom(ctx context.Context, address string) error {
	leader, err := s.peers.AskDelivered(ctx, address)
	if err != nil || leader == nil {
		return err
	}
	dir, err := auditDirOf(s)
	if err != nil {
		return err
	}
	targets, err := auditTargets(s, "")
	if err != nil {
		return err
	}
	for _, target := range targets {
		path := filepath.Join(dir, target.name+".json")
		own, err := audit.ReadPosition(path)
		if err != nil {
			return err
		}
		next := positionToKeep(own, sharedTarget(s.cfg, target.name), leader[target.name])
		if next == own {
			continue
		}
		if err := audit.WritePosition(path, next); err != nil {
			return err
		}
	}
	return nil
}

// positionToKeep is where a standby's trail shall begin when it leads. A receiver of
// all controllers goes on where the leader is. What is on this host alone has a
// position of its own, which begins where the leader was first seen: its file then
// misses nothing that came later.
func positionToKeep(own audit.Position, to string, leader peers.Delivered) audit.Position {
	none := audit.Position{}
	shared := to != "" && to == leader.To
	if leader.Position == none || own != none && !shared {
		return own
	}
	return leader.Position
}
