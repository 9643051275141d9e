package tune

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

const (
	// minBlocks is how many blocks an interval needs: fewer say nothing of how
	// much they differ.
	minBlocks = 10
	// minBlock is how long a block is at least: a backlog of days should lie
	// within one block and not in several.
	minBlock = 2 * spec.Day
	// maxBlocks makes blocks longer where the history allows it.
	maxBlocks = 20
	// resamples of the bootstrap: the ends of the interval are its 50th values.
	resamples = 10_000
	// level of the intervals, in percent.
	level = 99
	// maxChance is how often equals may differ as much by chance. Few blocks with
	// heavy tails make a bootstrap's interval too narrow: alone, it advised in 8
	// of 100 comparisons of equals over 12 days. This test is exact for any tail
	// if blocks are independent; backlogs that span two of them are why it is
	// stricter than the interval (at 0.005, 24 of 1,000 equals were advised).
	maxChance = 0.002
)

// Figures are those of a schedule's jobs. Waits are in seconds.
type Figures struct {
	Jobs         int     `json:"jobs"`
	NotRun       int     `json:"not_run"` // refused, or never started
	MeanSlowdown float64 `json:"mean_bounded_slowdown"`
	MeanWait     float64 `json:"mean_wait_seconds"`
	P95Wait      float64 `json:"p95_wait_seconds"`
	LongestWait  float64 `json:"longest_wait_seconds"`
}

func figuresOf(jobs []replay.Outcome) Figures {
	result := replay.Result{Jobs: jobs}
	summary := result.Summarise()
	return Figures{
		Jobs: summary.Jobs, NotRun: len(jobs) - summary.Jobs, MeanSlowdown: summary.MeanSlowdown,
		MeanWait: summary.MeanWait, P95Wait: summary.P95Wait, LongestWait: summary.MaxWait,
	}
}

// figureOf is the figure that an aim makes smaller.
func (a Aim) figureOf(figures *Figures) float64 {
	if a == Wait {
		return figures.MeanWait
	}
	return figures.MeanSlowdown
}

// findBroken names the bound that figures break, seen from those in force.
func (b Bounds) findBroken(figures, inForce *Figures) string {
	switch {
	case figures.NotRun > inForce.NotRun:
		return fmt.Sprintf("%s, where it was %d", format.Plural(figures.NotRun, "job does not run", "jobs do not run"), inForce.NotRun)
	case figures.MeanWait > inForce.MeanWait*b.MeanWait:
		return fmt.Sprintf(
			"the mean wait is %.2f times what it was (at most %.2f)",
			figures.MeanWait/inForce.MeanWait,
			b.MeanWait,
		)
	case figures.LongestWait > inForce.LongestWait*b.LongestWait:
		return fmt.Sprintf(
			"the longest wait is %.2f times what it was (at most %.2f)",
			figures.LongestWait/inForce.LongestWait,
			b.LongestWait,
		)
	}
	return ""
}

// Pair is a job under the settings in force (old) and under others (new).
type Pair struct {
	Submit              spec.Instant
	User, Account, Size string
	OldWait, NewWait    spec.Span // -1: it did not run
	OldRun, NewRun      spec.Span
}

