package console

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// maxFindings is how many findings, and runs unlike others, the page shows.
const maxFindings = 50

// findingsChoice is what a reader chose.
type findingsChoice struct {
	Window, User, Account string
}

// findingsData is what the page of findings shows.
type findingsData struct {
	Choice   findingsChoice
	Windows  []string
	Money    string // heading of the value; empty = there are no prices
	Rows     []findingLine
	Followed []followedLine
	Saved    string // what all of the followed findings saved, in GPU-hours
	Unlike   []unlikeLine
	Ladder   []ladderLine
	Command  string
	Behind   string
}

// findingLine is a change that somebody could make.
type findingLine struct {
	Rank                int
	Kind, Who, What     string
	User, Node          string // where links lead; empty = nowhere
	Runs, Value         string
	GPU, CPU, Memory    string
	Change, Advice, SQL string
}

// followedLine is a finding of the window before with what became of it.
type followedLine struct {
	Kind, Who, What, Progress, Class string
	Resource, Before, Now, Saved     string
	Value                            string
}

// unlikeLine is a run that is unlike its user's earlier ones.
type unlikeLine struct {
	Job, Link, Who, Work, State, Measure string
	Value, Usual, Range, Runs, GPU, SQL  string
}

// ladderLine is a step of the goodput ladder.
type ladderLine struct {
	Step, All, Found, Rest string
	Bar, FoundBar          int // thousandths of the longest step
}

func findingWindows() []string { return []string{"1d", "7d", "30d"} }

func readFindingsChoice(query url.Values) (findingsChoice, error) {
	choice := findingsChoice{
		Window:  cmp.Or(query.Get("window"), "7d"),
		User:    strings.TrimSpace(query.Get("user")),
		Account: strings.TrimSpace(query.Get("account")),
	}
	if !slices.Contains(findingWindows(), choice.Window) {
		return choice, spec.Refuse(spec.CodeBadRequest, "window is one of 1d, 7d and 30d")
	}
	return choice, nil
}

// command is the command line that prints the same.
func (c findingsChoice) command() string {
	line := "muster findings --window " + c.Window
	if c.User != "" {
		line += " --users " + quoted(c.User)
	}
	if c.Account != "" {
		line += " --accounts " + quoted(c.Account)
	}
	return line
}

// findingsPage shows what wastes most, what became of it, and what behaves unusually.
func (c *Console) findingsPage(v *visit) (answer, error) {
	choice, err := readFindingsChoice(v.URL.Query())
	if err != nil {
		return answer{}, err
	}
	span, _ := tool.ParseWindow(choice.Window)
	end := time.Now().UnixNano()
	request := func(name string) (*apiv1.ReportReply, error) {
		query := &apiv1.ReportQuery{
			Report: name, Start: end - span, End: end, Zone: time.Local.String(), Top: maxFindings,
		}
		if choice.User != "" {
			query.Users = []string{choice.User}
		}
		if choice.Account != "" {
			query.Accounts = []string{choice.Account}
		}
		return callAPI[*apiv1.ReportReply](v, tool.MethodAcctReport, query)
	}
	data := findingsData{Choice: choice, Windows: findingWindows(), Command: choice.command()}
	list, err := request("findings")
	if err != nil {
		return answer{}, err
	}
	if behind := list.GetBehind(); behind > 0 {
		data.Behind = formatNumber(behind)
	}
	data.addFindings(list)
	followed, err := request("findings followed")
	if err != nil {
		return answer{}, err
	}
	data.addFollowed(followed)
	unlike, err := request("findings unlike")
	if err != nil {
		return answer{}, err
	}
	data.addUnlike(unlike)
	if choice.User == "" && choice.Account == "" {
		sum, err := request("findings sum")
		if err != nil {
			return answer{}, err
		}
		data.addLadder(sum)
	}
	return answer{page: "findings", title: "Findings", data: data}, nil
}

