package importer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// The stretch of time that is imported.
const (
	growFrom = 1_795_330_000
	growTo   = 1_795_340_000
)

// answers is how often a history is looked at: read, compared, read again, compared again.
const answers = 4

// grownRun is a run of a history that grows: from which answer on Slurm has it, and has its
// end. Later than the last is never.
type grownRun struct {
	cpus, submit, start, end int
	seen, over               int
	damaged                  bool // sacct's line of it cannot be read
	purged                   int  // the answer from which on Slurm has it no more
}

// drawHistory makes runs that begin and end anywhere around the stretch. Half of all histories
// do not grow between the first two answers, and half not between the last two.
func drawHistory(r *rand.Rand) []grownRun {
	late := []int{0, 0, 0, 1, 2, 3, answers}
	if r.IntN(2) == 0 {
		late = []int{0, 0, 0, 2, answers}
	}
	var runs []grownRun
	for range r.IntN(40) {
		submit := growFrom - 200 + r.IntN(growTo-growFrom+300)
		start := submit + r.IntN(100)
		run := grownRun{
			cpus:   1 + r.IntN(64),
			submit: submit,
			start:  start,
			end:    start + r.IntN(2000),
			seen:   late[r.IntN(len(late))],
			purged: answers,
		}
		run.over = max(run.seen, late[r.IntN(len(late))])
		runs = append(runs, run)
	}
	return runs
}

// fakeSacct is a folder with a sacct that gives the answers of a history one after the other,
// each cut to the stretch that is asked for. A reading of several stretches is one answer.
func fakeSacct(t *testing.T, runs []grownRun) string {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
cd ` + dir + ` || exit 1
for word; do case $word in
--helpformat) echo ` + strings.Join(importer.Columns(), " ") + `; exit;;
--starttime=*) from=$(date -d "${word#*=}" +%s);;
--endtime=*) to=$(date -d "${word#*=}" +%s);;
--format=State,*) short=1;;
esac; done
read answer < answer
if [ "$short" ]; then
	file=short.$answer columns='start=2 end=3'
	echo $((answer + 1)) > answer
else
	file=full.$((answer / 2 * 2)) columns='start=3 end=5'
	[ $((answer % 2)) = 1 ] || echo $((answer + 1)) > answer
	echo 'JobIDRaw|State|Submit|Start|End|User|AllocCPUS|NodeList'