// Interval is a relative change, and between what it lies with the level's
// confidence: -0.1 is a tenth less.
type Interval struct {
	Change float64 `json:"change"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	// Chance is how often two equal schedules would differ by as much in this
	// direction, if which of them is the new one were drawn for each block.
	Chance float64 `json:"chance"`
}

// Group is the jobs of a user, an account or a size class.
type Group struct {
	Kind    string  `json:"kind"` // user, account or size
	Name    string  `json:"name"`
	Jobs    int     `json:"jobs"`
	OldWait float64 `json:"old_mean_wait_seconds"`
	NewWait float64 `json:"new_mean_wait_seconds"`
}

// Judgement is a comparison on jobs that had no part in the choice.
type Judgement struct {
	Old      Figures  `json:"old"`
	New      Figures  `json:"new"`
	Slowdown Interval `json:"mean_bounded_slowdown"`
	Wait     Interval `json:"mean_wait"`
	Level    int      `json:"confidence_percent"`
	Blocks   int      `json:"blocks"`
	// BlockDays is how long a block is, in days.
	BlockDays float64 `json:"block_days"`
	Losers    []Group `json:"losers"` // who waits longer, the most hours first
}

// block sums the jobs that were submitted in the same days.
type block struct{ oldSlow, newSlow, oldWait, newWait float64 }

// Judge compares two schedules of the same jobs, which are in order of
// submission.
func Judge(pairs []Pair, seed uint64) *Judgement {
	judgement := &Judgement{Level: level, Losers: losers(pairs)}
	if len(pairs) == 0 {
		return judgement
	}
	blocks, length := blocksOf(pairs)
	judgement.Blocks = len(blocks)
	judgement.BlockDays = float64(length) / float64(spec.Day)
	// Both figures are drawn from the same blocks: they belong together.
	random := rand.New(rand.NewPCG(seed, 1))
	slow := make([]float64, resamples)
	wait := make([]float64, resamples)
	for k := range resamples {
		var sum block
		for range blocks {
			sum.addBlock(&blocks[random.IntN(len(blocks))])
		}
		slow[k] = change(sum.oldSlow, sum.newSlow)
		wait[k] = change(sum.oldWait, sum.newWait)
	}
	var all block
	for i := range blocks {
		all.addBlock(&blocks[i])
	}
	judgement.Slowdown = interval(change(all.oldSlow, all.newSlow), slow)
	judgement.Wait = interval(change(all.oldWait, all.newWait), wait)
	judgement.Slowdown.Chance = chance(
		blocks,
		random,
		func(b *block) float64 { return b.newSlow - b.oldSlow },
	)
	judgement.Wait.Chance = chance(
		blocks,
		random,
		func(b *block) float64 { return b.newWait - b.oldWait },
	)
	return judgement
}

func (b *block) addBlock(o *block) {
	b.oldSlow += o.oldSlow
	b.newSlow += o.newSlow
	b.oldWait += o.oldWait
	b.newWait += o.newWait
}

// change is relative; where there was nothing, nothing can be gained.
func change(old, fresh float64) float64 {
	switch {
	case old > 0:
		return fresh/old - 1
	case fresh > 0:
		return 1
	}
	return 0
}

func interval(value float64, drawn []float64) Interval {
	slices.Sort(drawn)
	cut := len(drawn) * (100 - level) / 200
	return Interval{Change: value, Low: drawn[cut], High: drawn[len(drawn)-1-cut]}
}

// chance exchanges old and new in blocks drawn at random, and counts how often
// that makes the new schedule look at least as good as it did.
func chance(blocks []block, random *rand.Rand, difference func(*block) float64) float64 {
	differences := make([]float64, len(blocks))
	seen := 0.0
	for i := range blocks {
		differences[i] = difference(&blocks[i])
		seen += differences[i]
	}
	asGood := 1 // the one that was seen
	for range resamples {
		sum := 0.0
		for _, d := range differences {
			if random.Uint64()&1 == 0 {
				d = -d
			}
			sum += d
		}
		if sum <= seen {
			asGood++
		}
	}
	return float64(asGood) / (resamples + 1)
}

// blocksOf sums the jobs that run under both settings by time of submission. A
// block without a job is one too: a quiet week is part of how weeks differ.
func blocksOf(pairs []Pair) ([]block, spec.Span) {
	first := pairs[0].Submit
	span := pairs[len(pairs)-1].Submit.Sub(first) + spec.Second
	length := max(minBlock, (span+maxBlocks-1)/maxBlocks)
	blocks := make([]block, (span+length-1)/length)
	for i := range pairs {
		pair := &pairs[i]
		if pair.OldWait < 0 || pair.NewWait < 0 {
			continue
		}
		blocks[pair.Submit.Sub(first)/length].addBlock(&block{
			oldSlow: slowdown(
				pair.OldWait,
				pair.OldRun,
			), newSlow: slowdown(pair.NewWait, pair.NewRun),
			oldWait: seconds(pair.OldWait), newWait: seconds(pair.NewWait),
		})
	}
	return blocks, length
}

func slowdown(wait, run spec.Span) float64 {
	return max(1, float64(wait+run)/float64(max(run, replay.Tau)))
}

func seconds(s spec.Span) float64 { return float64(s) / float64(spec.Second) }

// giveVerdict is what a comparison out of sample allows to say.
func (j *Judgement) giveVerdict(aim Aim, bounds Bounds) (Verdict, string) {
	in := j.Slowdown
	name := "mean bounded slowdown"
	if aim == Wait {
		in = j.Wait
		name = "mean wait"
	}
	if broken := bounds.findBroken(&j.New, &j.Old); broken != "" {
		return NotConfirmed, "on the second half " + broken
	}
	if in.High >= 0 || in.Chance > maxChance {
		return NotConfirmed, fmt.Sprintf(
			"on the second half the %s changes by %+.1f %%, which may be chance: between %+.1f and %+.1f %%",
			name,
			100*in.Change,
			100*in.Low,
			100*in.High,
		)
	}
	return Change, fmt.Sprintf(
		"on the second half the %s changes by %+.1f %%, with %d %% confidence by at least %.1f %%",
		name,
		100*in.Change,
		level,
		-100*in.High,
	)
}

// A group loses that waits longer in the mean by both of these: below, neither
// a person nor a report would notice.
const (
	loserShare   = 0.05
	loserSeconds = 60
)

// losers are the groups that wait longer, those with the most hours in all
// first.
func losers(pairs []Pair) []Group {
	type key struct{ kind, name string }
	sums := map[key]*Group{}
	count := func(kind, name string, pair *Pair) {
		group := sums[key{kind, name}]
		if group == nil {
			group = &Group{Kind: kind, Name: name}
			sums[key{kind, name}] = group
		}
		group.Jobs++
		group.OldWait += seconds(pair.OldWait)
		group.NewWait += seconds(pair.NewWait)
	}
	for i := range pairs {
		pair := &pairs[i]
		if pair.OldWait < 0 || pair.NewWait < 0 {
			continue
		}
		count("user", pair.User, pair)
		count("account", pair.Account, pair)
		count("size", pair.Size, pair)
	}
	groups := []Group{}
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b key) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name)) }) {
		group := sums[k]
		more := (group.NewWait - group.OldWait) / float64(group.Jobs)
		if more < loserSeconds || group.NewWait < group.OldWait*(1+loserShare) {
			continue
		}
		group.OldWait /= float64(group.Jobs)
		group.NewWait /= float64(group.Jobs)
		groups = append(groups, *group)
	}
	slices.SortStableFunc(groups, func(a, b Group) int {
		return cmp.Compare(b.countHours(), a.countHours())
	})
	return groups
}

func (g *Group) countHours() float64 { return (g.NewWait - g.OldWait) * float64(g.Jobs) / 3600 }
