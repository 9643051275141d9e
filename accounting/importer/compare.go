package importer

import (
	"context"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// Sums are what both sides say of the runs that started, and ended within a stretch of
// time.
type Sums struct{ Slurm, Stored Said }

// Equal tells whether both sides say the same.
func (s Sums) Equal() bool { return s.Slurm == s.Stored }

// has tells whether these runs may be all of others and some more.
func (s Said) has(others Said) bool {
	return s.Runs >= others.Runs && s.CPUSeconds >= others.CPUSeconds
}

// Outcome says what came of a comparison.
type Outcome uint8

const (
	Same Outcome = iota
	// Growing: what Slurm said before the last reading is stored, and more has reached
	// its database since. That was not compared.
	Growing
	Different
)

// Compared is a comparison.
type Compared struct {
	Sums
	Outcome Outcome
	// Late is how many runs of the stretch were stored by reading again.
	Late uint64
}

// Settle compares what is stored of a stretch of time with what Slurm says, and reads
// again if they differ. A run is in Slurm's database some time after it has ended, and
// one that comes there between a reading and a comparison is no fault of either: what
// Slurm said before a reading must be stored after it, and what is stored must not be
// more than Slurm says then.
func Settle(
	ctx context.Context,
	read func(context.Context) error,
	compare func(context.Context) (Sums, error),
) (Compared, error) {
	before, err := compare(ctx)
	if err != nil || before.Equal() {
		return Compared{Sums: before}, err
	}
	if err := read(ctx); err != nil {
		return Compared{Sums: before, Outcome: Different}, err
	}
	after, err := compare(ctx)
	if err != nil {
		return Compared{Sums: before, Outcome: Different}, err
	}
	compared := Compared{Sums: after, Outcome: Different}
	if after.Stored.Runs > before.Stored.Runs {
		compared.Late = after.Stored.Runs - before.Stored.Runs
	}
	switch {
	case after.Equal():
		compared.Outcome = Same
	case after.Slurm.has(after.Stored) && after.Stored.has(before.Slurm):
		compared.Outcome = Growing
	}
	return compared, nil
}

// Reports is a store that answers queries about a ledger.
type Reports interface {
	Database() string
	Position(ctx context.Context, ledger [16]byte) (tally.Position, error)
	Query(ctx context.Context, q query.Query, each func(scan func(dest ...any) error) error) error
}

// StoredEnded adds up what is stored of the runs that started and ended within
// [from, to), by the query of the reports.
func StoredEnded(
	ctx context.Context,
	store Reports,
	ledger [16]byte,
	from, to spec.Instant,
) (Said, error) {
	position, err := store.Position(ctx, ledger)
	if err != nil {
		return Said{}, err
	}
	scope := query.Scope{
		Database: store.Database(),
		Ledger:   ledger,
		Seq:      position.Seq,
		Gen:      position.Gen,
		Now:      to,
	}
	window := query.Report{Start: from, End: to}
	var runs uint64
	var seconds float64
	err = store.Query(
		ctx,
		window.Efficiency(scope, "cluster", 1),
		func(scan func(...any) error) error {
			var key string
			var skip [9]float64
			var failed, judged uint64
			return scan(
				&key,
				&runs,
				&seconds,
				&skip[0],
				&skip[1],
				&skip[2],
				&skip[3],
				&skip[4],
				&skip[5],
				&skip[6],
				&skip[7],
				&failed,
				&judged,
				&skip[8],
			)
		},
	)
	return Said{Runs: runs, CPUSeconds: int64(seconds + 0.5)}, err
}
