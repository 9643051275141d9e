package acct

import (
	"cmp"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

func SQL() *tool.Command {
	return &tool.Command{
		Name: "sql", Mixed: true,
		Summary: "query the accounting store with SQL",
		Usage:   []string{"[OPTIONS] 'SELECT …'", "[OPTIONS] - < FILE", "--explain-report NAME"},
		About: `The views are described in docs/views.md: jobs, steps, job_nodes, job_gpus, pending_reasons,
node_states, associations, gpu_samples, usage_samples, qos_history, reservations, fairshare and events.
Users see the rows of their own jobs, coordinators those of their accounts, administrators and operators
all. A query is one read-only SELECT, limited to 30 seconds, 1 GiB of memory and a million result rows.`,
		Options: []opt.Option{
			{
				Long: "explain-report",
				Arg:  "name",
				Help: "print the SQL behind a command: sacct, kpi, sreport-user-topusage, …",
			},
			{
				Long:  "format",
				Short: "f",
				Arg:   "format",
				Help:  "table (default), csv, json (one object per line) or parquet",
			},
			{Long: "noheader", Short: "n", Help: "omit the header of the table"},
			{
				Long:  "output",
				Short: "o",
				Arg:   "file",
				Help:  "write the result to a file, which must not exist",
			},
			{Long: "views", Help: "list the views and their columns"},
		},
		Example: []tool.Example{
			{
				Line: "muster sql 'SELECT state, count() FROM jobs GROUP BY state'",
				What: "counts jobs by state",
			},
			{
				Line: "muster sql -f parquet -o jobs.parquet 'SELECT * FROM jobs'",
				What: "removes this site's own history",
			},
			{
				Line: "muster sql --explain-report sreport-user-topusage",
				What: "prints the SQL behind sreport user top",
			},
		},
		Run: runSQL,
	}
}

// sqlTextMost bounds a question that is read from standard input.
const sqlTextMost = 64 << 10

func runSQL(call *tool.Call) error {
	request := &apiv1.SqlQuery{
		Format:  strings.ToLower(cmp.Or(call.Opts.Text("format"), "table")),
		Explain: call.Opts.Text("explain-report"),
		Views:   call.Opts.On("views"),
	}
	text := strings.Join(call.Operands, " ")
	if text == "-" {
		data, err := tool.ReadAll(call.Stdin, sqlTextMost)
		if err != nil {
			return call.Errorf("standard input: %v", err)
		}
		text = string(data)
	}
	request.Sql = strings.TrimSuffix(strings.TrimSpace(text), ";")
	switch {
	case !slices.Contains([]string{"table", "csv", "json", "parquet"}, request.GetFormat()):
		return call.Errorf(
			"--format=%s: expected table, csv, json or parquet",
			call.Opts.Text("format"),
		)
	case request.GetSql() == "" && request.GetExplain() == "" && !request.GetViews():
		return &opt.UsageError{
			Command: "muster sql",
			Text:    "a SELECT is missing; `muster sql --views` lists what can be asked",
		}
	case request.GetFormat() == "parquet" && !call.Opts.On("output") && call.Terminal(call.Stdout):
		return call.Errorf("parquet is not for a terminal: name a file with --output")
	}
	out, err := sqlOutput(call)
	if err != nil {
		return err
	}
	err = sqlAnswer(call, request, out)
	if file, ok := out.(*os.File); ok {
		if cerr := file.Close(); err == nil && cerr != nil {
			err = call.Errorf("%v", cerr)
		}
		if err != nil {
			_ = os.Remove(file.Name()) // half an answer is none
		}
	}
	return err
}

// sqlOutput is where the answer goes.
func sqlOutput(call *tool.Call) (io.Writer, error) {
	name := call.Opts.Text("output")
	if name == "" {
		return call.Out, nil
	}
	if !strings.HasPrefix(name, "/") {
		name = call.Dir + "/" + name
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, call.Errorf("%v", err)
	}
	return file, nil
}

// sqlAnswer asks, and writes what comes: a table at the end, everything else
// as it comes.
func sqlAnswer(call *tool.Call, request *apiv1.SqlQuery, out io.Writer) error {
	var err error
	request.MinSeq, err = fetch.LastSeq(call, tool.MethodAcctSQL)
	if err != nil {
		return err
	}
	table := request.GetFormat() == "table" && request.GetExplain() == "" && !request.GetViews()
	if !table {
		if err := call.Exact(); err != nil {
			return err
		}
	}
	var all []byte
	behind := uint64(0)
	err = fetch.Stream(call, tool.MethodAcctSQL, request, func(reply *apiv1.SqlReply) error {
		behind = reply.GetBehind()
		if table {
			all = append(all, reply.GetData()...)
			return nil
		}
		_, err := out.Write(reply.GetData())
		return err
	})
	if err != nil {
		return err
	}
	fetch.WarnBehind(call, behind)
	if table {
		_, err = out.Write(sqlTable(string(all), call.Opts.On("noheader")))
	}
	return err
}

// sqlTable lays tab-separated rows out in columns: numbers to the right.
func sqlTable(text string, bare bool) []byte {
	if text == "" {
		return nil
	}
	var rows [][]string
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		cells := strings.Split(line, "\t")
		for i, cell := range cells {
			cells[i] = sqlCell(cell)
		}
		rows = append(rows, cells)
	}
	fields := make([]column.Field, len(rows[0]))
	for i := range fields {
		fields[i] = column.Field{Name: rows[0][i], Width: 1}
		number := len(rows) > 1
		for n, r := range rows {
			if i >= len(r) {
				continue
			}
			_, missing := column.Cut(r[i], sqlWidest)
			fields[i].Width = max(fields[i].Width, sqlWidest-missing)
			number = number && (n == 0 || r[i] == "NULL" || numeric(r[i]))
		}
		if !number {
			fields[i].Width = -fields[i].Width
		}
	}
	style := column.Style{NoHeader: bare}
	data := style.Header(nil, fields)
	for _, r := range rows[1:] {
		for len(r) < len(fields) {
			r = append(r, "")
		}
		data = style.Row(data, fields, r[:len(fields)])
	}
	return data
}

// sqlWidest is the width beyond which a column of a table is cut.
const sqlWidest = 80

// sqlCell undoes the escapes of tab-separated text; what would break the table
// is shown as a blank.
func sqlCell(text string) string {
	if text == `\N` {
		return "NULL"
	}
	if !strings.Contains(text, `\`) {
		return text
	}
	return strings.NewReplacer(`\\`, `\`, `\t`, " ", `\n`, " ", `\r`, " ", `\'`, "'", `\0`, " ", `\b`, " ", `\f`, " ").
		Replace(text)
}

func numeric(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}
