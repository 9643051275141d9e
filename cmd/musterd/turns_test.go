package main

import (
	"log/slog"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// TestTurnSetsTheLog: administrators set the log of a controller of a group, which leads in turns,
// as they set that of one alone.
func TestTurnSetsTheLog(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	level := new(slog.LevelVar)
	s.verbosity = daemon.NewVerbosity(s.log, level)
	turn := s.newTurn()
	if err := turn.newController(); err != nil {
		t.Fatal(err)
	}
	root := identity.With(t.Context(), identity.Identity{Kind: identity.LocalUser, User: "root"})
	_, err := daemon.NewClusterService(turn.ctl).SetLog(root, &apiv1.SetLogRequest{Level: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	if got := level.Level(); got != slog.LevelDebug {
		t.Errorf("the level is %v", got)
	}
}
