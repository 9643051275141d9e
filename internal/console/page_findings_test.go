package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
)

// answerFindings answers with a finding about a user, one about a GPU, and an unusual run.
func answerFindings(q *apiv1.ReportQuery) (proto.Message, error) {
	rep := &apiv1.ReportReply{}
	add := func(cells map[string]any) {
		row := &apiv1.ReportRow{}
		for _, column := range rep.GetColumns() {
			cell := &apiv1.Cell{Kind: &apiv1.Cell_Null{Null: true}}
			switch v := cells[column.GetName()].(type) {
			case string:
				cell.Kind = &apiv1.Cell_Text{Text: v}
			case int:
				cell.Kind = &apiv1.Cell_Int{Int: int64(v)}
			case float64:
				cell.Kind = &apiv1.Cell_Float{Float: v}
			}
			row.Cells = append(row.Cells, cell)
		}
		rep.Rows = append(rep.Rows, row)
	}
	name := func(names string) {
		for n := range strings.FieldsSeq(names) {
			rep.Columns = append(rep.Columns, &apiv1.ReportColumn{Name: n, Unit: map[string]string{"value": "EUR"}[n]})
		}
	}
	const hour = 3_600_000_000
	switch q.GetReport() {
	case "findings":
		name("kind user account job_name node device gpu runs gpu_us value change advice evidence")
		add(map[string]any{
			"kind": "idle", "user": "alice", "account": "ml", "job_name": hostileName(),
			"runs": 3, "gpu_us": 5 * hour / 2, "value": 7.5,
			"change": "#SBATCH --gpus=0", "evidence": "SELECT 1",
		})
		add(map[string]any{
			"kind": "slow-gpu", "node": "n2", "device": "GPU-2", "gpu": 2,
			"runs": 1, "gpu_us": hour, "advice": "look at cooling",
		})
	case "findings followed":
		name("kind user account job_name resource progress before_us now_us saved_us")
		add(map[string]any{
			"kind": "idle", "user": "alice", "account": "ml", "resource": "gpu", "progress": "done",
			"before_us": 4 * hour, "now_us": hour, "saved_us": 3 * hour,
		})
	case "findings unlike":
		name("job restart user account job_name state measure unit value median " +
			"first_quartile third_quartile earlier_runs held_us evidence")
		add(map[string]any{
			"job": 42, "restart": 1, "user": "bob", "account": "bio", "state": "RUNNING",
			"measure": "gpu utilisation", "unit": "ratio", "value": 0.2, "median": 0.9,
			"first_quartile": 0.85, "third_quartile": 0.95, "earlier_runs": 12,
			"held_us": hour, "evidence": "SELECT 2",
		})
	case "findings sum":
		name("step what gpu_us found_us rest_us")
		add(map[string]any{"what": "held without work", "gpu_us": 3 * hour, "found_us": 2 * hour, "rest_us": hour})
	}
	return rep, nil
}

// TestFindingsPage: the page has each finding with its line and the question behind it, what
// was saved, unusual runs, and the ladder only of the whole cluster.
func TestFindingsPage(t *testing.T) {
	api := &questionsAPI[*apiv1.ReportQuery]{method: tool.MethodAcctReport, answer: answerFindings}
	c := smallConsole(t, api, 1000, authz.User)
	page := pageText(t, c, "/findings?window=1d")
	for _, want := range []string{
		"&lt;script&gt;alert(1)", ">2.50</td>", ">7.50</td>", "Value EUR", "#SBATCH --gpus=0", `href="/sql?q=SELECT&#43;1"`,
		"GPU 2 of node n2", `href="/node/n2"`, "<b>3.00</b> GPU-hours saved", `<span class="state ok">done</span>`,
		`<a href="/job/42">42 (restart 1)</a>`, "20.0 %", "85.0 % to 95.0 %", "held without work",
		"muster findings --window 1d",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "<script>alert") {
		t.Error("a name is not text")
	}
	if strings.Contains(page, ">0.00</td>") {
		_, rest, _ := strings.Cut(page, ">0.00</td>")
		t.Errorf("what a finding has nothing of is a figure, before %.80s", rest)
	}
	if want := `<rect width="100.0%" height="12" rx="2" class="firm"/><rect width="66.6%" height="12" rx="2" class="guess"/>`; !strings.Contains(page, want) {
		t.Error("the step of the ladder has no bar with the part in findings")
	}
	if len(api.asked) != 4 || api.asked[0].GetStart() != api.asked[3].GetStart() {
		t.Errorf("asked %v", api.asked)
	}
	api.asked = nil
	page = pageText(t, c, "/findings?user=alice&account=ml")
	if len(api.asked) != 3 || api.asked[0].GetUsers()[0] != "alice" || api.asked[2].GetAccounts()[0] != "ml" ||
		strings.Contains(page, "Where the GPU time went") {
		t.Errorf("asked %v", api.asked)
	}
	priceless := func(q *apiv1.ReportQuery) (proto.Message, error) {
		answer, err := answerFindings(q)
		for _, row := range answer.(*apiv1.ReportReply).GetRows() {
			for i, column := range answer.(*apiv1.ReportReply).GetColumns() {
				if column.GetName() == "value" {
					row.Cells[i] = &apiv1.Cell{Kind: &apiv1.Cell_Null{Null: true}}
				}
			}
		}
		return answer, err
	}
	c = smallConsole(t, &questionsAPI[*apiv1.ReportQuery]{method: tool.MethodAcctReport, answer: priceless}, 1000, authz.User)
	if page := pageText(t, c, "/findings?window=1d"); strings.Contains(page, "Value") || !strings.Contains(page, "#SBATCH --gpus=0") {
		t.Error("without prices there is a column of values")
	}
	line := findingsChoice{Window: "7d", User: "eve; reboot", Account: "ml"}.command()
	if want := "muster findings --window 7d --users 'eve; reboot' --accounts ml"; line != want {
		t.Errorf("the command is %s, want %s", line, want)
	}
	if _, err := readFindingsChoice(httptest.NewRequest(http.MethodGet, "/?window=2y", nil).URL.Query()); err == nil {
		t.Error("a window of two years is accepted")
	}
}
