package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Verbosity selects what a controller writes to its log: the level, and groups of records about
// events, passes and calls. An administrator sets it while the controller runs, and it lasts until
// the controller ends. Its methods may be called concurrently. A nil Verbosity writes no such
// records.
type Verbosity struct {
	log   *slog.Logger
	level *slog.LevelVar
	flags atomic.Uint32
	// scheduling writes a record for each pass, as the flag Backfill does, and for each job start.
	scheduling atomic.Bool
}

// NewVerbosity makes a Verbosity for a logger, whose handler must use level.
func NewVerbosity(logger *slog.Logger, level *slog.LevelVar) *Verbosity {
	return &Verbosity{log: logger, level: level}
}

// DebugFlag is a group of records that an administrator switches on, by Slurm's name.
type DebugFlag uint32

// The groups.
const (
	DebugAccrue DebugFlag = 1 << iota
	DebugAgent
	DebugAuditRPCs
	DebugBackfill
	DebugGres
	DebugPower
	DebugReservation
	DebugSteps
	DebugTraceJobs
)

// debugFlag is a row of debugFlags.
type debugFlag struct {
	flag DebugFlag
	name string
}

// debugFlags are the flags in the order in which they are shown.
//
//muster:table one row for each flag
func debugFlags() []debugFlag {
	return []debugFlag{
		{DebugAccrue, "Accrue"},
		{DebugAgent, "Agent"},
		{DebugAuditRPCs, "AuditRPCs"},
		{DebugBackfill, "Backfill"},
		{DebugGres, "Gres"},
		{DebugPower, "Power"},
		{DebugReservation, "Reservation"},
		{DebugSteps, "Steps"},
		{DebugTraceJobs, "TraceJobs"},
	}
}

// flagOfEvent is the flag whose records tell of an event, or 0.
func flagOfEvent(kind event.Kind) DebugFlag {
	switch kind {
	case event.KindJobsAccruing:
		return DebugAccrue
	case event.KindNodeRegistered, event.KindNodeLost, event.KindNodeReturned, event.KindFenceTried:
		return DebugAgent
	case event.KindGPUFaulted:
		return DebugGres
	case event.KindNodePowered, event.KindNodeReboot:
		return DebugPower
	case event.KindReservationPut, event.KindReservationRemoved:
		return DebugReservation
	case event.KindStepStarted, event.KindStepEnded, event.KindStepNodeDone, event.KindStepEndRequested,
		event.KindStepSignalled, event.KindStepUpdated:
		return DebugSteps
	}
	if wire.TopicOf(kind) == wire.TopicJob {
		return DebugTraceJobs
	}
	return 0
}

func (v *Verbosity) wantsFlag(flag DebugFlag) bool {
	return v != nil && DebugFlag(v.flags.Load())&flag != 0
}

// wantsScheduling tells whether passes and job starts are to be written.
func (v *Verbosity) wantsScheduling() bool { return v != nil && v.scheduling.Load() }

// noteEvents writes the events of a durable batch that are wanted.
func (v *Verbosity) noteEvents(cluster *state.State, events []event.Envelope) {
	if v == nil || (v.flags.Load() == 0 && !v.scheduling.Load()) {
		return
	}
	for i := range events {
		kind := events[i].Event.Kind()
		flag := flagOfEvent(kind)
		if v.wantsFlag(flag) || (kind == event.KindJobStarted && v.wantsScheduling()) {
			v.noteEvent(cluster, &events[i])
		}
	}
}

func (v *Verbosity) noteEvent(cluster *state.State, envelope *event.Envelope) {
	name := func(uid spec.JobUID) string {
		if job := cluster.Job(uid); job != nil {
			return wire.JobName(cluster, job, job.Task)
		}
		return fmt.Sprintf("uid %d", uid) // it has been forgotten since
	}
	for _, part := range wire.EventParts(envelope.Event, name) {
		fields := []any{"event", envelope.Event.Kind().String(), "seq", envelope.Seq}
		if part.Job != 0 {
			fields = append(fields, "job", name(part.Job))
		}
		if len(part.Nodes) > 0 {
			fields = append(fields, "nodes", strings.Join(part.Nodes, ","))
		}
		if part.Reservation != "" {
			fields = append(fields, "reservation", part.Reservation)
		}
		for _, field := range part.Fields {
			fields = append(fields, field.GetName(), fieldValue(field))
		}
		v.log.Info("ledger", fields...)
	}
}

func fieldValue(field *apiv1.EventField) any {
	switch value := field.GetValue().(type) {
	case *apiv1.EventField_Text:
		return value.Text
	case *apiv1.EventField_Number:
		return value.Number
	case *apiv1.EventField_Time:
		return time.Unix(0, value.Time).UTC().Format(time.RFC3339)
	case *apiv1.EventField_Span:
		if value.Span < 0 {
			return "unlimited"
		}
		return time.Duration(value.Span).String()
	case *apiv1.EventField_Yes:
		return value.Yes
	}
	return ""
}

// notePass writes what a pass did.
func (v *Verbosity) notePass(outcome *scheduler.Outcome, took spec.Span, quick bool, dropped int) {
	if !v.wantsFlag(DebugBackfill) && !v.wantsScheduling() {
		return
	}
	v.log.Info("pass",
		"quick", quick, "took", time.Duration(took).String(), "queue", outcome.Queue, "depth",
		outcome.Depth,
		"planned", len(outcome.Plan.Jobs), "dropped", dropped, "exit", outcome.Exit)
}

