package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/spec"
)

// Row is one job of a trace: what it asked for and what it used. Times are
// whole seconds, as in the traces.
type Row struct {
	ID     int64
	Submit int64
	Run    int64
	Procs  int64
	Limit  int64 // time limit; 0 = none was given
	User   int64
	Group  int64
	GPUs   int64
	// Wait is what the trace recorded; -1 = unknown. Nothing is decided by it.
	Wait int64
	// Name is the trace's own name of the job, where it is no number.
	Name string
}

// Trace is a list of jobs with the lines that introduce it.
type Trace struct {
	Header []string // comment lines, as they are
	Rows   []Row    // in order of submission, then id
	// Skipped counts rows that are no jobs: without processors, run time or
	// submission.
	Skipped int
}

// Fields of the Standard Workload Format, counted from 0.
const (
	swfID = iota
	swfSubmit
	swfWait
	swfRun
	swfProcs
	_
	_
	swfReqProcs
	swfReqTime
	_
	_
	swfUser
	swfGroup
	swfFields = 18
)

// ReadSWF reads a log in the Standard Workload Format. Fields beyond the 18th
// are ignored. The waits that the log recorded are kept and decide nothing.
func ReadSWF(r io.Reader) (*Trace, error) {
	trace := &Trace{}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), 1<<20)
	for line := 1; scanner.Scan(); line++ {
		text := bytes.TrimSpace(scanner.Bytes())
		if len(text) == 0 {
			continue
		}
		if text[0] == ';' {
			trace.Header = append(trace.Header, string(text))
			continue
		}
		row, err := swfRow(text)
		if err != nil {
			if !scanner.Scan() && errors.Is(scanner.Err(), io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("line %d: the file is cut off here", line)
			}
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if row.Procs <= 0 || row.Run < 0 || row.Submit < 0 {
			trace.Skipped++
			continue
		}
		trace.Rows = append(trace.Rows, row)
	}
	switch err := scanner.Err(); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("behind %d jobs the file is cut off", len(trace.Rows))
	case err != nil:
		return nil, err
	}
	return trace, trace.sortRows()
}

// ErrEmpty tells that a trace has no job.
var ErrEmpty = errors.New("there is no job in it")

// sortRows puts the rows in order.
func (t *Trace) sortRows() error {
	if len(t.Rows) == 0 {
		return ErrEmpty
	}
	slices.SortStableFunc(t.Rows, func(a, b Row) int {
		if a.Submit != b.Submit {
			return int(max(min(a.Submit-b.Submit, 1), -1))
		}
		return int(max(min(a.ID-b.ID, 1), -1))
	})
	return nil
}

func swfRow(text []byte) (Row, error) {
	var f [swfFields]int64
	n := 0
	for n < swfFields {
		text = bytes.TrimLeft(text, " \t")
		if len(text) == 0 {
			break
		}
		end := bytes.IndexAny(text, " \t")
		if end < 0 {
			end = len(text)
		}
		value, err := parseWhole(text[:end])
		if err != nil {
			return Row{}, fmt.Errorf("field %d: %w", n+1, err)
		}
		f[n], text = value, text[end:]
		n++
	}
	if n <= swfReqTime {
		return Row{}, fmt.Errorf("%d fields: the Standard Workload Format has %d", n, swfFields)
	}
	row := Row{
		ID:     f[swfID],
		Submit: f[swfSubmit],
		Wait:   f[swfWait],
		Run:    f[swfRun],
		Procs:  f[swfReqProcs],
		Limit:  max(f[swfReqTime], 0),
		User:   f[swfUser],
		Group:  f[swfGroup],
	}
	if row.Procs <= 0 {
		row.Procs = f[swfProcs]
	}
	return row, nil
}

// parseWhole reads a number and drops its decimals.
func parseWhole(data []byte) (int64, error) {
	if i := bytes.IndexByte(data, '.'); i >= 0 {
		data = data[:i]
	}
	value, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", data)
	}
	if value > maxSeconds {
		return 0, fmt.Errorf("%d is too large", value)
	}
	return value, nil
}

// maxSeconds bounds every number of a trace, so that no sum overflows.
const maxSeconds = int64(spec.FarFuture) / int64(spec.Second) / 4

// WriteSWF writes the schedule: the rows with their simulated waits. Jobs that
// never started have the wait and the run time -1 and the status 5
// (cancelled), as the format says.
func (t *Trace) WriteSWF(w io.Writer, result *Result) error {
	b := bufio.NewWriterSize(w, 256<<10)
	for _, h := range t.Header {
		if _, err := b.WriteString(h + "\n"); err != nil {
			return err
		}
	}
	var buf []byte
	for i := range t.Rows {
		row := &t.Rows[i]
		wait := int64(-1)
		run := int64(-1)
		status := int64(5)
		if outcome := &result.Jobs[i]; outcome.Started() {
			wait = wholeSeconds(outcome.Wait())
			run = wholeSeconds(outcome.End.Sub(outcome.Start))
			status = -1
		}
		limit := int64(-1)
		if row.Limit > 0 {
			limit = row.Limit
		}
		buf = buf[:0]
		for k, value := range [swfFields]int64{
			row.ID,
			row.Submit,
			wait,
			run,
			row.Procs,
			-1,
			-1,
			row.Procs,
			limit,
			-1,
			status,
			row.User,
			row.Group,
			-1,
			-1,
			-1,
			-1,
			-1,
		} {
			if k > 0 {
				buf = append(buf, ' ')
			}
			buf = strconv.AppendInt(buf, value, 10)
		}
		if _, err := b.Write(append(buf, '\n')); err != nil {
			return err
		}
	}
	return b.Flush()
}
