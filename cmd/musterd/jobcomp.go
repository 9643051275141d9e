package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// jobComp writes JobCompType=jobcomp/filetxt: one line for each job that
// ended. It is a convenience for sites that read the file: the record of
// what happened is the ledger, and a line that a crash cost is not written
// again.
type jobComp struct {
	path  string
	lines chan string
	log   *slog.Logger
}

func newJobComp(path string, l *slog.Logger) *jobComp {
	return &jobComp{path: path, lines: make(chan string, 65536), log: l}
}

// committed formats the jobs that ended in a batch.
func (c *jobComp) committed(st *state.State, events []event.Envelope) {
	for i := range events {
		e, ok := events[i].Event.(*event.JobEnded)
		if !ok {
			continue
		}
		j := st.Job(e.UID)
		if j == nil {
			continue
		}
		select {
		case c.lines <- jobCompLine(st, j):
		default:
			c.log.Warn("the job completion file is too slow: a line is dropped", "job", j.ID, "file", c.path)
		}
	}
}

// run writes until the context ends.
func (c *jobComp) run(ctx context.Context) error {
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("JobCompLoc: %w", err)
	}
	defer f.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line := <-c.lines:
			if _, err := f.WriteString(line); err != nil {
				c.log.Error("the job completion file cannot be written", "error", err)
			}
		}
	}
}

func jobCompLine(st *state.State, j *state.Job) string {
	js := j.Spec
	nodes, count, cpus, tres := "(null)", 0, j.Req.CPU, j.Req
	if j.Alloc != nil {
		nodes, count, cpus, tres = hostlist.Fold(j.Alloc.NodeNames()), len(j.Alloc.Nodes), j.Alloc.TRES.CPU, j.Alloc.TRES
	}
	limit := "UNLIMITED"
	if j.Limit != spec.Infinite {
		limit = fmt.Sprint(j.Limit.Seconds() / 60)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "JobId=%d UserId=%s(%d) GroupId=%s(%d) Name=%s JobState=%s Partition=%s TimeLimit=%s StartTime=%s EndTime=%s NodeList=%s NodeCnt=%d ProcCnt=%d WorkDir=%s ReservationName= Tres=%s Account=%s QOS=%s WcKey=%s Cluster=%s SubmitTime=%s EligibleTime=%s DerivedExitCode=%d:%d ExitCode=%d:%d \n",
		j.ID, js.User, js.UID, js.Group, js.GID, js.Name, j.State, j.Partition(), limit, clockTime(j.Started), clockTime(j.Ended), nodes, count, cpus,
		js.IO.WorkDir, tres, js.Account, js.QOS, js.WCKey, st.ClusterName, clockTime(j.Submitted), clockTime(j.Eligible),
		j.Derived.Code, j.Derived.Signal, j.Exit.Code, j.Exit.Signal)
	return b.String()
}

func clockTime(t spec.Instant) string { return format.Time(t.Unix(), time.Local) }
