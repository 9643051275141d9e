package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// sqlConsole answers every question with pieces of text, and then with an error.
func sqlConsole(t *testing.T, pieces []string, end error, asked *apiv1.SqlQuery) *Console {
	t.Helper()
	c := smallConsole(t, answers{}, 1000, authz.User)
	c.cfg.Stream = func(_ context.Context, id identity.Identity, method string, req proto.Message, send func(proto.Message) error) error {
		if id.UID != 1000 || method != tool.MethodAcctSQL {
			t.Errorf("%v asks %s", id, method)
		}
		if q, ok := req.(*apiv1.SqlQuery); ok && asked != nil {
			proto.Merge(asked, q)
		}
		for _, text := range pieces {
			if err := send(&apiv1.SqlReply{Data: []byte(text)}); err != nil {
				return err
			}
		}
		return end
	}
	return c
}

func sqlLink(question string) string { return "/sql?" + url.Values{"q": {question}}.Encode() }

// TestQuestionAndAnswer: a question is asked once, as the visitor; what comes back
// is text, whatever it holds, with numbers to the right and a chart of them.
func TestQuestionAndAnswer(t *testing.T) {
	var asked apiv1.SqlQuery
	c := sqlConsole(t, []string{"user\tcount()\tnote\n" + hostileName() + "\t40\t", "a\\tb\nalice\t10\t\\N\n"}, nil, &asked)
	page := pageText(t, c, sqlLink("SELECT user, count() FROM jobs;"))
	if asked.GetSql() != "SELECT user, count() FROM jobs" || asked.GetFormat() != "table" || asked.GetMinSeq() != 1 {
		t.Errorf("asked %v", &asked)
	}
	for _, want := range []string{"&lt;script&gt;alert(1)", ">40</bdi>", ">a b</bdi>", ">NULL</bdi>", `width="25.0%"`, "muster sql", "/sql/export?format=csv"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, bad := range []string{"<script>alert", "data-live"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

// TestAnswerIsBounded: a page keeps its first rows and ends the question.
func TestAnswerIsBounded(t *testing.T) {
	pieces := []string{"n\n"}
	for i := range 3 * maxSQLRows {
		pieces = append(pieces, strconv.Itoa(i)+"\n")
	}
	c := sqlConsole(t, pieces, spec.Refuse(spec.CodeBadRequest, "went on to the end"), nil)
	page := pageText(t, c, sqlLink("SELECT n FROM jobs"))
	if !strings.Contains(page, ">999</bdi>") || strings.Contains(page, ">1000</bdi>") || !strings.Contains(page, "1,000 rows of more") {
		t.Error("the page does not have the first thousand rows")
	}
}

// TestRefusedQuestion: what the service says is shown beside the question.
func TestRefusedQuestion(t *testing.T) {
	c := sqlConsole(t, nil, spec.Refuse(spec.CodeBadRequest, "there is no view <b>"), nil)
	r := httptest.NewRequest(http.MethodGet, sqlLink("SELECT 1 FROM x"), nil)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "there is no view &lt;b&gt;") || !strings.Contains(w.Body.String(), "SELECT 1 FROM x</textarea>") {
		t.Errorf("%d:\n%s", w.Code, w.Body)
	}
	done, err := c.asking.take("other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.asking.take("other"); err == nil {
		t.Error("one user asks two questions at once")
	}
	if _, err := c.asking.take("third"); err != nil {
		t.Errorf("a user waits for another one: %v", err)
	}
	done()
	if _, err := c.asking.take("other"); err != nil {
		t.Errorf("a turn is not given back: %v", err)
	}
}

// TestExportIsWhole: a file has every row, and one that breaks off does not end as a
// whole one does.
func TestExportIsWhole(t *testing.T) {
	export := func(c *Console) (body string, aborted bool) {
		r := httptest.NewRequest(http.MethodGet, "/sql/export?format=csv&q=SELECT", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
		w := httptest.NewRecorder()
		defer func() { aborted = recover() != nil }()
		c.exportSQL(w, r)
		return w.Body.String(), false
	}
	if body, aborted := export(sqlConsole(t, []string{"a,b\n", "1,2\n"}, nil, nil)); body != "a,b\n1,2\n" || aborted {
		t.Errorf("the file is %q", body)
	}
	if _, aborted := export(sqlConsole(t, []string{"a,b\n"}, spec.Refuse(spec.CodeBadRequest, "broken off"), nil)); !aborted {
		t.Error("half an answer ends like a whole one")
	}
}

// TestChartOfAnswer: a line over what grows, bars over anything else, and nothing
// where a bar would be below zero.
func TestChartOfAnswer(t *testing.T) {
	for _, test := range []struct {
		text       string
		line, bars bool
	}{
		{"day\tn\n2026-11-01\t1\n2026-11-02\t5\n2026-11-03\t2\n", true, false},
		{"hour\tn\n1\t1\n2\t5\n10\t2\n", true, false},
		{"hour\tn\n2\t1\n1\t5\n10\t2\n", false, true},
		{"name\tn\nb\t1\na\t\\N\n", false, true},
		{"name\tn\nb\t1\na\t-1\n", false, false},
		{"name\tn\nb\tx\na\ty\n", false, false},
	} {
		d := sqlData{Result: readResult(test.text, false)}
		d.chooseChart("")
		if line, bars := d.Chart != nil && d.Chart.Line != nil, d.Chart != nil && len(d.Chart.Bars) > 0; line != test.line || bars != test.bars {
			t.Errorf("%q: line %v, bars %v", test.text, line, bars)
		}
	}
}
