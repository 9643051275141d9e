package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// number reads what releases write as a number, as null, as a string or as
// {"set": true, "infinite": false, "number": 4}.
type number int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	*n = 0
	switch {
	case len(data) == 0 || string(data) == "null":
		return nil
	case data[0] == '{':
		var v struct {
			Set, Infinite bool
			Number        json.Number
		}
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		if !v.Set || v.Infinite {
			return nil
		}
		return n.parseText(v.Number.String())
	case data[0] == '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		if s == "" {
			return nil
		}
		return n.parseText(s)
	}
	return n.parseText(string(data))
}

func (n *number) parseText(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", s)
	}
	*n = number(f)
	return nil
}

// words reads a list of words, or one word.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var s string
		err := json.Unmarshal(data, &s)
		*w = nil
		if s != "" {
			*w = strings.Split(s, ",")
		}
		return err
	}
	var list []string
	err := json.Unmarshal(data, &list)
	*w = list
	return err
}

// jobJSON are the keys of a job that are read.
type jobJSON struct {
	State    words  `json:"job_state"`
	Reason   string `json:"state_reason"`
	User     string `json:"user_name"`
	Account  string `json:"account"`
	QOS      string `json:"qos"`
	Part     string `json:"partition"`
	ReqTRES  string `json:"tres_req_str"`
	TRES     string `json:"tres_alloc_str"`
	PerNode  string `json:"tres_per_node"`
	PerJob   string `json:"tres_per_job"`
	CPUs     number `json:"cpus"`
	Nodes    number `json:"node_count"`
	Priority number `json:"priority"`
	Hold     *bool  `json:"hold"`
	Eligible number `json:"eligible_time"`
	Start    number `json:"start_time"`
	End      number `json:"end_time"`
	Tasks    string `json:"array_task_string"`
	Resv     string `json:"resv_name"`
	Licenses string `json:"licenses"`
}

// nodeJSON are the keys of a node that are read.
type nodeJSON struct {
	Name      string `json:"name"`
	State     words  `json:"state"`
	Flags     words  `json:"state_flags"`
	Reason    string `json:"reason"`
	ReasonAt  number `json:"reason_changed_at"`
	Parts     words  `json:"partitions"`
	Features  words  `json:"active_features"`
	GRES      string `json:"gres"`
	GRESUsed  string `json:"gres_used"`
	CPUs      number `json:"cpus"`
	Effective number `json:"effective_cpus"`
	Alloc     number `json:"alloc_cpus"`
	Idle      number `json:"alloc_idle_cpus"`
	IdleOld   number `json:"idle_cpus"`
	Mem       number `json:"real_memory"`
	MemAlloc  number `json:"alloc_memory"`
	MemFree   number `json:"free_memory"`
}

var errShape = errors.New("not the JSON of this command")

// readList calls each for every element of the array under a key of the outermost
// object, one at a time: a queue of 100,000 jobs is never in memory as text.
func readList(r io.Reader, key string, each func(d *json.Decoder) error) error {
	d := json.NewDecoder(r)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%w: it does not begin with an object (%w)", errShape, orEOF(err))
	}
	found := false
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("%w: %w", errShape, err)
		}
		if t != key {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return fmt.Errorf("%w: key %v: %w", errShape, t, err)
			}
			continue
		}
		found = true
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return fmt.Errorf("%w: %s is not a list (%w)", errShape, key, orEOF(err))
		}
		for d.More() {
			if err := each(d); err != nil {
				return fmt.Errorf("%w: in %s, byte %d: %w", errShape, key, d.InputOffset(), err)
			}
		}
		if _, err := d.Token(); err != nil {
			return fmt.Errorf("%w: %s: %w", errShape, key, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("%w: cut off: %w", errShape, err)
	}
	if !found {
		return fmt.Errorf("%w: it has no key %s", errShape, key)
	}
	return nil
}

func orEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readJobs reads squeue --json.
func readJobs(r io.Reader) ([]Job, error) {
	var out []Job
	err := readList(r, "jobs", func(d *json.Decoder) error {
		var j jobJSON
		if err := d.Decode(&j); err != nil {
			return err
		}
		out = append(out, j.toJob())
		return nil
	})
	return out, err
}

