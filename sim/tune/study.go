package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// Aim is what a setting is to make smaller.
type Aim string

// The aims. A mean wait is dominated by jobs that wait for days; a mean bounded
// slowdown by short jobs, which people sit and wait for.
const (
	Slowdown Aim = "slowdown"
	Wait     Aim = "wait"
)

// Bounds are what a setting must keep to be advised, as factors of the figures
// of the settings in force.
type Bounds struct {
	MeanWait    float64
	LongestWait float64
}

// DefaultBounds are a statement of fairness and were not fitted to any log.
func DefaultBounds() Bounds { return Bounds{MeanWait: 1.03, LongestWait: 1.10} }

// minGain is what a setting must gain on the first part to be judged: below
// that, a change is not worth its risk.
const minGain = 0.02

// Study is a question: would other settings have served this history better?
type Study struct {
	Load     *replay.Workload
	Settings []Setting
	Aim      Aim
	Bounds   Bounds
	Seed     uint64
}

// Replay is a schedule as a study keeps it.
type Replay struct {
	Figures Figures `json:"figures"`
	// Of each job of the second part, in order of submission; empty for a
	// replay of the first. A job that did not run has a wait of -1.
	Waits []spec.Span `json:"waits,omitempty"`
	Runs  []spec.Span `json:"runs,omitempty"`
	// Shares are what the jobs had of the cluster's CPUs or GPUs, whichever is
	// more, in thousandths.
	Shares []int64 `json:"shares,omitempty"`
}

// Memory keeps replays that are done, so that a study that was killed goes on
// where it was.
type Memory interface {
	Recall(name string) (*Replay, bool)
	Keep(name string, r *Replay) error
}

// Step is one replay of a study.
type Step struct {
	Number  int
	Of      int // at most
	Setting string
	Part    string
}

// Report is the answer.
type Report struct {
	Jobs        int          `json:"jobs"`
	LearnJobs   int          `json:"learn_jobs"`
	JudgeJobs   int          `json:"judge_jobs"`
	Split       spec.Instant `json:"-"`
	Tried       []string     `json:"tried"`
	Verdict     Verdict      `json:"verdict"`
	Why         string       `json:"why"`
	Chosen      string       `json:"chosen,omitempty"` // to be judged
	OldLine     string       `json:"old_line,omitempty"`
	NewLine     string       `json:"new_line,omitempty"` // only if it is advised
	OutOfSample *Judgement   `json:"out_of_sample,omitempty"`
}

// Verdict is what a study advises.
type Verdict string

// The verdicts.
const (
	Keep         Verdict = "keep"          // nothing was better on the first part
	NotConfirmed Verdict = "not confirmed" // better there, and not surely on the second
	Change       Verdict = "change"
)

// study is a Study at work.
type study struct {
	*Study
	memory Memory
	tell   func(Step) replay.Progress
	split  int // the first job of the second part
	steps  int
	of     int
}

// ErrTooShort tells that a history has too few days to judge by.
var ErrTooShort = errors.New("too little history")

// Run answers a study. The parts are halves of the time from the first
// submission to the last. tell is asked for the progress of each replay.
func Run(
	ctx context.Context,
	question *Study,
	memory Memory,
	tell func(Step) replay.Progress,
) (*Report, error) {
	s := &study{Study: question, memory: memory, tell: tell}
	jobs := s.Load.Jobs
	if len(jobs) == 0 {
		return nil, replay.ErrEmpty
	}
	first := jobs[0].Submit
	last := jobs[len(jobs)-1].Submit
	middle := first.Add(last.Sub(first) / 2)
	s.split = slices.IndexFunc(jobs, func(j replay.Job) bool { return j.Submit >= middle })
	if s.split <= 0 || last.Sub(middle) < minBlocks*minBlock {
		return nil, fmt.Errorf(
			"%w: jobs were submitted during %s; at least %d are needed, half of them to judge by",
			ErrTooShort,
			format.Plural(int64(last.Sub(first)/spec.Day), "day", "days"),
			2*minBlocks*int64(minBlock/spec.Day),
		)
	}
	report := &Report{
		Jobs:      len(jobs),
		LearnJobs: s.split,
		JudgeJobs: len(jobs) - s.split,
		OldLine:   Line(s.Load.Config),
	}
	candidates, err := s.distinctSettings()
	if err != nil {
		return nil, err
	}
	for _, c := range candidates {
		report.Tried = append(report.Tried, c.String())
	}
	s.of = len(candidates) + 3
	chosen, err := s.chooseSetting(ctx, candidates)
	if err != nil {
		return nil, err
	}
	if chosen == nil {
		report.Verdict = Keep
		report.Why = fmt.Sprintf(
			"on the first half, no setting was better by %d %% within the bounds",
			int(minGain*100),
		)
		return report, nil
	}
	report.Chosen = chosen.String()
	report.OutOfSample, err = s.judgeSetting(ctx, chosen)
	if err != nil {
		return nil, err
	}
	report.Verdict, report.Why = report.OutOfSample.giveVerdict(s.Aim, s.Bounds)
	if report.Verdict == Change {
		config, err := chosen.Apply(s.Load.Config)
		if err != nil {
			return nil, err
		}
		report.NewLine = Line(config)
	}
	return report, nil
}