// WantsCalls tells that calls of the API are to be noted.
func (v *Verbosity) WantsCalls() bool { return v.wantsFlag(DebugAuditRPCs) }

// NoteCall writes a call of the API.
func (v *Verbosity) NoteCall(method string, caller Caller, took time.Duration, err error) {
	fields := []any{"method", method, "user", caller.User, "uid", caller.UID, "took", took.String()}
	for _, from := range [...]struct{ name, value string }{
		{"node", caller.Node}, {"login", caller.Login}, {"host", caller.Host},
	} {
		if from.value != "" {
			fields = append(fields, from.name, from.value)
		}
	}
	if err != nil {
		fields = append(fields, "error", err.Error())
	}
	v.log.Info("call", fields...)
}

// slurmLevel is a row of slurmLevels.
type slurmLevel struct {
	name  string
	level slog.Level
}

// slurmLevels are Slurm's levels from the quietest on, each with the level of the log that it
// sets: the next one that writes at least as much.
//
//muster:table one row for each level
func slurmLevels() []slurmLevel {
	const silent = slog.LevelError + 4
	return []slurmLevel{
		{"quiet", silent},
		{"fatal", silent},
		{"error", slog.LevelError},
		{"info", slog.LevelInfo},
		{"verbose", slog.LevelDebug},
		{"debug", slog.LevelDebug},
		{"debug2", slog.LevelDebug},
		{"debug3", slog.LevelDebug},
		{"debug4", slog.LevelDebug},
		{"debug5", slog.LevelDebug},
	}
}

// findLevel finds a level by its name or number.
func findLevel(text string) (slog.Level, error) {
	var names []string
	for i, row := range slurmLevels() {
		if strings.EqualFold(text, row.name) || text == fmt.Sprint(i) {
			return row.level, nil
		}
		names = append(names, row.name)
	}
	if strings.EqualFold(text, "warn") {
		return slog.LevelWarn, nil
	}
	return 0, spec.Refuse(spec.CodeBadRequest, fmt.Sprintf(
		"invalid log level %q: expected 0 to %d or %s", text, len(names)-1, strings.Join(names, ", ")))
}

// levelName is the level in force.
func (v *Verbosity) levelName() string {
	switch level := v.level.Level(); {
	case level <= slog.LevelDebug:
		return "debug"
	case level <= slog.LevelInfo:
		return "info"
	case level <= slog.LevelWarn:
		return "warn"
	case level <= slog.LevelError:
		return "error"
	}
	return "quiet"
}

// flagNames are the flags that are on.
func (v *Verbosity) flagNames() []string {
	var out []string
	for _, row := range debugFlags() {
		if v.wantsFlag(row.flag) {
			out = append(out, row.name)
		}
	}
	return out
}

// change takes what a request changes: all of it, or nothing where a part is unknown.
func (v *Verbosity) change(req *apiv1.SetLogRequest) error {
	level := v.level.Level()
	if req.GetLevel() != "" {
		var err error
		level, err = findLevel(req.GetLevel())
		if err != nil {
			return err
		}
	}
	flags := DebugFlag(v.flags.Load())
	if len(req.GetFlags()) > 0 {
		var err error
		flags, err = changeFlags(flags, req.GetFlags())
		if err != nil {
			return err
		}
	}
	v.level.Set(level)
	v.flags.Store(uint32(flags))
	if req.Scheduling != nil {
		v.scheduling.Store(req.GetScheduling())
	}
	return nil
}

// changeFlags reads +Backfill,-Steps,Gres: a name with + or without a sign is added, one with -
// is taken away, and a list without any sign replaces those that are on.
func changeFlags(on DebugFlag, list []string) (DebugFlag, error) {
	signed := false
	for _, text := range list {
		signed = signed || strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-")
	}
	if !signed {
		on = 0
	}
	for _, text := range list {
		flag, err := findFlag(strings.TrimLeft(text, "+-"))
		if err != nil {
			return 0, err
		}
		if strings.HasPrefix(text, "-") {
			on &^= flag
		} else {
			on |= flag
		}
	}
	return on, nil
}

func findFlag(name string) (DebugFlag, error) {
	var names []string
	for _, row := range debugFlags() {
		if strings.EqualFold(name, row.name) {
			return row.flag, nil
		}
		names = append(names, row.name)
	}
	return 0, spec.Refuse(spec.CodeBadRequest, fmt.Sprintf(
		"invalid debug flag %q: this controller has %s", name, strings.Join(names, ", ")))
}

// SetLog changes what the controller writes to its log, until it ends.
func (s *controllerCalls) SetLog(
	ctx context.Context,
	req *apiv1.SetLogRequest,
) (*apiv1.SetLogReply, error) {
	actor, err := s.administratorCaller(ctx)
	if err != nil {
		return nil, err
	}
	verbosity := s.C.deps.Verbosity
	if verbosity == nil {
		return nil, spec.Refuse(spec.CodeDisabled, "the log of this controller belongs to what started it")
	}
	if err := verbosity.change(req); err != nil {
		return nil, err
	}
	s.C.deps.Logger.Info("the log was set",
		"by", actor.Name, "level", verbosity.levelName(),
		"flags", strings.Join(verbosity.flagNames(), ","), "scheduling", verbosity.wantsScheduling())
	return &apiv1.SetLogReply{Log: verbosity.describeLog()}, nil
}

// describeLog is what is in force.
func (v *Verbosity) describeLog() *apiv1.LogInfo {
	if v == nil {
		return nil
	}
	return &apiv1.LogInfo{Level: v.levelName(), Flags: v.flagNames(), Scheduling: v.wantsScheduling()}
}