func (d *findingsData) addFindings(reply *apiv1.ReportReply) {
	unit := ""
	for _, column := range reply.GetColumns() {
		if column.GetName() == "value" {
			unit = render.Clean(column.GetUnit())
		}
	}
	for i, row := range render.ReportRows(reply) {
		who, what := row.Whose()
		if row.Money("value") != "-" {
			d.Money = strings.TrimSpace("Value " + unit)
		}
		d.Rows = append(d.Rows, findingLine{
			Rank:   i + 1,
			Kind:   row.Text("kind"),
			Who:    render.Clean(who),
			What:   render.Clean(what),
			User:   row.Text("user"),
			Node:   row.Text("node"),
			Runs:   dashed(formatNumber(row.Number("runs"))),
			Value:  dashed(row.Money("value")),
			GPU:    dashed(row.Hours("gpu_us")),
			CPU:    dashed(row.Hours("cpu_us")),
			Memory: dashed(row.MemoryHours("mem_mib_us")),
			Change: render.Clean(row.Text("change")),
			Advice: render.Clean(row.Text("advice")),
			SQL:    questionLink(row.Text("evidence")),
		})
	}
}

// dashed writes nothing as a dash: a column of zeros hides the figures in it.
func dashed(figure string) string {
	if strings.Trim(figure, "0.-") == "" {
		return "–"
	}
	return figure
}

func questionLink(question string) string { return "/sql?" + url.Values{"q": {question}}.Encode() }

func (d *findingsData) addFollowed(reply *apiv1.ReportReply) {
	saved := int64(0)
	for _, row := range render.ReportRows(reply) {
		if row.Text("resource") == "gpu" {
			saved += row.Number("saved_us")
		}
		who, what := row.Whose()
		progress := row.Text("progress")
		d.Followed = append(d.Followed, followedLine{
			Kind:     row.Text("kind"),
			Who:      render.Clean(who),
			What:     render.Clean(what),
			Progress: progress,
			Class:    map[string]string{"done": "ok", "better": "ok", "not done": "warn"}[progress],
			Resource: row.Text("resource"),
			Before:   row.FollowedHours("before_us"),
			Now:      row.FollowedHours("now_us"),
			Saved:    row.FollowedHours("saved_us"),
			Value:    dashed(row.Money("saved_value")),
		})
	}
	d.Saved = fmt.Sprintf("%.2f", float64(saved)/3.6e9)
}

func (d *findingsData) addUnlike(reply *apiv1.ReportReply) {
	for _, row := range render.ReportRows(reply) {
		who, what := row.Whose()
		d.Unlike = append(d.Unlike, unlikeLine{
			Job:     row.RunText(),
			Link:    fmt.Sprintf("/job/%d", row.Number("job")),
			Who:     render.Clean(who),
			Work:    render.Clean(what),
			State:   row.Text("state"),
			Measure: row.Text("measure"),
			Value:   row.Measure("value"),
			Usual:   row.Measure("median"),
			Range:   row.Measure("first_quartile") + " to " + row.Measure("third_quartile"),
			Runs:    formatNumber(row.Number("earlier_runs")),
			GPU:     row.Hours("held_us"),
			SQL:     questionLink(row.Text("evidence")),
		})
	}
}

func (d *findingsData) addLadder(reply *apiv1.ReportReply) {
	longest := int64(1)
	for _, row := range render.ReportRows(reply) {
		longest = max(longest, row.Number("gpu_us"))
	}
	for _, row := range render.ReportRows(reply) {
		if row.Number("gpu_us") == 0 {
			continue
		}
		d.Ladder = append(d.Ladder, ladderLine{
			Step:     row.Text("what"),
			All:      row.Hours("gpu_us"),
			Found:    dashed(row.Hours("found_us")),
			Rest:     dashed(row.Hours("rest_us")),
			Bar:      inThousandths(row.Number("gpu_us"), longest),
			FoundBar: inThousandths(row.Number("found_us"), longest),
		})
	}
}
