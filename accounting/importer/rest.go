package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/slurmrest"
)

// REST is a slurmrestd, which has a Slurm's accounting where its commands do
// not run. Its answers become the lines that sacct prints, so that both ways
// lead to the same rows.
type REST struct {
	Address string // http://host:6820, https://host:6820, unix:/run/slurmrestd.sock
	User    string // whose token it is
	Token   string // a token of Slurm's auth/jwt; a socket needs none

	once   sync.Once
	client *slurmrest.Client
	path   string          // of the jobs, in the newest version it has
	takes  map[string]bool // what can be asked for there
}

// maxDocument bounds what a slurmrestd says about itself.
const maxDocument = 64 << 20

// ErrREST tells that a slurmrestd does not answer as one.
var ErrREST = errors.New("this is no slurmrestd with slurmdbd's jobs")

// getPage asks for a page, which the caller closes.
func (r *REST) getPage(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	r.once.Do(func() { r.client = slurmrest.New(r.Address, r.User) })
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	resp, err := r.client.Get(ctx, path, r.Token)
	if err != nil {
		return nil, fmt.Errorf("ask slurmrestd: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("ask slurmrestd: %w", err)
	}
	var said struct{ Errors []restError }
	if json.Unmarshal(text, &said) == nil && len(said.Errors) > 0 {
		return nil, said.Errors[0].problem()
	}
	return nil, fmt.Errorf(
		"slurmrestd refuses: %s %s",
		resp.Status,
		strings.TrimSpace(string(text[:min(len(text), 200)])),
	)
}

// restError is one of the errors of an answer.
type restError struct {
	Number      int64 `json:"error_number"`
	Error       string
	Description string
}

func (e restError) problem() error {
	text := e.Error
	if e.Description != "" && e.Description != text {
		text = strings.TrimPrefix(text+": "+e.Description, ": ")
	}
	return fmt.Errorf("slurmrestd says: %s (%d)", text, e.Number)
}

// discoverVersion finds the newest version that has slurmdbd's jobs.
func (r *REST) discoverVersion(ctx context.Context) error {
	if r.path != "" {
		return nil
	}
	body, err := r.getPage(ctx, "/openapi/v3", nil)
	if err != nil {
		return err
	}
	defer body.Close()
	var doc struct {
		Paths map[string]struct {
			Get struct{ Parameters []struct{ Name string } }
		}
	}
	if err := json.NewDecoder(io.LimitReader(body, maxDocument)).Decode(&doc); err != nil {
		return fmt.Errorf("%w: %w", ErrREST, err)
	}
	newest := -1
	for path, what := range doc.Paths {
		rest, ok := strings.CutPrefix(path, "/slurmdb/v0.0.")
		version, ok2 := strings.CutSuffix(strings.TrimSuffix(rest, "/"), "/jobs")
		n, err := strconv.Atoi(version)
		if !ok || !ok2 || err != nil || n <= newest {
			continue
		}
		newest = n
		r.path = path
		r.takes = map[string]bool{}
		for _, found := range what.Get.Parameters {
			r.takes[found.Name] = true
		}
	}
	if newest < 0 {
		return ErrREST
	}
	return nil
}

// eachJob asks for the jobs of a stretch of time and gives each.
func (r *REST) eachJob(
	ctx context.Context,
	cluster string,
	from, until time.Time,
	each func(*restJob) error,
) error {
	if err := r.discoverVersion(ctx); err != nil {
		return err
	}
	timestamp := func(t time.Time) string { return "uts" + strconv.FormatInt(t.Unix(), 10) }
	query := url.Values{"start_time": {timestamp(from)}, "end_time": {timestamp(until)}}
	if cluster != "" {
		query.Set("cluster", cluster)
	}
	for _, flag := range [...]string{"show_duplicates", "disable_truncate_usage_time"} {
		if r.takes[flag] {
			query.Set(flag, "true")
		}
	}
	body, err := r.getPage(ctx, r.path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	return readJobs(body, each)
}

// readJobs reads the jobs of an answer one by one.
func readJobs(answer io.Reader, each func(*restJob) error) error {
	decoder := json.NewDecoder(answer)
	if err := expectBracket(decoder, '{'); err != nil {
		return err
	}
	found := false
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("read slurmrestd's answer: %w", err)
		}
		switch name {
		case "jobs":
			found = true
			err = eachOf(decoder, each)
		case "errors":
			err = eachOf(decoder, func(e *restError) error { return e.problem() })
		default:
			var skip json.RawMessage
			err = decoder.Decode(&skip)
		}
		if err != nil {
			return fmt.Errorf("read slurmrestd's answer: %w", err)
		}
	}
	if err := expectBracket(decoder, '}'); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: its answer has no jobs", ErrREST)
	}
	return nil
}

// expectBracket takes a bracket.
func expectBracket(decoder *json.Decoder, want json.Delim) error {
	got, err := decoder.Token()
	if err != nil {
		return fmt.Errorf("read slurmrestd's answer: %w", err)
	}
	if got != want {
		return fmt.Errorf("%w: %v stands where %v must", ErrREST, got, want)
	}
	return nil
}

// eachOf takes a list one by one, so that a long one is never there whole.
func eachOf[T any](decoder *json.Decoder, each func(*T) error) error {
	if got, err := decoder.Token(); err != nil || got == nil {
		return err // null
	}
	for decoder.More() {
		value := new(T)
		if err := decoder.Decode(value); err != nil {
			return err
		}
		if err := each(value); err != nil {
			return err
		}
	}
	_, err := decoder.Token()
	return err
}

// hasRun tells whether a job had nodes, and has ended.
func (j *restJob) hasRun() bool {
	over, _ := stateKnown(string(j.State.Current))
	return over && j.Time.Start.n > 0 && j.Time.End.n > 0 && !isBlank(j.Nodes)
}

// sumEnded adds up what slurmdbd says of the runs that started and ended within
// [from, to).
func (r *REST) sumEnded(
	ctx context.Context,
	cluster string,
	from, until time.Time,
) (sum Said, err error) {
	err = r.eachJob(ctx, cluster, from, until, func(job *restJob) error {
		end := time.Unix(job.Time.End.n, 0)
		if !job.hasRun() || end.Before(from) || !end.Before(until) {
			return nil
		}
		sum.Runs++
		for _, tres := range job.TRES.Allocated {
			if tres.Type == "cpu" {
				sum.CPUSeconds += tres.Count.n * job.Time.Elapsed.n
			}
		}
		return nil
	})
	return sum, err
}

// writeLines writes jobs as sacct prints them, with a head.
func (r *REST) writeLines(
	ctx context.Context,
	cluster string,
	from, until time.Time,
	out io.Writer,
) error {
	if _, err := io.WriteString(out, strings.Join(restColumns(), "|")+"\n"); err != nil {
		return err
	}
	return r.eachJob(ctx, cluster, from, until, func(job *restJob) error {
		_, err := io.WriteString(out, job.sacctLines())
		return err
	})
}
