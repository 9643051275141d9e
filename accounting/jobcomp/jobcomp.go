package jobcomp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Writer writes JobCompType=jobcomp/filetxt: one line for each job that
// ended, once. A file beside the ledger says how far it has come: what a crash
// left unwritten is read from the archive at the next start, and what was
// written and not noted is cut off and written again.
type Writer struct {
	path   string
	mark   string // the file that says how far it has come
	lines  chan compLine
	missed []compLine // since the last life
	log    *slog.Logger
}

// compLine is the line of one JobEnded.
type compLine struct {
	seq  uint64
	text string
}

// compMark is how far the file has come. A file of another number, or a
// shorter one, was rotated away: it is not cut.
type compMark struct {
	Seq   uint64 `json:"seq"`
	Size  int64  `json:"size"`
	Inode uint64 `json:"inode"`
}

func Open(path, mark string, logger *slog.Logger) *Writer {
	return &Writer{path: path, mark: mark, lines: make(chan compLine, 65536), log: logger}
}

// Committed formats the jobs that ended in a batch.
func (c *Writer) Committed(cluster *state.State, events []event.Envelope) {
	for i := range events {
		ended, ok := events[i].Event.(*event.JobEnded)
		if !ok {
			continue
		}
		job := cluster.Job(ended.UID)
		if job == nil {
			continue
		}
		select {
		case c.lines <- compLine{events[i].Seq, jobCompLine(cluster, job)}:
		default:
			c.log.Warn(
				"the job completion file is too slow: a line is dropped",
				"job",
				job.ID,
				"file",
				c.path,
			)
		}
	}
}

// CatchUp finds the lines that the last life did not write: those of the
// events between the mark and the state with which this life begins.
func (c *Writer) CatchUp(a *archive.Archive, codec *event.Codec, cluster *state.State) error {
	data, err := os.ReadFile(c.mark)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the file begins now
	}
	var mark compMark
	if err == nil {
		err = json.Unmarshal(data, &mark)
	}
	if err != nil {
		return fmt.Errorf("how far the job completion file has come: %w", err)
	}
	if info, err := os.Stat(c.path); err == nil && inodeOf(info) == mark.Inode &&
		info.Size() > mark.Size {
		if err := os.Truncate(c.path, mark.Size); err != nil {
			return fmt.Errorf("JobCompLoc: %w", err)
		}
	}
	if mark.Seq >= cluster.Seq {
		return nil
	}
	iterator, err := a.Reader(mark.Seq + 1)
	if errors.Is(err, archive.ErrDropped) {
		c.log.Warn(
			"lines of the job completion file cannot be written any more: the history was dropped; sacct has the jobs",
			"from_event",
			mark.Seq+1,
		)
		return nil
	}
	if err != nil {
		return err
	}
	for {
		record, err := iterator.Next()
		if errors.Is(err, io.EOF) || err == nil && record.FirstSeq > cluster.Seq {
			return nil
		}
		if err != nil {
			return err
		}
		events, err := codec.Decode(record.Batch)
		if err != nil {
			return err
		}
		for i := range events {
			ended, ok := events[i].Event.(*event.JobEnded)
			if !ok || events[i].Seq <= mark.Seq || events[i].Seq > cluster.Seq {
				continue
			}
			if job := cluster.Job(ended.UID); job != nil && job.State.Terminal() {
				c.missed = append(c.missed, compLine{events[i].Seq, jobCompLine(cluster, job)})
			} else {
				c.log.Warn("a line of the job completion file cannot be written any more: the job was forgotten or runs again; sacct has it", "uid", ended.UID)
			}
		}
	}
}

// Run writes until the context ends, and then what is still waiting.
func (c *Writer) Run(ctx context.Context) error {
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("JobCompLoc: %w", err)
	}
	defer file.Close()
	c.write(file, c.missed)
	c.missed = nil
	for {
		var batch []compLine
		select {
		case <-ctx.Done():
			c.write(file, c.waiting(nil))
			return nil
		case line := <-c.lines:
			batch = c.waiting([]compLine{line})
		}
		c.write(file, batch)
	}
}

// waiting adds what else is there.
func (c *Writer) waiting(batch []compLine) []compLine {
	for {
		select {
		case line := <-c.lines:
			batch = append(batch, line)
		default:
			return batch
		}
	}
}

// write appends lines and then notes how far it has come.
func (c *Writer) write(file *os.File, batch []compLine) {
	if len(batch) == 0 {
		return
	}
	var text strings.Builder
	for _, line := range batch {
		text.WriteString(line.text)
	}
	_, err := file.WriteString(text.String())
	if err == nil {
		err = file.Sync()
	}
	var info fs.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	if err == nil {
		mark := compMark{Seq: batch[len(batch)-1].seq, Size: info.Size(), Inode: inodeOf(info)}
		var data []byte
		data, err = json.Marshal(mark)
		if err == nil {
			err = durable.WriteFile(c.mark, data, 0o600)
		}
	}
	if err != nil {
		c.log.Error("the job completion file cannot be written", "error", err)
	}
}

func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}

func jobCompLine(cluster *state.State, job *state.Job) string {
	jobSpec := job.Spec
	nodes := "(null)"
	count := 0
	cpus := job.Req.CPU
	tres := job.Req
	if job.Alloc != nil {
		nodes = hostlist.Fold(job.Alloc.NodeNames())
		count = len(job.Alloc.Nodes)
		cpus = job.Alloc.TRES.CPU
		tres = job.Alloc.TRES
	}
	limit := "UNLIMITED"
	if job.Limit != spec.Infinite {
		limit = fmt.Sprint(job.Limit.Seconds() / 60)
	}
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"JobId=%d UserId=%s(%d) GroupId=%s(%d) Name=%s JobState=%s Partition=%s TimeLimit=%s StartTime=%s EndTime=%s NodeList=%s NodeCnt=%d ProcCnt=%d WorkDir=%s ReservationName= Tres=%s Account=%s QOS=%s WcKey=%s Cluster=%s SubmitTime=%s EligibleTime=%s DerivedExitCode=%d:%d ExitCode=%d:%d \n",
		job.ID,
		jobSpec.User,
		jobSpec.UID,
		jobSpec.Group,
		jobSpec.GID,
		jobSpec.Name,
		job.State,
		job.Partition(),
		limit,
		clockTime(job.Started),
		clockTime(job.Ended),
		nodes,
		count,
		cpus,
		jobSpec.IO.WorkDir,
		tres,
		jobSpec.Account,
		job.QOS(),
		jobSpec.WCKey,
		cluster.ClusterName,
		clockTime(job.Submitted),
		clockTime(job.Eligible),
		job.Derived.Code,
		job.Derived.Signal,
		job.Exit.Code,
		job.Exit.Signal,
	)
	return text.String()
}

func clockTime(t spec.Instant) string { return format.Time(t.Unix(), time.Local) }
