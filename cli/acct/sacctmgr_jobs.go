package acct

import (
	"fmt"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// jobCondition is a key of sacctmgr modify job where.
type jobCondition struct {
	names []string
	read  func(call *tool.Call, query *apiv1.AcctQuery, value string) error
}

// jobConditions are those keys. A key may be shortened to a beginning of three letters.
//
//muster:table one row for each key
func jobConditions() []jobCondition {
	list := func(field func(*apiv1.AcctQuery) *[]string) func(*tool.Call, *apiv1.AcctQuery, string) error {
		return func(_ *tool.Call, query *apiv1.AcctQuery, value string) error {
			*field(query) = append(*field(query), tool.SplitList(value)...)
			return nil
		}
	}
	moment := func(field func(*apiv1.AcctQuery) *int64) func(*tool.Call, *apiv1.AcctQuery, string) error {
		return func(call *tool.Call, query *apiv1.AcctQuery, value string) error {
			seconds, err := format.ParseTime(
				value, format.Moment{Now: call.Now().Unix(), Loc: call.Loc},
			)
			if err != nil {
				return call.Errorf("%s", tool.BadTimeText(value))
			}
			*field(query) = seconds * tool.Second
			return nil
		}
	}
	return []jobCondition{
		{[]string{"jobid", "jobs"}, list(func(q *apiv1.AcctQuery) *[]string { return &q.Jobs })},
		{[]string{"users"}, list(func(q *apiv1.AcctQuery) *[]string { return &q.Users })},
		{[]string{"accounts"}, list(func(q *apiv1.AcctQuery) *[]string { return &q.Accounts })},
		{[]string{"names"}, list(func(q *apiv1.AcctQuery) *[]string { return &q.Names })},
		{[]string{"clusters"}, func(call *tool.Call, _ *apiv1.AcctQuery, value string) error {
			if value != call.Cluster() {
				return call.Errorf("cluster %q is not known here: the ledger has the jobs of %q", value, call.Cluster())
			}
			return nil
		}},
		{[]string{"starttime", "submittime", "eligible"}, moment(func(q *apiv1.AcctQuery) *int64 { return &q.Start })},
		{[]string{"endtime"}, moment(func(q *apiv1.AcctQuery) *int64 { return &q.End })},
	}
}

// noteKey is a key of sacctmgr modify job set.
type noteKey struct {
	name string
	set  func(request *apiv1.NoteJobsRequest, value string) error
}

// noteKeys are those keys.
//
//muster:table one row for each key
func noteKeys() []noteKey {
	text := func(field func(*apiv1.NoteJobsRequest) **string) func(*apiv1.NoteJobsRequest, string) error {
		return func(request *apiv1.NoteJobsRequest, value string) error {
			*field(request) = &value
			return nil
		}
	}
	return []noteKey{
		{"admincomment", text(func(r *apiv1.NoteJobsRequest) **string { return &r.AdminComment })},
		{"comment", text(func(r *apiv1.NoteJobsRequest) **string { return &r.Comment })},
		{"derivedexitcode", setDerived},
		{"extra", text(func(r *apiv1.NoteJobsRequest) **string { return &r.Extra })},
		{"systemcomment", text(func(r *apiv1.NoteJobsRequest) **string { return &r.SystemComment })},
	}
}

// setDerived reads an exit code.
func setDerived(request *apiv1.NoteJobsRequest, value string) error {
	n, err := strconv.ParseUint(value, 10, 8)
	if err != nil {
		return fmt.Errorf("invalid exit code %q: expected a number from 0 to 255", value)
	}
	code := uint32(n)
	request.DerivedExitCode = &code
	return nil
}

const nothingToSet = " You didn't give me anything to set"

// jobChange reads the conditions and settings of sacctmgr modify job.
func jobChange(call *tool.Call, args []string) (*apiv1.AcctQuery, *apiv1.NoteJobsRequest, error) {
	query := &apiv1.AcctQuery{AllocationsOnly: true, Duplicates: true, Start: 1,
		Fields: []string{"user"}}
	request := &apiv1.NoteJobsRequest{}
	condition, settings := true, 0
	for _, word := range args {
		switch strings.ToLower(word) {
		case "where":
			condition = true
			continue
		case "set":
			condition = false
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		key, value = strings.ToLower(key), strings.Trim(value, "\"'")
		if condition {
			found := findCondition(key)
			if found == nil {
				return nil, nil, tool.Fail(1, " Unknown condition: "+word, " Use keyword 'set' to modify value")
			}
			if err := found.read(call, query, value); err != nil {
				return nil, nil, err
			}
			continue
		}
		found := findNote(key)
		if found == nil && len(key) >= 3 && strings.HasPrefix("newwckey", key) {
			return nil, nil, call.Errorf("the wckey of a job that is over cannot be changed: its use is accounted to it")
		}
		if found == nil {
			lines := []string{" Unknown option: " + word, whereHint}
			if settings == 0 {
				lines = append([]string{nothingToSet}, lines...)
			}
			return nil, nil, tool.Fail(1, lines...)
		}
		settings++
		if err := found.set(request, value); err != nil {
			return nil, nil, call.Errorf("%v", err)
		}
	}
	if settings == 0 {
		return nil, nil, tool.Fail(1, nothingToSet)
	}
	return query, request, nil
}

func findCondition(key string) *jobCondition {
	table := jobConditions()
	for i := range table {
		for _, name := range table[i].names {
			if name == key || name == key+"s" || len(key) >= 3 && strings.HasPrefix(name, key) {
				return &table[i]
			}
		}
	}
	return nil
}

func findNote(key string) *noteKey {
	table := noteKeys()
	for i := range table {
		if len(key) >= 3 && strings.HasPrefix(table[i].name, key) {
			return &table[i]
		}
	}
	return nil
}

// maxNotedAtOnce is how many jobs one request changes.
const maxNotedAtOnce = 5000

// modifyJobs is sacctmgr modify job: what is said of jobs, most often of jobs that are
// over. Accounting finds them, and the controller writes it down.
func modifyJobs(call *tool.Call, args []string) error {
	if call.Opts.On("readonly") {
		return call.Errorf("Can't run this command in readonly mode.")
	}
	query, request, err := jobChange(call, args)
	if err != nil {
		return err
	}
	rows, err := findJobs(call, query)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return nothingChanged(call, " Nothing modified")
	}
	announce := func() error {
		if call.Opts.On("quiet") {
			return nil
		}
		return call.WriteOut([]byte(announceJobs(call, rows)))
	}
	if call.Opts.On("immediate") {
		// Nothing is said of jobs that the caller may not change.
		if err := noteJobs(call, request, rows); err != nil {
			return err
		}
		return announce()
	}
	if err := announce(); err != nil {
		return err
	}
	if ok, err := confirmChange(call, "modify"); err != nil || !ok {
		return err
	}
	return noteJobs(call, request, rows)
}

// findJobs asks accounting for the runs that match.
func findJobs(call *tool.Call, query *apiv1.AcctQuery) ([]*apiv1.AcctRow, error) {
	var rows []*apiv1.AcctRow
	err := fetch.AccountingRows(call, query, func(part *apiv1.AcctReply) error {
		rows = append(rows, part.GetRows()...)
		return nil
	})
	return rows, err
}

// announceJobs names the jobs that change.
func announceJobs(call *tool.Call, rows []*apiv1.AcctRow) string {
	var text strings.Builder
	text.WriteString(" Modified jobs...\n")
	seen := map[uint64]bool{}
	for _, row := range rows {
		if !seen[row.GetUid()] {
			fmt.Fprintf(
				&text,
				"  %d submitted at %s\n",
				row.GetJobId(),
				render.FormatTime(call, row.GetSubmit()),
			)
		}
		seen[row.GetUid()] = true
	}
	return text.String()
}

// noteJobs sends a change of some jobs, a few thousand at a time.
func noteJobs(call *tool.Call, request *apiv1.NoteJobsRequest, rows []*apiv1.AcctRow) error {
	var uids []uint64
	seen := map[uint64]bool{}
	for _, row := range rows {
		if uid := row.GetUid(); !seen[uid] {
			uids = append(uids, uid)
			seen[uid] = true
		}
	}
	for len(uids) > 0 {
		n := min(len(uids), maxNotedAtOnce)
		request.Uids = uids[:n]
		uids = uids[n:]
		if err := call.RPC(tool.MethodNoteJobs, request, &apiv1.NoteJobsReply{}); err != nil {
			refusal := tool.ExplainError(err)
			return tool.Fail(
				1,
				append(
					refusal.Preamble(call.Command.Name), " Error with request: "+refusal.Text,
				)...,
			)
		}
	}
	return nil
}
