package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

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
	key      string
	state    string // first word
	exit     string
	start    string
	end      string
	restarts int // which attempt it is: 0 for the first, as SLURM_RESTART_COUNT
}

// loss is a part of the history that was taken back: the state of the instant
// from was put in the place of the state of the instant to.
type loss struct {
	from, to int64 // ns
}

// losses are in the order in which they happened.
type losses []loss

// has tells whether what happened at that instant was taken back.
func (l losses) has(at int64) bool {
	return slices.ContainsFunc(l, func(one loss) bool { return one.from <= at && at < one.to })
}

// history counts the restorations before an instant.
func (l losses) history(at int64) int {
	n := 0
	for _, one := range l {
		if one.to <= at {
			n++
		}
	}
	return n
}

// touches tells whether a job may have run in a history that was taken back. sacct
// rounds times down to the second, and a backup holds what happened until some time
// after it was asked for, so the bounds are wide. Accounting keeps the records of both
// histories, so that of such a job only the number of records can be judged: every run
// that was not taken back has one.
func (l losses) touches(rows []row, did []attempt) bool {
	if slices.ContainsFunc(did, func(a attempt) bool { return a.takenBack }) {
		return true
	}
	return slices.ContainsFunc(rows, func(r row) bool {
		end, ended := nanoseconds(r.end)
		start, started := nanoseconds(r.start)
		if !started {
			start = end // it was cancelled while it waited
		}
		return ended && slices.ContainsFunc(l, func(one loss) bool {
			return start < one.to && one.from-int64(time.Second) <= end
		})
	})
}

// nanoseconds reads a time of sacct; some are Unknown.
func nanoseconds(text string) (int64, bool) {
	at, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.Local)
	return at.UnixNano(), err == nil
}

// facts are everything that the checker may look at.
type facts struct {
	acked  []acked.Entry
	losses losses
	marks  []mark
	queued map[string]string // squeue: key -> state, of jobs that have not ended
	rows   []row             // sacct with duplicates, in its order
}

// verdict is what the facts say.
type verdict struct {
	acked       int // jobs, the tasks of arrays each
	takenBack   int // jobs acknowledged in a history that was taken back; only their runs are judged
	lost        []string
	doubleRun   []string
	unaccounted []string
	queued      []string // still there: not judged yet
	ran         int      // attempts that started
	again       int      // jobs with more than one attempt
	unseen      int      // final records of exits that nobody saw
	states      map[string]int
}

