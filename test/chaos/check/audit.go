package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/test/chaos/acked"
)

// mark is a line that an attempt of a job appended to the side-effect file.
type mark struct {
	key     string // 12 or 12_3
	attempt int    // SLURM_RESTART_COUNT
	what    string // start, end, or double: another process of the job was alive
	at      int64  // ns
	pid     int
}

// row is a record of sacct.
type row struct {
	key   string
	state string // first word
	exit  string
	start string
	end   string
}

// facts are everything that the checker may look at.
type facts struct {
	acked  []acked.Entry
	marks  []mark
	queued map[string]string // squeue: key -> state, of jobs that have not ended
	rows   []row             // sacct with duplicates, in its order
}

// verdict is what the facts say.
type verdict struct {
	acked       int // jobs, the tasks of arrays each
	lost        []string
	doubleRun   []string
	unaccounted []string
	queued      []string // still there: not judged yet
	ran         int      // attempts that started
	again       int      // jobs with more than one attempt
	unseen      int      // final records of exits that nobody saw
	states      map[string]int
}

// audit judges the facts. Each finding is one line for people that begins
// with the job.
func audit(f facts) verdict {
	v := verdict{states: map[string]int{}}
	byKey := map[string][]row{}
	for _, r := range f.rows {
		byKey[r.key] = append(byKey[r.key], r)
	}
	runs := map[string][]mark{}
	for _, m := range f.marks {
		runs[m.key] = append(runs[m.key], m)
	}
	seen := map[string]bool{}
	for _, e := range f.acked {
		for _, key := range e.Keys() {
			v.acked++
			if seen[key] {
				v.lost = append(v.lost, key+": its number was acknowledged twice, so one of the two jobs is gone")
				continue
			}
			seen[key] = true
			state, queued := f.queued[key]
			switch {
			case queued && !ended(byKey[key]):
				v.queued = append(v.queued, fmt.Sprintf("%s: still %s", key, state))
			case len(byKey[key]) == 0:
				if !queued && len(runs[key]) == 0 {
					v.lost = append(v.lost, key+": neither squeue nor sacct knows it, and it never ran")
				} else {
					v.unaccounted = append(v.unaccounted, key+": it ran, but sacct has no record of it")
				}
			default:
				v.account(key, e.Kind, byKey[key], runs[key])
			}
		}
	}
	// Also jobs whose acknowledgement was lost on the way must not run twice.
	for _, key := range sortedKeys(runs) {
		v.doubles(key, runs[key])
	}
	return v
}

func sortedKeys(m map[string][]mark) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// final tells the states after which nothing follows.
func final(state string) bool {
	return slices.Contains([]string{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED"}, state)
}

func ended(rows []row) bool { return len(rows) > 0 && final(rows[len(rows)-1].state) }

// account compares a job's records with what it did.
func (v *verdict) account(key string, kind acked.Kind, rows []row, marks []mark) {
	bad := func(format string, args ...any) {
		v.unaccounted = append(v.unaccounted, key+": "+fmt.Sprintf(format, args...))
	}
	last := rows[len(rows)-1]
	v.states[last.state]++
	if !final(last.state) {
		bad("it has left the queue, but sacct says %s", last.state)
		return
	}
	for i, r := range rows {
		for _, other := range rows[:i] {
			if other.start == r.start && other.end == r.end {
				bad("sacct has two records of the attempt that started %s", r.start)
				return
			}
		}
		if i < len(rows)-1 && (r.state == "COMPLETED" || r.state == "FAILED") && rows[i+1].state == "COMPLETED" {
			bad("sacct has it %s and %s", r.state, rows[i+1].state)
			return
		}
	}
	started, ends := 0, 0
	for _, m := range marks {
		switch m.what {
		case "start":
			started++
		case "end":
			ends++
		}
	}
	switch {
	case started > len(rows):
		bad("%d attempts started, sacct has %d records", started, len(rows))
	case last.state == "COMPLETED" && kind != acked.OK:
		bad("it exits with 7, sacct says COMPLETED")
	case last.state == "COMPLETED" && ends == 0:
		bad("sacct says COMPLETED, but it never came to its end")
	case last.state == "FAILED" && kind == acked.OK && last.exit != "0:0" && ends > 0 && strings.HasSuffix(last.exit, ":0"):
		bad("it exits with 0, sacct says FAILED with %s", last.exit)
	case last.state == "FAILED" && kind == acked.Fails && ends > 0 && last.exit == "7:0":
	case last.state != "COMPLETED":
		v.unseen++
	}
}

// doubles finds attempts of a job that were alive at the same time.
func (v *verdict) doubles(key string, marks []mark) {
	type span struct {
		start, end int64
		pid        int
	}
	spans := map[int]span{}
	var order []int
	for _, m := range marks {
		switch m.what {
		case "double":
			v.doubleRun = append(v.doubleRun, fmt.Sprintf("%s: attempt %d (pid %d) found another process of the job alive", key, m.attempt, m.pid))
			return
		case "start":
			v.ran++
			if s, twice := spans[m.attempt]; twice {
				v.doubleRun = append(v.doubleRun, fmt.Sprintf("%s: attempt %d started twice, as pid %d and as pid %d", key, m.attempt, s.pid, m.pid))
				return
			}
			spans[m.attempt] = span{start: m.at, pid: m.pid}
			order = append(order, m.attempt)
		case "end":
			s := spans[m.attempt]
			s.end = m.at
			spans[m.attempt] = s
		}
	}
	if len(order) > 1 {
		v.again++
	}
	for i, a := range order {
		for _, b := range order[:i] {
			if spans[b].end > spans[a].start && spans[a].start > spans[b].start {
				v.doubleRun = append(v.doubleRun, fmt.Sprintf("%s: attempt %d started %d ms before attempt %d ended", key, a, (spans[b].end-spans[a].start)/1e6, b))
				return
			}
		}
	}
}

// readMarks reads the side-effect file. A line that is cut off (its writer
// was killed) has no newline at the end of the file.
func readMarks(r io.Reader) ([]mark, error) {
	var out []mark
	in := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		f := strings.Fields(text)
		if len(f) != 5 {
			return nil, fmt.Errorf("side effects, line %d: %q has %d fields, want job, attempt, start|end|double, time and pid", line, text, len(f))
		}
		attempt, err1 := strconv.Atoi(f[1])
		at, err2 := strconv.ParseInt(f[3], 10, 64)
		pid, err3 := strconv.Atoi(f[4])
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf("side effects, line %d: %q is not job, attempt, start|end|double, time and pid", line, text)
		}
		out = append(out, mark{key: f[0], attempt: attempt, what: f[2], at: at, pid: pid})
	}
}

// readRows reads `sacct -n -P -o JobID,State,ExitCode,Start,End`.
func readRows(text string) ([]row, error) {
	var out []row
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\n"), "|")
		if len(f) != 5 {
			return nil, fmt.Errorf("sacct printed %q, want five columns", line)
		}
		state, _, _ := strings.Cut(f[1], " ") // CANCELLED by 0
		out = append(out, row{key: f[0], state: state, exit: f[2], start: f[3], end: f[4]})
	}
	return out, nil
}

// readQueue reads `squeue -h -r -o "%i|%T"`.
func readQueue(text string) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		key, state, ok := strings.Cut(strings.TrimSpace(line), "|")
		if !ok {
			return nil, fmt.Errorf("squeue printed %q, want job and state", line)
		}
		out[key] = state
	}
	return out, nil
}
