package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// table reads a file of comma-separated values by the names of its columns.
type table struct {
	csv  *csv.Reader
	at   map[string]int
	row  []string
	line int
	err  error // the first that a value made
}

func newTable(r io.Reader, need ...string) (*table, error) {
	t := &table{csv: csv.NewReader(r), at: map[string]int{}, line: 1}
	t.csv.ReuseRecord, t.csv.LazyQuotes = true, true
	head, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, ErrEmpty
	}
	if err != nil {
		return nil, err
	}
	for i, name := range head {
		t.at[name] = i
	}
	for _, name := range need {
		if _, ok := t.at[name]; !ok {
			return nil, fmt.Errorf("the first line names no column %q", name)
		}
	}
	return t, nil
}

// nextRow goes to the next row; false at the end or after an error.
func (t *table) nextRow() bool {
	if t.err != nil {
		return false
	}
	row, err := t.csv.Read()
	t.line++
	if err != nil {
		if !errors.Is(err, io.EOF) {
			t.err = err
		}
		return false
	}
	t.row = row
	return true
}

func (t *table) text(name string) string { return t.row[t.at[name]] }

// readNumber is a whole number; decimals are dropped, an empty field is 0.
func (t *table) readNumber(name string) int64 {
	text := t.text(name)
	if text == "" {
		return 0
	}
	value, err := parseWhole([]byte(text))
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("line %d: %s: %w", t.line, name, err)
	}
	return value
}

// readInstant is a time of day in seconds since 1970, taken as UTC.
func (t *table) readInstant(name string) int64 {
	at, err := time.Parse(time.DateTime, t.text(name))
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("line %d: %s: %w", t.line, name, err)
	}
	return at.Unix()
}

// ReadITP reads the deep-learning jobs of one cluster; "" is the first that
// the file names. The file tells neither CPUs nor limits: a job gets a CPU for
// each GPU, and its run time as its limit.
func ReadITP(r io.Reader, cluster string) (*Trace, error) {
	t, err := newTable(r, "cluster", "job_id", "submit_s", "duration_s", "num_gpu")
	if err != nil {
		return nil, err
	}
	trace := &Trace{}
	others := map[string]bool{}
	for t.nextRow() {
		if cluster == "" {
			cluster = t.text("cluster")
		}
		if t.text("cluster") != cluster {
			others[t.text("cluster")] = true
			continue
		}
		g := t.readNumber("num_gpu")
		if g <= 0 {
			trace.Skipped++
			continue
		}
		trace.Rows = append(
			trace.Rows,
			Row{
				ID:     int64(len(trace.Rows) + 1),
				Name:   t.text("job_id"),
				Submit: t.readNumber("submit_s"),
				Run:    t.readNumber("duration_s"),
				Procs:  g,
				GPUs:   g,
				Wait:   -1,
			},
		)
	}
	if t.err != nil {
		return nil, t.err
	}
	if len(trace.Rows) == 0 && len(others) > 0 {
		return nil, fmt.Errorf(
			"no job of cluster %q: the file has %d other clusters",
			cluster,
			len(others),
		)
	}
	return trace, trace.sortRows()
}

// ReadGraham reads the jobs of a Slurm site that were still pending at some
// noon: a sample of its load, not all of it.
func ReadGraham(r io.Reader) (*Trace, error) {
	t, err := newTable(
		r,
		"job_unique_id",
		"submit_time",
		"start_time",
		"elapsed_time",
		"time_limit_sec",
		"account_id",
		"req_cpus",
		"gpus",
	)
	if err != nil {
		return nil, err
	}
	trace := &Trace{}
	for t.nextRow() {
		procs := t.readNumber("req_cpus")
		if procs <= 0 {
			trace.Skipped++
			continue
		}
		submit := t.readInstant("submit_time")
		account := t.readNumber("account_id")
		trace.Rows = append(
			trace.Rows,
			Row{
				ID:     t.readNumber("job_unique_id"),
				Submit: submit,
				Wait:   t.readInstant("start_time") - submit,
				Run:    t.readNumber("elapsed_time"),
				Procs:  procs,
				Limit: t.readNumber(
					"time_limit_sec",
				),
				User:  account,
				Group: account,
				GPUs:  t.readNumber("gpus"),
			},
		)
	}
	if t.err != nil {
		return nil, t.err
	}
	if err := trace.sortRows(); err != nil {
		return nil, err
	}
	zero := trace.Rows[0].Submit
	for i := range trace.Rows {
		trace.Rows[i].Submit -= zero
	}
	trace.Header = append(trace.Header, "; UnixStartTime: "+strconv.FormatInt(zero, 10))
	return trace, nil
}
