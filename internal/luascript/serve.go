package luascript

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// Subcommand of musterd is the child in which job_submit.lua runs.
const Subcommand = "job-submit-lua"

// order is what the child is told: first the site, then one job after another.
type order struct {
	Site *Site
	// Functions, if set, asks only whether the site's script loads and has one of them.
	Functions []string
	Spec      []byte // apiv1.JobSpec
	Facts     *Facts
	Update    *Update
}

// answer is what it says.
type answer struct {
	Failed  string // the script could not be loaded or failed; has file and line
	Verdict *Verdict
	Spec    []byte
	Facts   *Facts
	Update  *Update
}

// hardMemory is how much more than the limit of a script the whole child may use: its own
// program, what a job brings, and garbage.
const hardMemory = 320 << 20

// A child whose parent is gone ends itself when a call does not end: a pattern that backtracks
// cannot be interrupted.
const (
	lastResort = 30 * time.Second
	lateExit   = 3
)

// Serve answers orders on two pipes until the first one ends. It is the whole life of the
// child; the exit code follows. exit ends the process.
func Serve(in io.Reader, out, errOut io.Writer, exit func(code int)) int {
	limit := DefaultLimits().Memory + hardMemory
	if err := setDataLimit(limit); err != nil {
		fmt.Fprintln(errOut, "musterd "+Subcommand+":", err)
		return 1
	}
	debug.SetMaxStack(64 << 20)
	decoder := gob.NewDecoder(bufio.NewReader(in))
	buffer := bufio.NewWriter(out)
	encoder := gob.NewEncoder(buffer)
	child := &child{}
	for {
		var o order
		if err := decoder.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return 0
			}
			fmt.Fprintln(errOut, "musterd "+Subcommand+":", err)
			return 1
		}
		late := time.AfterFunc(lastResort, func() { exit(lateExit) })
		a := child.obey(&o)
		late.Stop()
		if err := errors.Join(encoder.Encode(a), buffer.Flush()); err != nil {
			fmt.Fprintln(errOut, "musterd "+Subcommand+":", err)
			return 1
		}
	}
}

// setDataLimit bounds the memory that this process can write to.
func setDataLimit(bytes uint64) error {
	limit := syscall.Rlimit{Cur: bytes, Max: bytes}
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &limit); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	return nil
}

// child has the script that is loaded.
type child struct{ script *JobScript }

func (c *child) obey(o *order) *answer {
	if o.Site != nil && len(o.Functions) > 0 {
		return &answer{Failed: failure(check(o.Site.Script, o.Site.Limits, o.Functions...))}
	}
	if o.Site != nil {
		if c.script != nil {
			c.script.Close()
		}
		var err error
		c.script, err = LoadJobScript(*o.Site)
		return &answer{Failed: failure(err)}
	}
	if c.script == nil || o.Facts == nil {
		return &answer{Failed: "no script is loaded"}
	}
	job := &Job{Spec: &apiv1.JobSpec{}, Facts: *o.Facts}
	if err := proto.Unmarshal(o.Spec, job.Spec); err != nil {
		return &answer{Failed: err.Error()}
	}
	verdict, err := (*Verdict)(nil), error(nil)
	if o.Update != nil {
		if o.Update.Changes == nil {
			o.Update.Changes = map[string]string{} // which gob does not send
		}
		verdict, err = c.script.Modify(context.Background(), job, o.Update)
	} else {
		verdict, err = c.script.Submit(context.Background(), job)
	}
	if err != nil {
		return &answer{Failed: failure(err), Verdict: verdict}
	}
	changed, err := proto.Marshal(job.Spec)
	if err != nil {
		return &answer{Failed: err.Error(), Verdict: verdict}
	}
	return &answer{Verdict: verdict, Spec: changed, Facts: &job.Facts, Update: o.Update}
}

func failure(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
