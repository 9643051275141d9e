package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
)

// answerKPI answers with one figure of two accounts, which is the number of the month.
func answerKPI(q *apiv1.ReportQuery) (proto.Message, error) {
	month := float64(time.Unix(0, q.GetStart()).Month())
	row := func(name string, cell *apiv1.Cell) *apiv1.ReportRow {
		return &apiv1.ReportRow{Cells: []*apiv1.Cell{{Kind: &apiv1.Cell_Text{Text: name}}, cell}}
	}
	return &apiv1.ReportReply{
		Sql: "SELECT\n1",
		Columns: []*apiv1.ReportColumn{
			{Name: "account", Kind: "text"},
			{Name: "throughput", Kind: "float"},
		},
		Rows: []*apiv1.ReportRow{
			row(hostileName(), &apiv1.Cell{Kind: &apiv1.Cell_Float{Float: month}}),
			row("idle", &apiv1.Cell{Kind: &apiv1.Cell_Null{Null: true}}),
		},
	}, nil
}

// TestReports: a month is asked from its first to its last instant, figures come with
// their definition and query, names are text, and what was not measured is no zero.
func TestReports(t *testing.T) {
	api := &questionsAPI[*apiv1.ReportQuery]{method: tool.MethodAcctReport, answer: answerKPI}
	c := smallConsole(t, api, 1000, authz.User)
	page := pageText(t, c, "/reports?by=account&month=2026-02")
	from, to := time.Date(2026, 2, 1, 0, 0, 0, 0, time.Local), time.Date(2026, 3, 1, 0, 0, 0, 0, time.Local)
	if q := api.asked[0]; q.GetStart() != from.UnixNano() || q.GetEnd() != to.UnixNano() || q.GetBy() != "account" || q.GetReport() != "kpi" {
		t.Errorf("asked %v", q)
	}
	for _, want := range []string{"&lt;script&gt;alert(1)", ">2.00</td>", ">-</td>", "What the figures mean", "SELECT\n1</pre>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "<script>alert") {
		t.Error("a name is not text")
	}
	api.asked = nil
	page = pageText(t, c, "/reports?by=account&month=2026-02&kpi=throughput")
	if len(api.asked) != trendMonths || !strings.Contains(page, ">2025-09</th>") || !strings.Contains(page, ">9.00</td>") {
		t.Errorf("%d months are asked for:\n%s", len(api.asked), page)
	}
	csv := pageText(t, c, "/reports/export?by=account&month=2026-02&format=csv")
	if !strings.HasPrefix(csv, "account,throughput\n") || !strings.HasSuffix(csv, ",2\nidle,\n") {
		t.Errorf("the file is %q", csv)
	}
	if text := pageText(t, c, "/reports/export?by=account&month=2026-02&format=json"); !strings.Contains(text, `{"account":"idle","throughput":null}`) {
		t.Errorf("the file is %q", text)
	}
	for _, bad := range []string{"by=job", "month=2026-13", "month=yesterday", "kpi=none"} {
		if _, err := readReport(httptest.NewRequest(http.MethodGet, "/?"+bad, nil).URL.Query(), time.Now()); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