// distinctSettings are the settings whose effect differs from that of the settings in
// force, and from each other's.
func (s *study) distinctSettings() ([]Setting, error) {
	seen := map[string]bool{effect(s.Load.Config): true}
	var settings []Setting
	for _, setting := range s.Settings {
		config, err := setting.Apply(s.Load.Config)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		if e := effect(config); !seen[e] {
			seen[e] = true
			settings = append(settings, setting)
		}
	}
	if len(settings) == 0 {
		return nil, errSameAsInForce
	}
	return settings, nil
}

// chooseSetting finds the setting that is best on the first part and keeps the bounds
// there; nil: none is better than what is in force.
func (s *study) chooseSetting(ctx context.Context, candidates []Setting) (Setting, error) {
	inForce, err := s.replayPart(ctx, nil, learnPart)
	if err != nil {
		return nil, err
	}
	var chosen Setting
	best := s.Aim.figureOf(&inForce.Figures) * (1 - minGain)
	for _, setting := range candidates {
		r, err := s.replayPart(ctx, setting, learnPart)
		if err != nil {
			return nil, err
		}
		if s.Bounds.findBroken(&r.Figures, &inForce.Figures) != "" {
			continue
		}
		if got := s.Aim.figureOf(&r.Figures); got < best {
			best = got
			chosen = setting
		}
	}
	return chosen, nil
}

// judgeSetting compares a setting with the ones in force on the second part.
func (s *study) judgeSetting(ctx context.Context, chosen Setting) (*Judgement, error) {
	old, err := s.replayPart(ctx, nil, judgePart)
	if err != nil {
		return nil, err
	}
	fresh, err := s.replayPart(ctx, chosen, judgePart)
	if err != nil {
		return nil, err
	}
	jobs := s.Load.Jobs[s.split:]
	if !old.hasJobs(len(jobs)) || !fresh.hasJobs(len(jobs)) {
		return nil, errors.New("the replays that were kept are of other jobs: begin anew")
	}
	pairs := make([]Pair, len(jobs))
	for i := range jobs {
		jobSpec := jobs[i].Spec
		pairs[i] = Pair{
			Submit: jobs[i].Submit, User: jobSpec.User, Account: jobSpec.Account, Size: sizeClass(old.Shares[i]),
			OldWait: old.Waits[i], OldRun: old.Runs[i], NewWait: fresh.Waits[i], NewRun: fresh.Runs[i],
		}
	}
	judgement := Judge(pairs, s.Seed)
	judgement.Old = old.Figures
	judgement.New = fresh.Figures
	return judgement, nil
}

// The parts of a history.
const (
	learnPart = "first half"
	judgePart = "second half"
)

// replayPart runs one part under a setting; nil is the settings in force. The
// second part is replayed behind the first, so that it begins with the queue
// and the past runs that the setting would have left.
func (s *study) replayPart(ctx context.Context, setting Setting, part string) (*Replay, error) {
	s.steps++
	name := part + ": in force"
	load := *s.Load
	if setting != nil {
		name = part + ": " + setting.String()
		config, err := setting.Apply(load.Config)
		if err != nil {
			return nil, err
		}
		load.Config = config
	}
	if r, ok := s.memory.Recall(name); ok {
		return r, nil
	}
	from := s.split
	if part == learnPart {
		load.Jobs = load.Jobs[:s.split]
		from = 0
	}
	progress := s.tell(Step{Number: s.steps, Of: s.of, Setting: name, Part: part})
	result, err := replay.Run(ctx, &load, replay.Rule{Name: "muster"}, progress)
	if err != nil {
		return nil, err
	}
	r := &Replay{Figures: figuresOf(result.Jobs[from:])}
	if part == judgePart {
		for i := from; i < len(result.Jobs); i++ {
			outcome := &result.Jobs[i]
			if !outcome.Started() {
				r.Waits = append(r.Waits, -1)
				r.Runs = append(r.Runs, 0)
				r.Shares = append(r.Shares, 0)
				continue
			}
			r.Waits = append(r.Waits, outcome.Wait())
			r.Runs = append(r.Runs, outcome.End.Sub(outcome.Start))
			share := 1000 * outcome.Procs / max(result.Procs, 1)
			r.Shares = append(r.Shares, max(share, 1000*outcome.GPUs/max(result.GPUs, 1)))
		}
	}
	return r, s.memory.Keep(name, r)
}

// hasJobs tells whether a replay has so many jobs in its second part.
func (r *Replay) hasJobs(jobs int) bool {
	return len(r.Waits) == jobs && len(r.Runs) == jobs && len(r.Shares) == jobs
}

// sizeClass names a share of the cluster, in thousandths. Shares mean the same
// on a cluster of ten nodes and on one of a thousand.
func sizeClass(share int64) string {
	switch {
	case share < 10:
		return "under 1 % of the cluster"
	case share < 100:
		return "1 to 10 % of the cluster"
	case share < 500:
		return "10 to 50 % of the cluster"
	}
	return "half of the cluster or more"
}
