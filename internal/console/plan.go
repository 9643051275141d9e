package console

import (
	"cmp"
	"slices"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/spec"
)

// plan is the planned starts of the next hours, as a picture: a bar for each
// job from its start to the end of its time limit.
type plan struct {
	Bars   []bar
	Ticks  []tick
	Height int
	More   int
}

// bar is one job. X and Width are in thousandths of the picture's width.
type bar struct {
	ID, Link, Title, Label    string
	X, Width, Y, TextX, TextY int
	Where                     string // of the label: in, after or before the bar
	Estimate                  bool
}

// tick is a line for a point in time.
type tick struct {
	X  int
	At moment
}

const (
	maxBars   = 24
	barHeight = 21
	planWidth = 1000
	planEdge  = 4
)

// planOf draws the planned starts of jobs; nil if none is planned.
func planOf(jobs []*apiv1.JobInfo, text *render.JobView) *plan {
	var planned []*apiv1.JobInfo
	for _, job := range jobs {
		if spec.JobState(job.GetState()) == spec.Pending && job.GetPlannedStart() != 0 {
			planned = append(planned, job)
		}
	}
	if len(planned) == 0 {
		return nil
	}
	slices.SortStableFunc(planned, func(a, b *apiv1.JobInfo) int {
		return cmp.Or(
			cmp.Compare(a.GetPlannedStart(), b.GetPlannedStart()),
			cmp.Compare(a.GetJobId(), b.GetJobId()),
		)
	})
	p := &plan{More: max(0, len(planned)-maxBars)}
	planned = planned[:min(len(planned), maxBars)]
	whole, step := planScale(planned, text.Now)
	for i, job := range planned {
		from := max(job.GetPlannedStart()-text.Now, 0)
		to := whole
		if job.GetTimeLimit() >= 0 {
			to = min(from+job.GetTimeLimit(), whole)
		}
		id := text.ID(render.JobRow{JobInfo: job, Task: -1})
		x := min(int(from*planWidth/whole), planWidth-3)
		b := bar{
			ID:       id,
			Link:     jobLink(job),
			X:        x,
			Width:    max(int(to*planWidth/whole)-x, 3),
			Y:        i * barHeight,
			TextY:    i*barHeight + 13,
			Estimate: job.GetPlannedEstimate(),
			Label: cutText(
				render.Clean(id+" "+job.GetSpec().GetName()),
				40,
			),
			Title: render.Clean(id +
				" " + job.GetSpec().GetName() + " of " + job.GetUser() + ": in " +
				render.ShortSpan(from) + " on " + job.GetPlannedNodes() + ", for up to " +
				limitText(job.GetTimeLimit())),
		}
		b.place()
		p.Bars = append(p.Bars, b)
	}
	for at := step; at < whole; at += step {
		p.Ticks = append(
			p.Ticks,
			tick{X: int(at * planWidth / whole), At: newMoment(text.Now + at)},
		)
	}
	p.Height = len(p.Bars)*barHeight + planEdge
	return p
}

// place puts the label into the bar, or beside it where it is too short.
func (b *bar) place() {
	const letter = 6 // the width of one, in thousandths of a picture as wide as a window
	switch needed := letter * (len([]rune(b.Label)) + 1); {
	case needed <= b.Width:
		b.TextX, b.Where = b.X+4, "in"
	case b.X+b.Width+needed < planWidth:
		b.TextX, b.Where = b.X+b.Width+4, "after"
	default:
		b.TextX, b.Where = b.X-4, "before"
	}
}

// cutText shortens a text to so many characters.
func cutText(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// planScale is how much time the picture shows, and what lies between two lines.
func planScale(planned []*apiv1.JobInfo, now int64) (whole, step int64) {
	last := int64(0)
	for _, job := range planned {
		last = max(
			last, job.GetPlannedStart()-now+min(max(job.GetTimeLimit(), 0), int64(time.Hour)),
		)
	}
	for _, hours := range [...]int64{1, 3, 6, 12, 24, 72, 168, 720} {
		whole = hours * int64(time.Hour)
		if last <= whole {
			break
		}
	}
	return whole, whole / 6
}