// auditFacts judges the facts. Each finding is one line for people that begins
// with the job.
func auditFacts(f facts) verdict {
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
	// A number of the lost history may be given again where neither a node nor
	// accounting had told the controller of it: accounting has both jobs then.
	reused := map[string]bool{}
	for _, entry := range f.acked {
		if f.losses.has(entry.At) {
			reused[strconv.FormatUint(uint64(entry.Job), 10)] = true
		}
	}
	for _, entry := range f.acked {
		if f.losses.has(entry.At) {
			v.takenBack += len(entry.Keys())
			continue
		}
		for _, key := range entry.Keys() {
			v.acked++
			if seen[key] {
				v.lost = append(v.lost, key+
					": its number was acknowledged twice, so one of the two jobs is gone")
				continue
			}
			seen[key] = true
			state, queued := f.queued[key]
			switch {
			case queued && !ended(byKey[key]):
				v.queued = append(v.queued, fmt.Sprintf("%s: still %s", key, state))
			case len(byKey[key]) == 0:
				if !queued && len(runs[key]) == 0 {
					v.lost = append(v.lost, key+
						": neither squeue nor sacct knows it, and it never ran")
				} else {
					v.unaccounted = append(v.unaccounted, key+
						": it ran, but sacct has no record of it")
				}
			default:
				did := f.losses.attempts(runs[key])
				number, _, _ := strings.Cut(key, "_")
				touched := reused[number] || f.losses.touches(byKey[key], did)
				v.account(key, entry.Kind, byKey[key], did, touched)
			}
		}
	}
	// Also jobs whose acknowledgement was lost on the way must not run twice.
	for _, key := range sortedKeys(runs) {
		v.doubles(key, runs[key], f.losses)
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
	return slices.Contains(
		[]string{
			"COMPLETED",
			"FAILED",
			"CANCELLED",
			"TIMEOUT",
			"NODE_FAIL",
			"OUT_OF_MEMORY",
			"BOOT_FAIL",
			"DEADLINE",
			"PREEMPTED",
		},
		state,
	)
}

func ended(rows []row) bool { return len(rows) > 0 && final(rows[len(rows)-1].state) }

// account compares a job's records with what it did. touched tells that records of a
// lost history may be among them.
func (v *verdict) account(key string, kind acked.Kind, rows []row, did []attempt, touched bool) {
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
		same := func(other row) bool { return other.restarts == r.restarts }
		if !touched && slices.ContainsFunc(rows[:i], same) {
			bad("sacct has two records of attempt %d", r.restarts)
			return
		}
		again := i < len(rows)-1 && rows[i+1].state == "COMPLETED"
		if again && !touched && (r.state == "COMPLETED" || r.state == "FAILED") {
			bad("sacct has it %s and %s", r.state, rows[i+1].state)
			return
		}
	}
	stayed, ends := 0, 0
	for _, a := range did {
		// A run that began while the backup was made may be known after all.
		if a.end != 0 {
			ends++
		}
		if a.takenBack {
			continue
		}
		stayed++
		if !touched &&
			!slices.ContainsFunc(rows, func(r row) bool { return r.restarts == a.number }) {
			bad("attempt %d started, sacct has no record of it", a.number)
			return
		}
	}
	if stayed > len(rows) {
		bad("%d attempts started, sacct has %d records", stayed, len(rows))
		return
	}
	switch {
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

// attempt is one start of a job's script.
type attempt struct {
	number     int
	pid        int
	history    int  // restorations of an older state before it
	takenBack  bool // the state that was restored does not know it
	start, end int64
}

// attempts joins the starts and ends of one job. A process's end belongs to its
// start: a run of a history that was taken back may end in the next one.
func (l losses) attempts(marks []mark) []attempt {
	var attempts []attempt
	for _, m := range marks {
		switch m.what {
		case "start":
			attempts = append(
				attempts,
				attempt{
					number:    m.attempt,
					pid:       m.pid,
					history:   l.history(m.at),
					takenBack: l.has(m.at),
					start:     m.at,
				},
			)
		case "end":
			for i := len(attempts) - 1; i >= 0; i-- {
				if attempts[i].pid == m.pid && attempts[i].number == m.attempt {
					attempts[i].end = m.at
					break
				}
			}
		}
	}
	return attempts
}

// doubles finds attempts of a job that were alive at the same time. An attempt
// that was taken back may be made again, but not beside the old one.
func (v *verdict) doubles(key string, marks []mark, lost losses) {
	for _, m := range marks {
		if m.what == "double" {
			v.doubleRun = append(
				v.doubleRun,
				fmt.Sprintf(
					"%s: attempt %d (pid %d) found another process of the job alive",
					key,
					m.attempt,
					m.pid,
				),
			)
			return
		}
	}
	did := lost.attempts(marks)
	v.ran += len(did)
	if len(did) > 1 {
		v.again++
	}
	for i, a := range did {
		for _, b := range did[:i] {
			if a.number == b.number && a.history == b.history {
				v.doubleRun = append(
					v.doubleRun,
					fmt.Sprintf(
						"%s: attempt %d started twice, as pid %d and as pid %d",
						key,
						a.number,
						b.pid,
						a.pid,
					),
				)
				return
			}
			if b.end > a.start && a.start > b.start {
				v.doubleRun = append(
					v.doubleRun,
					fmt.Sprintf(
						"%s: attempt %d started %d ms before attempt %d ended",
						key,
						a.number,
						(b.end-a.start)/1e6,
						b.number,
					),
				)
				return
			}
		}
	}
}

// readMarks reads the side-effect file. A line that is cut off (its writer
// was killed) has no newline at the end of the file.
func readMarks(r io.Reader) ([]mark, error) {
	var marks []mark
	in := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return marks, nil
		}
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(text)
		if len(fields) != 5 {
			return nil, fmt.Errorf(
				"side effects, line %d: %q has %d fields, want job, attempt, start|end|double, time and pid",
				line,
				text,
				len(fields),
			)
		}
		attempt, err1 := strconv.Atoi(fields[1])
		at, err2 := strconv.ParseInt(fields[3], 10, 64)
		pid, err3 := strconv.Atoi(fields[4])
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf(
				"side effects, line %d: %q is not job, attempt, start|end|double, time and pid",
				line,
				text,
			)
		}
		marks = append(
			marks, mark{key: fields[0], attempt: attempt, what: fields[2], at: at, pid: pid},
		)
	}
}

// readRows reads `sacct -n -P -o JobID,State,ExitCode,Start,End,Restarts`.
func readRows(text string) ([]row, error) {
	var rows []row
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "|")
		if len(fields) != 6 {
			return nil, fmt.Errorf("sacct printed %q, want six columns", line)
		}
		restarts, err := strconv.Atoi(fields[5])
		if err != nil {
			return nil, fmt.Errorf(
				"sacct printed %q, want a number of restarts in the last column",
				line,
			)
		}
		state, _, _ := strings.Cut(fields[1], " ") // CANCELLED by 0
		rows = append(
			rows,
			row{
				key:      fields[0],
				state:    state,
				exit:     fields[2],
				start:    fields[3],
				end:      fields[4],
				restarts: restarts,
			},
		)
	}
	return rows, nil
}

// readLosses reads the restorations of a run: a line for each, with the instant
// of the state that was put back and the instant at which it was.
func readLosses(r io.Reader) (losses, error) {
	var out losses
	in := bufio.NewScanner(r)
	for line := 1; in.Scan(); line++ {
		var one loss
		if _, err := fmt.Sscanf(in.Text()+"\n", "%d %d\n", &one.from, &one.to); err != nil ||
			one.to < one.from {
			return nil, fmt.Errorf(
				"restorations, line %d: %q is not two instants in ns",
				line,
				in.Text(),
			)
		}
		out = append(out, one)
	}
	return out, in.Err()
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
