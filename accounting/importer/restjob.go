package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// restColumns are what slurmrestd says of a job or a step, by sacct's names. The
// numbers of users and groups it does not say.
func restColumns() []string {
	return []string{
		"JobIDRaw",
		"JobID",
		"Cluster",
		"Partition",
		"QOS",
		"Account",
		"User",
		"Group",
		"State",
		"ExitCode",
		"DerivedExitCode",
		"Submit",
		"Eligible",
		"Start",
		"End",
		"TimelimitRaw",
		"Suspended",
		"NNodes",
		"AllocCPUS",
		"ReqCPUS",
		"ReqTRES",
		"AllocTRES",
		"NodeList",
		"NTasks",
		"UserCPU",
		"SystemCPU",
		"MaxRSS",
		"ConsumedEnergyRaw",
		"Reservation",
		"Constraints",
		"Priority",
		"WCKey",
		"WorkDir",
		"JobName",
	}
}

// restNumber is a number, or since v0.0.39 an object that may say that there is
// none.
type restNumber struct {
	n  int64
	ok bool
}

// UnmarshalJSON reads either form; what is neither is no number.
func (r *restNumber) UnmarshalJSON(data []byte) error {
	var object struct {
		Set, Infinite bool
		Number        json.Number
	}
	var plain json.Number
	switch {
	case bytes.HasPrefix(data, []byte("{")):
		if err := json.Unmarshal(data, &object); err != nil {
			return err
		}
		if !object.Set || object.Infinite {
			return nil
		}
		plain = object.Number
	case json.Unmarshal(data, &plain) != nil:
		return nil // text: a state of its own
	}
	if plain == "" {
		return nil
	}
	parsed, err := plain.Float64()
	if err != nil {
		return fmt.Errorf("the number %s cannot be read: %w", plain, err)
	}
	r.n, r.ok = int64(parsed), true
	return nil
}

func (r restNumber) text() string {
	if !r.ok {
		return ""
	}
	return strconv.FormatInt(r.n, 10)
}

// restText is a text; what is none is empty.
type restText string

// UnmarshalJSON takes the first of a list, as states are one since v0.0.40.
func (t *restText) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, (*string)(t)) != nil {
		*t = ""
		if json.Unmarshal(data, &list) == nil && len(list) > 0 {
			*t = restText(list[0])
		}
	}
	return nil
}

type restSpan struct{ Seconds, Microseconds restNumber }

func (s restSpan) text() string {
	return clock(s.Seconds.n) + fmt.Sprintf(".%06d", s.Microseconds.n%1_000_000)
}

