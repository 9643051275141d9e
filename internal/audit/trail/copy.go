package trail

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	ledgerlog "github.com/musterhpc/muster/ledger/log"
)

// Traces is the name under which controllers tell each other how far traces of jobs
// have been sent (internal/traces/sending), which have a position as a target has.
const Traces = "traces"

// Positions tells whether anything of this controller has a position that the next
// leader needs.
func Positions(config *conffile.Config) bool {
	return config.Audit.On() || config.OTLP.SendsTraces()
}

// PathOf is the file with the position of a target, in a folder that is made.
func PathOf(config *conffile.Config, name string) (string, error) {
	dir, err := makeDir(config.StateDir)
	return filepath.Join(dir, name+".json"), err
}

// DeliveredByTarget tells the other controllers how far this trail has come, so that
// the next leader begins there. A target that has not settled anything yet began with
// this lead.
func (t *Trail) DeliveredByTarget() map[string]peers.Delivered {
	if t == nil {
		return nil
	}
	out := map[string]peers.Delivered{}
	for i, exporter := range t.exporters {
		position := exporter.Saved()
		if epochs := t.options.Controller.View().State.Epochs; position == (audit.Position{}) &&
			len(epochs) > 0 {
			began := epochs[len(epochs)-1]
			position = audit.Position{Epoch: began.Value, Seq: began.Seq}
		}
		out[t.names[i]] = peers.Delivered{
			To: sharedTarget(t.options.Config, t.names[i]), Position: position,
		}
	}
	return out
}

// sharedTarget is where a target is, if it is not on this host.
func sharedTarget(config *conffile.Config, name string) string {
	if name == Traces {
		return config.OTLP.Endpoint
	}
	if name != "syslog" {
		return ""
	}
	network, _, err := config.Audit.SyslogAddress()
	if err != nil || network == "unix" {
		return ""
	}
	return config.Audit.Syslog
}

// CopyDelivered keeps, while this controller stands by, how far the leader's audit
// trail has come: else what the leader had not delivered when it was lost would be
// missing from the trail.
func CopyDelivered(
	ctx context.Context,
	config *conffile.Config,
	others *peers.Peers,
	durable *ledgerlog.Durable,
	logger *slog.Logger,
) error {
	said := ""
	for clock.PauseFor(ctx, peers.AskPatience) {
		lead := durable.Leader()
		if !lead.Known || lead.Self {
			continue
		}
		err := copyDeliveredFrom(ctx, config, others, lead.Address)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			logger.Warn("how far the leader's audit trail has come is not known here", "error", err)
		}
	}
	return nil
}

// copyDeliveredFrom asks the leader at an address.
func copyDeliveredFrom(
	ctx context.Context,
	config *conffile.Config,
	others *peers.Peers,
	address string,
) error {
	leader, err := others.AskDelivered(ctx, address)
	if err != nil || leader == nil {
		return err
	}
	targets, err := targetsOf(&config.Audit, "")
	if err != nil {
		return err
	}
	if config.OTLP.SendsTraces() {
		targets = append(targets, target{name: Traces})
	}
	for _, target := range targets {
		path, err := PathOf(config, target.name)
		if err != nil {
			return err
		}
		own, err := audit.ReadPosition(path)
		if err != nil {
			return err
		}
		next := positionToKeep(own, sharedTarget(config, target.name), leader[target.name])
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
