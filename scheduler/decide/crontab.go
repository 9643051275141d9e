package decide

import (
	"errors"
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/cron"
)

// PutCrontab replaces a user's crontab. Its jobs take the place of those of the old one:
// of these, one that is pending is cancelled, and one that runs is not run again. A table
// without text is removed.
type PutCrontab struct {
	UID  uint32
	User string
	Text string
	Jobs []CronJob
}

// CronJob is a line of a crontab: its job, whose Cron is the time, and where it stands.
type CronJob struct {
	Spec        *spec.JobSpec
	First, Last uint32
}

func (PutCrontab) command() string { return "crontab" }

// disabledMark stands before the lines of an entry whose job was cancelled.
const disabledMark = "#DISABLED: "

// cronCommands decides about crontabs.
type cronCommands struct{ *decision }

func (d *decision) crontabs() cronCommands { return cronCommands{d} }

// putTable tries the whole table on a copy first, so that all that is wrong with it is said at
// once and a refusal leaves nothing behind.
func (d cronCommands) putTable(command PutCrontab) error {
	if !d.t.Config.Scrontab {
		return spec.Refuse(
			spec.CodeDisabled,
			"crontabs are off here; ScronParameters=enable in slurm.conf turns them on",
		)
	}
	if command.Text == "" && d.t.Crontab(command.UID) == nil {
		return spec.Refuse(spec.CodeBadRequest, "no crontab for "+command.User)
	}
	rehearsal := trial.On(d.t.State.Freeze().Draft(), d.t.Now, d.t.Actor, "")
	rehearsal.East = d.t.East
	var problems []string
	on := decisionOn(rehearsal).crontabs()
	if err := on.replaceTable(command, func(line uint32, problem string) {
		problems = append(problems, fmt.Sprintf("line %d: %s", line, problem))
	}); err != nil {
		return err
	}
	if len(problems) > 0 {
		return spec.Refuse(spec.CodeBadRequest, strings.Join(problems, "\n"))
	}
	var broken error
	err := d.replaceTable(command, func(line uint32, problem string) {
		broken = fmt.Errorf("line %d was refused after it had passed: %s", line, problem)
	})
	return errors.Join(err, broken)
}

// replaceTable ends what there was and submits the jobs of the new table. What is wrong with a
// line goes to blame.
func (d cronCommands) replaceTable(
	command PutCrontab, blame func(line uint32, problem string),
) error {
	if old := d.t.Crontab(command.UID); old != nil {
		if err := d.retireTable(old); err != nil {
			return err
		}
	}
	table := spec.Crontab{UID: command.UID, User: command.User, Text: command.Text}
	for _, job := range command.Jobs {
		uid, err := d.submitLine(job)
		var refusal *spec.Error
		switch {
		case errors.As(err, &refusal):
			for _, text := range describeRefusal(refusal) {
				blame(job.Last, text)
			}
			continue
		case err != nil:
			return err
		}
		table.Entries = append(
			table.Entries,
			spec.CronLine{Job: uid, First: job.First, Last: job.Last},
		)
		d.res.Jobs = append(d.res.Jobs, d.t.Job(uid).ID)
	}
	if command.Text == "" && d.t.Crontab(command.UID) == nil {
		return nil
	}
	return d.Emit(&event.CrontabPut{Crontab: table})
}

// describeRefusal is what a refusal says, in as many lines as it has.
func describeRefusal(refusal *spec.Error) []string {
	if refusal.Kind == spec.CodeBadRequest && refusal.Detail != "" {
		return strings.Split(refusal.Detail, "\n")
	}
	text := refusal.Error()
	if refusal.Prefix != "" && !strings.Contains(text, refusal.Prefix) {
		text = refusal.Prefix + ": " + text
	}
	return []string{strings.ReplaceAll(text, "\n", ": ")}
}

// submitLine submits the job of a line for its first time.
func (d cronCommands) submitLine(job CronJob) (spec.JobUID, error) {
	when, problems := cron.Parse(job.Spec.Cron)
	if len(problems) > 0 {
		return 0, spec.Refuse(spec.CodeBadRequest, strings.Join(problems, "\n"))
	}
	if job.Spec.Queue.Array != nil {
		return 0, spec.Refuse(spec.CodeInvalidArray, "a job of a crontab cannot be an array")
	}
	jobSpec := *job.Spec
	jobSpec.Time.Begin = when.Next(d.t.Now, d.t.East)
	if err := d.submission().submitJob(&jobSpec, 0, nil); err != nil {
		return 0, err
	}
	return d.res.UID, nil
}

// retireTable ends the jobs of a table that is replaced, as far as they have not begun.
func (d cronCommands) retireTable(old *spec.Crontab) error {
	for _, entry := range old.Entries {
		job := d.t.Job(entry.Job)
		if job == nil || job.State != spec.Pending {
			continue
		}
		if err := d.Emit(&event.JobEnded{UID: job.UID, Attempt: job.Attempt,
			State: spec.Cancelled, Reason: spec.Reason{Code: spec.ReasonNone},
			By: d.t.Actor.UID}); err != nil {
			return err
		}
	}
	return nil
}

// mayCancel refuses to end a job of a crontab that nobody asked for by --cron, where the
// site wants that.
func (d cronCommands) mayCancel(job *state.Job, cancel Cancel) error {
	if cancel.Cron || !d.t.Config.CronExplicit || !d.t.ComesBack(job) {
		return nil
	}
	return spec.Refuse(
		spec.CodeDisabled,
		"the job is of a crontab, which scancel --cron cancels",
	)
}

// disableLines makes comments of the lines of a job that is cancelled: it does not come back.
func (d cronCommands) disableLines(job *state.Job) error {
	if !d.t.ComesBack(job) {
		return nil
	}
	table := *d.t.Crontab(job.Spec.UID)
	gone := table.Entries[table.Find(job.UID)]
	var entries []spec.CronLine
	for _, entry := range table.Entries {
		if entry.Job != job.UID && d.t.Job(entry.Job) != nil {
			entries = append(entries, entry)
		}
	}
	lines := strings.SplitAfter(table.Text, "\n")
	for n := gone.First; n <= gone.Last && int(n) <= len(lines); n++ {
		lines[n-1] = disabledMark + lines[n-1]
	}
	table.Text = strings.Join(lines, "")
	table.Entries = entries
	return d.Emit(&event.CrontabPut{Crontab: table})
}
