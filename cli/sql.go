package cli

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
)

func sqlCommand() *command {
	return &command{
		name: "sql", mixed: true,
		summary: "ask accounting in SQL",
		usage:   []string{"[OPTIONS] 'SELECT …'", "[OPTIONS] - < FILE", "--explain-report NAME"},
		about: `The views are described in docs/views.md: jobs, steps, job_nodes, job_gpus, pending_reasons,
node_states, associations, gpu_samples, usage_samples, qos_history, reservations, fairshare and events.
Everyone sees the rows of his own jobs, a coordinator those of his accounts, administrators and operators all. A question may take
30 seconds, 1 GiB and a million rows of answer; it is one SELECT and changes nothing.`,
		options: []opt.Option{
			{Long: "explain-report", Arg: "name", Help: "print the SQL behind a command: sacct, kpi, sreport-user-topusage, …"},
			{Long: "format", Short: "f", Arg: "format", Help: "table (so without the option), csv, json (one object a line) or parquet"},
			{Long: "noheader", Short: "n", Help: "print no header (table)"},
			{Long: "output", Short: "o", Arg: "file", Help: "write the answer into a file that does not exist yet"},
			{Long: "views", Help: "list the views and their columns"},
		},
		example: []example{
			{"muster sql 'SELECT state, count() FROM jobs GROUP BY state'", "counts jobs by state"},
			{"muster sql -f parquet -o jobs.parquet 'SELECT * FROM jobs'", "takes one's own history away"},
			{"muster sql --explain-report sreport-user-topusage", "prints the SQL behind sreport user top"},
		},
		run: runSQL,
	}
}

// sqlTextMost bounds a question that is read from standard input.
const sqlTextMost = 64 << 10

func runSQL(c *call) error {
	req := &apiv1.SqlQuery{Format: strings.ToLower(or(c.opts.Text("format"), "table")), Explain: c.opts.Text("explain-report"), Views: c.opts.On("views")}
	text := strings.Join(c.args, " ")
	if text == "-" {
		data, err := readAll(c.Stdin, sqlTextMost)
		if err != nil {
			return c.errorf("standard input: %v", err)
		}
		text = string(data)
	}
	req.Sql = strings.TrimSuffix(strings.TrimSpace(text), ";")
	switch {
	case !slices.Contains([]string{"table", "csv", "json", "parquet"}, req.GetFormat()):
		return c.errorf("--format=%s: it is one of table, csv, json, parquet", c.opts.Text("format"))
	case req.GetSql() == "" && req.GetExplain() == "" && !req.GetViews():
		return &opt.UsageError{Command: "muster sql", Text: "a SELECT is missing; `muster sql --views` lists what can be asked"}
	case req.GetFormat() == "parquet" && !c.opts.On("output") && c.Terminal(c.Stdout):
		return c.errorf("parquet is not for a terminal: name a file with --output")
	}
	out, err := c.sqlOutput()
	if err != nil {
		return err
	}
	err = c.sqlAnswer(req, out)
	if f, ok := out.(*os.File); ok {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = c.errorf("%v", cerr)
		}
		if err != nil {
			_ = os.Remove(f.Name()) // half an answer is none
		}
	}
	return err
}

// sqlOutput is where the answer goes.
func (c *call) sqlOutput() (io.Writer, error) {
	name := c.opts.Text("output")
	if name == "" {
		return c.out, nil
	}
	if !strings.HasPrefix(name, "/") {
		name = c.Dir + "/" + name
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, c.errorf("%v", err)
	}
	return f, nil
}

// sqlAnswer asks, and writes what comes: a table at the end, everything else
// as it comes.
func (c *call) sqlAnswer(req *apiv1.SqlQuery, out io.Writer) error {
	var err error
	if req.MinSeq, err = c.lastSeq(methodAcctSQL); err != nil {
		return err
	}
	table := req.GetFormat() == "table" && req.GetExplain() == "" && !req.GetViews()
	var all []byte
	behind := uint64(0)
	err = stream(c, methodAcctSQL, req, func(rep *apiv1.SqlReply) error {
		behind = rep.GetBehind()
		if table {
			all = append(all, rep.GetData()...)
			return nil
		}
		_, err := out.Write(rep.GetData())
		return err
	})
	if err != nil {
		return err
	}
	c.warnBehind(behind)
	if table {
		_, err = out.Write(sqlTable(string(all), c.opts.On("noheader")))
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
	b := style.Header(nil, fields)
	for _, r := range rows[1:] {
		for len(r) < len(fields) {
			r = append(r, "")
		}
		b = style.Row(b, fields, r[:len(fields)])
	}
	return b
}

// sqlWidest is the width beyond which a column of a table is cut.
const sqlWidest = 80

// sqlCell undoes the escapes of tab-separated text; what would break the table
// is shown as a blank.
func sqlCell(s string) string {
	if s == `\N` {
		return "NULL"
	}
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\t`, " ", `\n`, " ", `\r`, " ", `\'`, "'", `\0`, " ", `\b`, " ", `\f`, " ").Replace(s)
}

func numeric(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}