// toJob makes the record that is kept.
func (j *jobJSON) toJob() Job {
	out := Job{
		Reason:    j.Reason,
		User:      j.User,
		Account:   j.Account,
		QOS:       j.QOS,
		Partition: j.Part,
		CPUs:      int64(j.CPUs),
		Nodes:     int64(j.Nodes),
		Eligible: int64(
			j.Eligible,
		),
		Started:     int64(j.Start),
		Ended:       int64(j.End),
		Tasks:       max(tasksOf(j.Tasks), 1),
		Reservation: j.Resv,
		Licenses:    countsOf(j.Licenses),
	}
	for _, w := range j.State {
		if baseState(w) && out.State == "" {
			out.State = w
		} else {
			out.Flags = append(out.Flags, w)
		}
	}
	if out.Partition != "" { // several while pending: it counts in the first
		out.Partition, _, _ = strings.Cut(out.Partition, ",")
	}
	out.TRES = j.TRES
	if out.TRES == "" {
		out.TRES = j.ReqTRES
	}
	for _, kv := range strings.Split(out.TRES, ",") {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "mem":
			out.Mem = memMiB(value)
		case name == "cpu":
			out.CPUs = parseCount(value)
		case name == "gres/gpu":
			out.GPUs = parseCount(value)
		case strings.HasPrefix(name, "gres/gpu:"):
			out.GPUType = strings.TrimPrefix(name, "gres/gpu:")
		}
	}
	// A release that does not send the field shows it in the priority and the reason.
	held := j.Priority == 0 && strings.Contains(j.Reason, "Held")
	if j.Hold != nil {
		held = *j.Hold
	}
	out.Held = held && out.State == "PENDING"
	return out
}

// baseState tells the states of which a job has exactly one.
func baseState(w string) bool {
	switch w {
	case "PENDING",
		"RUNNING",
		"SUSPENDED",
		"COMPLETED",
		"CANCELLED",
		"FAILED",
		"TIMEOUT",
		"NODE_FAIL",
		"PREEMPTED",
		"BOOT_FAIL",
		"DEADLINE",
		"OUT_OF_MEMORY":
		return true
	}
	return false
}

// tasksOf counts the tasks of an array that "0-9:3,12%4" names; 0 for "".
func tasksOf(s string) int64 {
	s, _, _ = strings.Cut(s, "%")
	total := int64(0)
	for _, part := range strings.Split(s, ",") {
		part, step, stepped := strings.Cut(part, ":")
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			continue // "..." where the list was cut short
		}
		last, by := first, int64(1)
		if ranged {
			last = parseCount(to)
		}
		if stepped {
			by = max(parseCount(step), 1)
		}
		if last >= first {
			total += (last-first)/by + 1
		}
	}
	return total
}

// countsOf reads a list of licences: "matlab:2,ansys". Of alternatives ("a|b")
// nobody knows which one is held.
func countsOf(s string) []Count {
	if s == "" || s == "(null)" || strings.Contains(s, "|") {
		return nil
	}
	var out []Count
	for _, one := range strings.Split(s, ",") {
		count := Count{one, 1}
		if i := strings.LastIndexAny(one, ":="); i >= 0 {
			count = Count{one[:i], parseCount(one[i+1:])}
		}
		out = append(out, count)
	}
	return out
}

func parseCount(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// memMiB reads an amount of memory of a TRES list: 500M, 8G, 1.5T.
func memMiB(s string) int64 {
	if s == "" {
		return 0
	}
	scale := map[byte]float64{'K': 1.0 / 1024, 'M': 1, 'G': 1024, 'T': 1 << 20, 'P': 1 << 30}[s[len(s)-1]]
	if scale == 0 {
		return parseCount(s)
	}
	f, err := strconv.ParseFloat(s[:len(s)-1], 64)
	if err != nil {
		return 0
	}
	return int64(f * scale)
}

// readNodes reads sinfo --json of 22.05 and scontrol show nodes --json of
// later releases.
func readNodes(r io.Reader) ([]Node, error) {
	var out []Node
	err := readList(r, "nodes", func(d *json.Decoder) error {
		n := nodeJSON{MemFree: -1}
		if err := d.Decode(&n); err != nil {
			return err
		}
		node := Node{
			Name:        n.Name,
			Reason:      n.Reason,
			ReasonAt:    int64(n.ReasonAt),
			Partitions:  n.Parts,
			Features:    strings.Join(n.Features, ","),
			GRES:        n.GRES,
			GRESUsed:    n.GRESUsed,
			CPUs:        int64(n.CPUs),
			CPUsForJobs: int64(n.Effective),
			CPUAlloc:    int64(n.Alloc),
			CPUIdle:     int64(max(n.Idle, n.IdleOld)),
			Mem:         int64(n.Mem),
			MemAlloc:    int64(n.MemAlloc),
			MemFree:     int64(n.MemFree),
		}
		if node.CPUsForJobs == 0 {
			node.CPUsForJobs = node.CPUs
		}
		for i, w := range append(append(words{}, n.State...), n.Flags...) {
			w = strings.ToUpper(w)
			if i == 0 {
				node.State = w
			} else {
				node.Flags = append(node.Flags, w)
			}
		}
		out = append(out, node)
		return nil
	})
	return out, err
}