func clock(seconds int64) string {
	return fmt.Sprintf("%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

type restExit struct {
	Code   restNumber `json:"return_code"`
	Signal struct {
		Old restNumber `json:"signal_id"`
		ID  restNumber
	}
}

func (e restExit) text() string {
	return fmt.Sprintf("%d:%d", e.Code.n, e.Signal.Old.n+e.Signal.ID.n)
}

type restTRES struct {
	Type  string
	Name  restText
	Count restNumber
}

// tresList writes amounts as sacct does.
func tresList(list []restTRES) string {
	var out []string
	for _, tres := range list {
		name, unit := tres.Type, ""
		if tres.Name != "" {
			name += "/" + string(tres.Name)
		}
		if name == "mem" {
			unit = "M"
		}
		if tres.Count.ok {
			out = append(out, name+"="+tres.Count.text()+unit)
		}
	}
	return strings.Join(out, ",")
}

func tresCount(list []restTRES, name string) string {
	for _, tres := range list {
		if tres.Type == name {
			return tres.Count.text()
		}
	}
	return ""
}

type restTimes struct {
	Submission, Eligible, Start, End, Limit, Suspended, Elapsed restNumber
	System, User                                                restSpan
}

// restJob is a job in slurmdbd's words.
type restJob struct {
	ID         restNumber `json:"job_id"`
	Name       string
	Cluster    string
	Partition  string
	QOS        string `json:"qos"`
	Account    string
	User       string
	Group      string
	Nodes      string
	NodeCount  restNumber `json:"allocation_nodes"`
	WorkDir    string     `json:"working_directory"`
	Constraint string     `json:"constraints"`
	Priority   restNumber
	Exit       restExit `json:"exit_code"`
	Derived    restExit `json:"derived_exit_code"`
	State      struct{ Current restText }
	Time       restTimes
	Array      struct {
		ID    restNumber `json:"job_id"`
		Task  restNumber `json:"task_id"`
		Tasks restText   `json:"task"`
	}
	Het struct {
		ID     restNumber `json:"job_id"`
		Offset restNumber `json:"job_offset"`
	}
	Required    struct{ CPUs restNumber }
	Reservation struct{ Name restText }
	WCKey       struct{ WCKey string }
	TRES        struct{ Allocated, Requested []restTRES }
	Steps       []restStep
}

type restStep struct {
	Nodes struct{ Range string }
	TRES  struct {
		Requested struct{ Max []restTRES } // what was used
		Allocated []restTRES
	}
	Time       restTimes
	Exit       restExit `json:"exit_code"`
	Tasks      struct{ Count restNumber }
	State      restText
	Statistics struct{ Energy struct{ Consumed restNumber } }
	Step       struct {
		ID   restStepID
		Name string
	}
}

// restStepID is batch, extern or a number: bare, at the end of 12.batch, or in
// an object, by the version.
type restStepID string

// UnmarshalJSON reads all three.
func (id *restStepID) UnmarshalJSON(data []byte) error {
	var o struct {
		ID json.RawMessage `json:"step_id"`
	}
	if json.Unmarshal(data, &o) == nil && o.ID != nil {
		data = o.ID
	}
	text := strings.Trim(string(data), `"`)
	*id = restStepID(text[strings.LastIndexByte(text, '.')+1:])
	return nil
}

// shownNumber is the number that people see.
func (j *restJob) shownNumber() string {
	switch {
	case j.Array.ID.n > 0 && j.Array.Task.ok:
		return fmt.Sprintf("%d_%d", j.Array.ID.n, j.Array.Task.n)
	case j.Array.ID.n > 0 && j.Array.Tasks != "":
		return fmt.Sprintf("%d_[%s]", j.Array.ID.n, j.Array.Tasks)
	case j.Het.ID.n > 0 && j.Het.Offset.ok:
		return fmt.Sprintf("%d+%d", j.Het.ID.n, j.Het.Offset.n)
	}
	return j.ID.text()
}

func instantText(number restNumber) string {
	if number.n <= 0 {
		return "Unknown"
	}
	return number.text()
}

// escapeCell keeps a text out of the way of the columns behind it.
func escapeCell(text string) string {
	return strings.NewReplacer("|", " ", "\n", " ", "\r", " ").Replace(text)
}

// sacctLines is what sacct would print of a job and its steps.
func (j *restJob) sacctLines() string {
	var out strings.Builder
	row := func(values map[string]string) {
		for i, column := range restColumns() {
			if i > 0 {
				out.WriteByte('|')
			}
			if column == "JobName" { // the last, which may have anything but ends of lines
				out.WriteString(strings.NewReplacer("\n", " ", "\r", " ").Replace(values[column]))
				continue
			}
			out.WriteString(escapeCell(values[column]))
		}
		out.WriteByte('\n')
	}
	raw, shown := j.ID.text(), j.shownNumber()
	row(
		map[string]string{
			"JobIDRaw":  raw,
			"JobID":     shown,
			"Cluster":   j.Cluster,
			"Partition": j.Partition,
			"QOS":       j.QOS,
			"Account":   j.Account,
			"User":      j.User,
			"Group":     j.Group,
			"State": string(
				j.State.Current,
			),
			"ExitCode":        j.Exit.text(),
			"DerivedExitCode": j.Derived.text(),
			"Submit":          instantText(j.Time.Submission),
			"Eligible":        instantText(j.Time.Eligible),
			"Start": instantText(
				j.Time.Start,
			),
			"End":          instantText(j.Time.End),
			"TimelimitRaw": j.Time.Limit.text(),
			"Suspended":    clock(j.Time.Suspended.n),
			"NNodes":       j.NodeCount.text(),
			"AllocCPUS": tresCount(
				j.TRES.Allocated,
				"cpu",
			),
			"ReqCPUS":     j.Required.CPUs.text(),
			"ReqTRES":     tresList(j.TRES.Requested),
			"AllocTRES":   tresList(j.TRES.Allocated),
			"NodeList":    j.Nodes,
			"UserCPU":     j.Time.User.text(),
			"SystemCPU":   j.Time.System.text(),
			"Reservation": string(j.Reservation.Name),
			"Constraints": j.Constraint,
			"Priority":    j.Priority.text(),
			"WCKey":       j.WCKey.WCKey,
			"WorkDir":     j.WorkDir,
			"JobName":     j.Name,
		},
	)
	for i := range j.Steps {
		step := &j.Steps[i]
		row(map[string]string{"JobIDRaw": raw + "." + string(step.Step.ID), "JobID": shown + "." +
			string(
				step.Step.ID,
			), "Cluster": j.Cluster, "State": string(step.State), "ExitCode": step.Exit.text(),
			"Start": instantText(
				step.Time.Start,
			), "End": instantText(step.Time.End), "AllocCPUS": tresCount(step.TRES.Allocated, "cpu"), "AllocTRES": tresList(step.TRES.Allocated),
			"NodeList": step.Nodes.Range, "NTasks": step.Tasks.Count.text(), "UserCPU": step.Time.User.text(), "SystemCPU": step.Time.System.text(),
			"MaxRSS": tresCount(
				step.TRES.Requested.Max,
				"mem",
			), "ConsumedEnergyRaw": step.Statistics.Energy.Consumed.text(), "JobName": step.Step.Name})
	}
	return out.String()
}