fi
exec awk -F'|' -v from=$from -v to=$to -v ${columns% *} -v ${columns#* } \
	'$start < to && ($end == "Unknown" || $end >= from)' $file
`
	files := map[string]string{"sacct": script, "answer": "0\n"}
	for answer := range answers {
		name := fmt.Sprintf("full.%d", answer)
		if answer%2 == 1 {
			name = fmt.Sprintf("short.%d", answer)
		}
		var text strings.Builder
		for id, run := range runs {
			if answer < run.seen || answer >= run.purged {
				continue
			}
			state := "RUNNING"
			end := "Unknown"
			elapsed := growTo - run.start
			if answer >= run.over {
				state = "COMPLETED"
				end = fmt.Sprint(run.end)
				elapsed = run.end - run.start
			}
			if answer%2 == 1 {
				fmt.Fprintf(&text, "%s|%d|%s|%d|%d|n1\n", state, run.start, end, elapsed, run.cpus)
				continue
			}
			if run.damaged {
				state = "UNHEARD_OF"
			}
			fmt.Fprintf(&text, "%d|%s|%d|%d|%s|u|%d|n1\n",
				id+1, state, run.submit, run.start, end, run.cpus)
		}
		files[name] = text.String()
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// countEnded is what Slurm says of a history at an answer.
func countEnded(runs []grownRun, answer int) importer.Said {
	var out importer.Said
	for _, run := range runs {
		if answer >= run.over && answer < run.purged && growFrom <= run.end && run.end < growTo {
			out.Runs++
			out.CPUSeconds += int64(run.cpus * (run.end - run.start))
		}
	}
	return out
}

// importGrowing imports a history as `muster import slurm` does.
func importGrowing(
	t *testing.T,
	store *clickhouse.Store,
	name string,
	source importer.Slurm,
) importer.Compared {
	t.Helper()
	ledger := tally.ImportedLedger(name)
	writer, err := store.NewImportWriter(t.Context(), ledger, name)
	if err != nil {
		t.Fatal(err)
	}
	config := importer.Config{Ledger: ledger, Store: importer.In(store), Writer: writer}
	from, to := time.Unix(growFrom, 0), time.Unix(growTo, 0)
	read := func(ctx context.Context) error {
		var sum importer.Result
		err := source.Pull(ctx, config, from, to, sum.Sum)
		if err == nil && sum.Lines > 0 && !sum.Reconciled() {
			t.Errorf("%s: the store has %+v, and not %+v and %+v", name, sum.After, sum.Before, sum.Added)
		}
		return err
	}
	if err := read(t.Context()); err != nil {
		t.Fatal(err)
	}
	compared, err := importer.Settle(t.Context(), read, func(ctx context.Context) (importer.Sums, error) {
		slurm, err := source.Ended(ctx, from, to)
		if err != nil {
			return importer.Sums{}, err
		}
		stored, err := importer.StoredEnded(
			ctx, store, ledger, spec.AtUnix(growFrom), spec.AtUnix(growTo))
		return importer.Sums{Slurm: slurm, Stored: stored}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return compared
}

// TestGrowingHistories: whatever reaches Slurm's database between the readings and the
// comparisons of an import, the import is right, and tells exactly what it did not compare.
// MUSTER_LONG draws 40 histories.
func TestGrowingHistories(t *testing.T) {
	store := openStore(t)
	outcomes := map[importer.Outcome]int{}
	late := 0
	seeds := uint64(6)
	if os.Getenv("MUSTER_LONG") != "" {
		seeds = 40
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(17, seed))
		runs := drawHistory(r)
		source := importer.Slurm{
			Bin:  fakeSacct(t, runs),
			Step: time.Duration(3000+r.IntN(9000)) * time.Second,
		}
		got := importGrowing(t, store, fmt.Sprintf("growing%d", seed), source)
		want := importer.Compared{Sums: importer.Sums{
			Slurm:  countEnded(runs, 1),
			Stored: countEnded(runs, 0),
		}}
		if !want.Equal() {
			want.Late = countEnded(runs, 2).Runs - want.Stored.Runs
			want.Sums = importer.Sums{Slurm: countEnded(runs, 3), Stored: countEnded(runs, 2)}
			if !want.Equal() {
				want.Outcome = importer.Growing
			}
		}
		if got != want {
			t.Errorf("seed %d: %+v, want %+v\n%+v", seed, got, want, runs)
		}
		outcomes[got.Outcome]++
		late += int(got.Late)
	}
	t.Logf("%v by outcome, %d late runs", outcomes, late)
	if outcomes[importer.Same] == 0 || outcomes[importer.Growing] == 0 || late == 0 {
		t.Error("the histories do not grow in every way")
	}
}

// TestDifferentHistories: a run that cannot be read, and one that Slurm has purged, are a
// difference, however much else comes.
func TestDifferentHistories(t *testing.T) {
	store := openStore(t)
	for name, spoil := range map[string]func(*grownRun){
		"damaged": func(run *grownRun) { run.damaged = true },
		"purged":  func(run *grownRun) { run.purged = 1 },
	} {
		run := grownRun{
			cpus: 3, submit: growFrom + 1, start: growFrom + 2, end: growFrom + 300, purged: answers,
		}
		spoilt := run
		spoil(&spoilt)
		grown := run
		grown.cpus = 5
		grown.seen = 1
		grown.over = 1
		for history, runs := range map[string][]grownRun{
			"still":   {run, spoilt},
			"growing": {run, spoilt, grown},
		} {
			source := importer.Slurm{Bin: fakeSacct(t, runs)}
			got := importGrowing(t, store, name+history, source)
			if got.Outcome != importer.Different {
				t.Errorf("%s, %s: %+v", name, history, got)
			}
		}
	}
}
