// Package sitescripts runs the Lua scripts of a site for the controller: job_submit.lua for each
// submission and change. They run in a child process of this program.
package sitescripts

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/luascript"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// ReadCluster reads slurm.conf and what belongs to it, and refuses scripts of the site that
// do not load: a controller with half of its rules must not begin.
func ReadCluster(config *conffile.Config) (*spec.Config, []string, error) {
	cluster, warnings, err := conffile.ReadCluster(config)
	if err != nil {
		return nil, nil, err
	}
	child, err := luaChild()
	if err != nil {
		return nil, nil, err
	}
	if cluster.JobSubmit != nil {
		if err := luascript.Check(child, cluster.JobSubmit, luascript.FunctionSubmit); err != nil {
			return nil, nil, fmt.Errorf("JobSubmitPlugins=lua: %w", err)
		}
	}
	if cluster.CliFilter != nil {
		if err := luascript.Check(child, cluster.CliFilter, luascript.FilterFunctions()...); err != nil {
			return nil, nil, fmt.Errorf("CliFilterPlugins=lua: %w", err)
		}
	}
	return cluster, warnings, nil
}

// Scripts is daemon.JobScripts by a child process of this program.
type Scripts struct {
	runner *luascript.Runner
	log    *slog.Logger
}

// New makes the scripts of a controller, whose child begins with the first call.
func New(logger *slog.Logger) (*Scripts, error) {
	child, err := luaChild()
	if err != nil {
		return nil, err
	}
	return &Scripts{runner: &luascript.Runner{Command: child}, log: logger}, nil
}

// luaChild is how the child is started in which scripts run.
func luaChild() ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{program, luascript.Subcommand}, nil
}

// Submit implements daemon.JobScripts.
func (s *Scripts) Submit(
	ctx context.Context,
	config *spec.Config,
	asked *daemon.ScriptedJob,
) (daemon.ScriptVerdict, error) {
	job := luaJob(asked)
	verdict, err := s.runner.Submit(ctx, config, siteOf(config), job)
	asked.Spec = job.Spec
	asked.Script = job.Script
	asked.Env = job.Env
	return s.verdictOf(verdict), err
}

// Modify implements daemon.JobScripts.
func (s *Scripts) Modify(
	ctx context.Context,
	config *spec.Config,
	asked *daemon.ScriptedJob,
	change *daemon.ScriptedChange,
) (daemon.ScriptVerdict, error) {
	update := &luascript.Update{
		By:      change.By,
		JobID:   change.JobID,
		State:   change.State,
		Nodes:   change.Nodes,
		Changes: change.Changes,
	}
	verdict, err := s.runner.Modify(ctx, config, siteOf(config), luaJob(asked), update)
	if err == nil {
		change.Changes = update.Changes
	}
	return s.verdictOf(verdict), err
}

// siteOf is what a script knows of the cluster. A configuration is never changed in its place,
// so its address tells whether the child has it.
func siteOf(config *spec.Config) func() luascript.Site {
	return func() luascript.Site {
		return luascript.Site{
			Script:     config.JobSubmit,
			Partitions: config.Partitions,
			Limits:     luascript.DefaultLimits(),
		}
	}
}

func luaJob(asked *daemon.ScriptedJob) *luascript.Job {
	return &luascript.Job{
		Spec: asked.Spec,
		Facts: luascript.Facts{
			Script:         asked.Script,
			Env:            asked.Env,
			UID:            asked.UID,
			GID:            asked.GID,
			User:           asked.User,
			Group:          asked.Group,
			DefaultAccount: asked.DefaultAccount,
			DefaultQOS:     asked.DefaultQOS,
			Component:      asked.Component,
			Cron:           asked.Cron,
		},
	}
}

// verdictOf writes what the script logged, and hands the rest on.
func (s *Scripts) verdictOf(verdict *luascript.Verdict) daemon.ScriptVerdict {
	if verdict == nil {
		return daemon.ScriptVerdict{}
	}
	for _, line := range verdict.Said {
		switch line.Level {
		case luascript.LevelError:
			s.log.Error("job_submit.lua", "says", line.Text)
		case luascript.LevelInfo:
			s.log.Info("job_submit.lua", "says", line.Text)
		case luascript.LevelDebug:
			s.log.Debug("job_submit.lua", "says", line.Text)
		case luascript.LevelUser:
		}
	}
	out := daemon.ScriptVerdict{
		Refused: verdict.Refuses(),
		User:    verdict.UserText(),
		Changed: verdict.Changed,
	}
	if code := spec.Code(verdict.Code); verdict.Code > 0 && code.Known() {
		out.Code = code
	}
	return out
}

// Close ends the child.
func (s *Scripts) Close() { s.runner.Close() }
