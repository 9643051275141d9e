package replay

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// The bounds that are stated in decision 390, in percent of what EASY gives.
const (
	maxSlowdown = 102
	maxMeanWait = 103
	longestWait = 115
)

// busySlowdown is the mean bounded slowdown under EASY from which on waits are compared in
// percent. On a log with few waits one wide job decides, and the bound is the two days for which
// predictions may delay it.
const busySlowdown = 10

// grahamParts are the users of the Graham log by their number modulo 6, each part on
// one pool of processors that its jobs load to 95 %, or that holds its widest job. The
// log holds only jobs that were pending at some noon, so that the waits are long.
func grahamParts(t testing.TB) ([]*Trace, []int64) {
	all, err := ReadGraham(traceFile(t, "graham_slurm_2021.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	const parts = 6
	var traces []*Trace
	var pools []int64
	for part := range int64(parts) {
		tr := &Trace{Header: all.Header}
		var work, widest int64
		for _, row := range all.Rows {
			if row.User%parts == part {
				tr.Rows = append(tr.Rows, row)
				work += row.Procs * min(row.Run, row.Limit)
				widest = max(widest, row.Procs)
			}
		}
		span := tr.Rows[len(tr.Rows)-1].Submit - tr.Rows[0].Submit
		traces = append(traces, tr)
		pools = append(pools, max(work*100/(95*span), widest))
	}
	return traces, pools
}

// quantileOfWaits is the wait that so many percent of the jobs do not exceed.
func quantileOfWaits(res *Result, percent int) float64 {
	var waits []float64
	for i := range res.Jobs {
		if res.Jobs[i].Started() {
			waits = append(waits, asFloat(res.Jobs[i].Wait()))
		}
	}
	slices.Sort(waits)
	return waits[(len(waits)*percent+99)/100-1]
}

// TestDefaultPolicyIsFair: beside EASY, on each log, short jobs gain, and those that wait
// longest do not pay for it by more than is stated: neither the one that waits longest,
// nor the hundredth part that does, nor many users.
func TestDefaultPolicyIsFair(t *testing.T) {
	if os.Getenv("MUSTER_LONG") == "" {
		t.Skip("set MUSTER_LONG=1, or run make test-long")
	}
	type load struct {
		name   string
		tr     *Trace
		pool   int64
		maxP99 float64 // percent
		paying int     // percent of the users with many jobs
	}
	loads := []load{
		{"KTH", readTrace(t, "easy/KTH-SP2.easy.swf.gz"), 100, longestWait, 8},
		{"Theta", readTrace(t, "ALCF-Theta-2023.swf.gz"), 4360, longestWait, 8},
	}
	traces, pools := grahamParts(t)
	for i := range traces {
		loads = append(loads, load{fmt.Sprint("Graham ", i), traces[i], pools[i], 160, 12})
	}
	for _, l := range loads {
		t.Run(l.name, func(t *testing.T) {
			easy := replayed(t, l.tr, l.pool, "easy")
			own := replayed(t, l.tr, l.pool, "muster")
			before, after := easy.Summarise(), own.Summarise()
			p99Before, p99After := quantileOfWaits(easy, 99), quantileOfWaits(own, 99)
			users := compareUsers(slowdownsByUser(l.tr, easy), slowdownsByUser(l.tr, own), manyJobs)
			t.Logf("slowdown %.1f, EASY %.1f; mean wait %.0f, %.0f; p99 %.0f, %.0f; longest %.0f, %.0f; users %+v",
				after.MeanSlowdown, before.MeanSlowdown, after.MeanWait, before.MeanWait, p99After, p99Before,
				after.MaxWait, before.MaxWait, users)
			if after.Jobs != before.Jobs || after.Jobs == 0 {
				t.Errorf("%d jobs ran, under EASY %d", after.Jobs, before.Jobs)
			}
			if after.MeanSlowdown*100 > before.MeanSlowdown*maxSlowdown {
				t.Errorf("mean bounded slowdown %.2f, under EASY %.2f", after.MeanSlowdown, before.MeanSlowdown)
			}
			if after.MeanWait*100 > before.MeanWait*maxMeanWait {
				t.Errorf("mean wait %.0f s, under EASY %.0f s", after.MeanWait, before.MeanWait)
			}
			maxWait := before.MaxWait * longestWait / 100
			if before.MeanSlowdown < busySlowdown {
				maxWait = before.MaxWait + asFloat(2*spec.Day)
			}
			if after.MaxWait > maxWait {
				t.Errorf("longest wait %.0f s, under EASY %.0f s", after.MaxWait, before.MaxWait)
			}
			if p99After*100 > p99Before*l.maxP99 {
				t.Errorf("p99 of waits %.0f s, under EASY %.0f s", p99After, p99Before)
			}
			if users.worse*100 > users.users*l.paying {
				t.Errorf("of %d users with many jobs %d pay", users.users, users.worse)
			}
		})
	}
}
