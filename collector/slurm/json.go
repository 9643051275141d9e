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
		var object struct {
			Set, Infinite bool
			Number        json.Number
		}
		if err := json.Unmarshal(data, &object); err != nil {
			return err
		}
		if !object.Set || object.Infinite {
			return nil
		}
		return n.parseText(object.Number.String())
	case data[0] == '"':
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		if text == "" {
			return nil
		}
		return n.parseText(text)
	}
	return n.parseText(string(data))
}

func (n *number) parseText(text string) error {
	parsed, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	*n = number(parsed)
	return nil
}

// words reads a list of words, or one word.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		err := json.Unmarshal(data, &text)
		*w = nil
		if text != "" {
			*w = strings.Split(text, ",")
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
func readList(reply io.Reader, key string, each func(d *json.Decoder) error) error {
	decoder := json.NewDecoder(reply)
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return fmt.Errorf("%w: it does not begin with an object (%w)", errShape, orEOF(err))
	}
	found := false
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("%w: %w", errShape, err)
		}
		if token != key {
			var skipped json.RawMessage
			if err := decoder.Decode(&skipped); err != nil {
				return fmt.Errorf("%w: key %v: %w", errShape, token, err)
			}
			continue
		}
		found = true
		if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
			return fmt.Errorf("%w: %s is not a list (%w)", errShape, key, orEOF(err))
		}
		for decoder.More() {
			if err := each(decoder); err != nil {
				return fmt.Errorf(
					"%w: in %s, byte %d: %w", errShape, key, decoder.InputOffset(), err,
				)
			}
		}
		if _, err := decoder.Token(); err != nil {
			return fmt.Errorf("%w: %s: %w", errShape, key, err)
		}
	}
	if _, err := decoder.Token(); err != nil {
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
func readJobs(reply io.Reader) ([]Job, error) {
	var jobs []Job
	err := readList(reply, "jobs", func(decoder *json.Decoder) error {
		var listed jobJSON
		if err := decoder.Decode(&listed); err != nil {
			return err
		}
		jobs = append(jobs, listed.toJob())
		return nil
	})
	return jobs, err
}

// toJob makes the record that is kept.
func (j *jobJSON) toJob() Job {
	job := Job{
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
	for _, word := range j.State {
		if baseState(word) && job.State == "" {
			job.State = word
		} else {
			job.Flags = append(job.Flags, word)
		}
	}
	if job.Partition != "" { // several while pending: it counts in the first
		job.Partition, _, _ = strings.Cut(job.Partition, ",")
	}
	job.TRES = j.TRES
	if job.TRES == "" {
		job.TRES = j.ReqTRES
	}
	for _, assignment := range strings.Split(job.TRES, ",") {
		name, value, _ := strings.Cut(assignment, "=")
		switch {
		case name == "mem":
			job.Mem = memMiB(value)
		case name == "cpu":
			job.CPUs = parseCount(value)
		case name == "gres/gpu":
			job.GPUs = parseCount(value)
		case strings.HasPrefix(name, "gres/gpu:"):
			job.GPUType = strings.TrimPrefix(name, "gres/gpu:")
		}
	}
	// A release that does not send the field shows it in the priority and the reason.
	held := j.Priority == 0 && strings.Contains(j.Reason, "Held")
	if j.Hold != nil {
		held = *j.Hold
	}
	job.Held = held && job.State == "PENDING"
	return job
}

// baseState tells the states of which a job has exactly one.
func baseState(word string) bool {
	switch word {
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
func tasksOf(text string) int64 {
	text, _, _ = strings.Cut(text, "%")
	total := int64(0)
	for _, part := range strings.Split(text, ",") {
		part, step, stepped := strings.Cut(part, ":")
		from, end, ranged := strings.Cut(part, "-")
		first, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			continue // "..." where the list was cut short
		}
		last, stride := first, int64(1)
		if ranged {
			last = parseCount(end)
		}
		if stepped {
			stride = max(parseCount(step), 1)
		}
		if last >= first {
			total += (last-first)/stride + 1
		}
	}
	return total
}

// countsOf reads a list of licences: "matlab:2,ansys". Of alternatives ("a|b")
// nobody knows which one is held.
func countsOf(text string) []Count {
	if text == "" || text == "(null)" || strings.Contains(text, "|") {
		return nil
	}
	var counts []Count
	for _, one := range strings.Split(text, ",") {
		count := Count{one, 1}
		if i := strings.LastIndexAny(one, ":="); i >= 0 {
			count = Count{one[:i], parseCount(one[i+1:])}
		}
		counts = append(counts, count)
	}
	return counts
}

func parseCount(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// memMiB reads an amount of memory of a TRES list: 500M, 8G, 1.5T.
func memMiB(text string) int64 {
	if text == "" {
		return 0
	}
	scale := map[byte]float64{
		'K': 1.0 / 1024, 'M': 1, 'G': 1024, 'T': 1 << 20, 'P': 1 << 30,
	}[text[len(text)-1]]
	if scale == 0 {
		return parseCount(text)
	}
	amount, err := strconv.ParseFloat(text[:len(text)-1], 64)
	if err != nil {
		return 0
	}
	return int64(amount * scale)
}

// readNodes reads sinfo --json of 22.05 and scontrol show nodes --json of
// later releases.
func readNodes(reply io.Reader) ([]Node, error) {
	var nodes []Node
	err := readList(reply, "nodes", func(decoder *json.Decoder) error {
		listed := nodeJSON{MemFree: -1}
		if err := decoder.Decode(&listed); err != nil {
			return err
		}
		node := Node{
			Name:        listed.Name,
			Reason:      listed.Reason,
			ReasonAt:    int64(listed.ReasonAt),
			Partitions:  listed.Parts,
			Features:    strings.Join(listed.Features, ","),
			GRES:        listed.GRES,
			GRESUsed:    listed.GRESUsed,
			CPUs:        int64(listed.CPUs),
			CPUsForJobs: int64(listed.Effective),
			CPUAlloc:    int64(listed.Alloc),
			CPUIdle:     int64(max(listed.Idle, listed.IdleOld)),
			Mem:         int64(listed.Mem),
			MemAlloc:    int64(listed.MemAlloc),
			MemFree:     int64(listed.MemFree),
		}
		if node.CPUsForJobs == 0 {
			node.CPUsForJobs = node.CPUs
		}
		for i, word := range append(append(words{}, listed.State...), listed.Flags...) {
			word = strings.ToUpper(word)
			if i == 0 {
				node.State = word
			} else {
				node.Flags = append(node.Flags, word)
			}
		}
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}
