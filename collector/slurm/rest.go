package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/internal/slurmrest"
)

// REST is where a slurmrestd answers, instead of the commands.
type REST struct {
	URL       string // http://host:6820, https://…, or unix:/path
	User      string // X-SLURM-USER-NAME
	TokenFile string // X-SLURM-USER-TOKEN, read again for each snapshot; empty on a socket of one's own
	Cluster   string // its name: slurmrestd of 22.05 does not say it
}

var (
	errNoAPI = errors.New(
		"slurmrestd offers no /slurm/v0.0.N: it needs one of its openapi plugins (slurmrestd -s)",
	)
	errStatus = errors.New("slurmrestd refuses")
	apiPath   = regexp.MustCompile(`/slurm\\?/v0\.0\.(\d+)\\?/jobs`)
)

// client asks a slurmrestd.
type client struct {
	REST
	ask   *slurmrest.Client
	api   string // /slurm/v0.0.38, once found
	token string
}

// prepareRequest reads the token, and finds the newest form that slurmrestd speaks.
func (s *Source) prepareRequest(ctx context.Context, snap *Snapshot) error {
	connection := s.rest
	if connection.TokenFile != "" {
		data, err := os.ReadFile(connection.TokenFile)
		if err != nil {
			return fmt.Errorf("observe.rest_token_file: %w", err)
		}
		connection.token = string(data)
	}
	if s.named {
		return nil
	}
	newest := 0
	err := s.getPath(ctx, "/openapi/v3", func(reply io.Reader) error {
		text, err := io.ReadAll(reply)
		for _, match := range apiPath.FindAllSubmatch(text, -1) {
			if version, err := strconv.Atoi(string(match[1])); err == nil {
				newest = max(newest, version)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if newest == 0 {
		return errNoAPI
	}
	connection.api = fmt.Sprintf("/slurm/v0.0.%d", newest)
	snap.Cluster = connection.Cluster
	err = s.getPath(ctx, connection.api+"/ping", func(reply io.Reader) error {
		var answer struct {
			Meta struct{ Slurm struct{ Release string } }
		}
		err := json.NewDecoder(reply).Decode(&answer)
		snap.Version = answer.Meta.Slurm.Release
		return err
	})
	s.named = err == nil
	return err
}

// getPath asks for one path and hands the answer over.
func (s *Source) getPath(ctx context.Context, path string, read func(r io.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Timeout, errTime)
	defer cancel()
	began := s.o.Now()
	err := s.rest.getPath(ctx, path, s.o.MaxBytes, read)
	s.countRequest("slurmrestd", s.o.Now().Sub(began), err)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errTime):
		return fmt.Errorf("GET %s %w: more than %s", path, errTime, s.o.Timeout)
	}
	return fmt.Errorf("GET %s: %w", path, err)
}

func (c *client) getPath(
	ctx context.Context,
	path string,
	most int64,
	read func(r io.Reader) error,
) error {
	resp, err := c.ask.Get(ctx, path, c.token)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	limited := &io.LimitedReader{R: resp.Body, N: most}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(
			io.LimitReader(resp.Body, maxComplaint),
		) // half of it is better than none
		return fmt.Errorf(
			"%w: %s: %s",
			errStatus,
			resp.Status,
			strings.Join(strings.Fields(string(said)), " "),
		)
	}
	err = read(limited)
	if limited.N <= 0 {
		return fmt.Errorf("%w: more than %d bytes", errSize, most)
	}
	return err
}

// restSections are what slurmrestd is asked for. Shares are not among them:
// its older forms have none.
func restSections() []section {
	pathBelow := func(path string) func(*Source) []string {
		return func(s *Source) []string { return []string{s.rest.api + path} }
	}
	return []section{
		{"jobs", pathBelow("/jobs"), readInto(readJobs, func(s *Snapshot, v []Job) { s.Jobs = v })},
		{"nodes", pathBelow("/nodes"), readInto(readNodes, func(s *Snapshot, v []Node) { s.Nodes = v })},
		{
			"partitions",
			pathBelow("/partitions"),
			readInto(restPartitions, func(s *Snapshot, v []string) { s.Partitions = v }),
		},
		{
			"reservations",
			pathBelow("/reservations"),
			readInto(restReservations, func(s *Snapshot, v []Reservation) { s.Reservations = v }),
		},
		{
			"licenses",
			pathBelow("/licenses"),
			readInto(restLicenses, func(s *Snapshot, v []License) { s.Licenses = v }),
		},
		{"scheduler", pathBelow("/diag"), readInto(restDiag, func(s *Snapshot, v Sched) { s.Sched = v })},
	}
}

// each decodes the elements of a list and adds what keep makes of them.
func each[J, T any](reply io.Reader, key string, keep func(item *J) T) ([]T, error) {
	var out []T
	err := readList(reply, key, func(decoder *json.Decoder) error {
		var item J
		if err := decoder.Decode(&item); err != nil {
			return err
		}
		out = append(out, keep(&item))
		return nil
	})
	return out, err
}

func restPartitions(reply io.Reader) ([]string, error) {
	return each(reply, "partitions", func(listed *struct{ Name string }) string { return listed.Name })
}

func restReservations(reply io.Reader) ([]Reservation, error) {
	type reservation struct {
		Name, Partition, Users, Accounts, Licenses string
		Nodes                                      string `json:"node_list"`
		Flags                                      words
		Start                                      number `json:"start_time"`
		End                                        number `json:"end_time"`
		NodeCount                                  number `json:"node_count"`
		Cores                                      number `json:"core_count"`
	}
	return each(reply, "reservations", func(listed *reservation) Reservation {
		return Reservation{
			Name:      listed.Name,
			Nodes:     listed.Nodes,
			Partition: listed.Partition,
			Flags:     strings.Join(listed.Flags, ","),
			Users:     listed.Users,
			Accounts:  listed.Accounts,
			Start: int64(
				listed.Start,
			),
			End:       int64(listed.End),
			NodeCount: int64(listed.NodeCount),
			Cores:     int64(listed.Cores),
			Licenses:  countsOf(listed.Licenses),
		}
	})
}

func restLicenses(reply io.Reader) ([]License, error) {
	type license struct {
		LicenseName           string
		Total, Used, Reserved number
	}
	return each(reply, "licenses", func(listed *license) License {
		return License{
			Name:     listed.LicenseName,
			Total:    int64(listed.Total),
			Used:     int64(listed.Used),
			Reserved: int64(listed.Reserved),
		}
	})
}

// restFigures are sdiag's names of the figures of /diag.
//
//muster:table one entry for each figure
func restFigures() map[string]string {
	const main, bf = "Main schedule statistics/", "Backfilling stats/"
	return map[string]string{
		"server_thread_count": "Server thread count", "agent_queue_size": "Agent queue size", "agent_count": "Agent count",
		"agent_thread_count": "Agent thread count", "dbd_agent_queue_size": "DBD Agent queue size", "jobs_submitted": "Jobs submitted",
		"jobs_started": "Jobs started", "jobs_completed": "Jobs completed", "jobs_canceled": "Jobs canceled", "jobs_failed": "Jobs failed",
		"jobs_pending": "Jobs pending", "jobs_running": "Jobs running", "schedule_cycle_per_minute": main + "Cycles per minute",
		"req_time_start": "Data since", "job_states_ts": "Job states ts", "gettimeofday_latency": "Latency for 1000 calls to gettimeofday()",
		"schedule_cycle_last": main + "Last cycle", "schedule_cycle_max": main + "Max cycle", "schedule_cycle_total": main + "Total cycles",
		"schedule_cycle_mean": main + "Mean cycle", "schedule_cycle_mean_depth": main + "Mean depth cycle", "schedule_queue_length": main + "Last queue length",
		"bf_backfilled_jobs": bf + "Total backfilled jobs (since last slurm start)", "bf_last_backfilled_jobs": bf + "Total backfilled jobs (since last stats cycle start)",
		"bf_backfilled_het_jobs": bf + "Total backfilled heterogeneous job components", "bf_cycle_counter": bf + "Total cycles",
		"bf_cycle_last": bf + "Last cycle", "bf_cycle_max": bf + "Max cycle", "bf_cycle_mean": bf + "Mean cycle", "bf_depth_mean": bf + "Depth Mean",
		"bf_depth_mean_try": bf + "Depth Mean (try depth)", "bf_last_depth": bf + "Last depth cycle", "bf_last_depth_try": bf + "Last depth cycle (try sched)",
		"bf_queue_len": bf + "Last queue length", "bf_queue_len_mean": bf + "Queue length mean", "bf_table_size": bf + "Last table size",
		"bf_table_size_mean": bf + "Mean table size", "bf_when_last_cycle": bf + "Last cycle when",
	}
}

func restDiag(reply io.Reader) (Sched, error) {
	type call struct {
		Message string `json:"message_type"`
		User    string
		Count   number
		Total   number `json:"total_time"`
	}
	var answer struct{ Statistics map[string]json.RawMessage }
	if err := json.NewDecoder(reply).Decode(&answer); err != nil {
		return Sched{}, fmt.Errorf("%w: %w", errShape, err)
	}
	sched := Sched{Numbers: map[string]int64{}}
	for key, name := range restFigures() {
		if raw, ok := answer.Statistics[key]; ok {
			var n number
			if err := n.UnmarshalJSON(raw); err != nil {
				return Sched{}, fmt.Errorf("%w: %s: %w", errShape, key, err)
			}
			sched.Numbers[name] = int64(n)
		}
	}
	if _, ok := sched.Numbers["Server thread count"]; !ok {
		return Sched{}, fmt.Errorf("%w: statistics have no server_thread_count", errShape)
	}
	for key, target := range map[string]*[]Calls{
		"rpcs_by_message_type": &sched.RPCs, "rpcs_by_user": &sched.Users,
	} {
		var list []call
		if raw, ok := answer.Statistics[key]; ok {
			if err := json.Unmarshal(raw, &list); err != nil {
				return Sched{}, fmt.Errorf("%w: %s: %w", errShape, key, err)
			}
		}
		for _, listed := range list {
			*target = append(
				*target,
				Calls{listed.Message + listed.User, uint64(max(listed.Count, 0)), uint64(max(listed.Total, 0))},
			)
		}
	}
	return sched, nil
}
