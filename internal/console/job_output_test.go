package console

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// writingAPI answers for a job that writes, a few bytes an answer.
type writingAPI struct {
	*largeAPI
	mu   sync.Mutex
	file string
	over bool
	step int
}

// Call implements API.
func (a *writingAPI) Call(ctx context.Context, id identity.Identity, method string, req proto.Message) (proto.Message, error) {
	asked, ok := req.(*apiv1.ReadOutputRequest)
	if !ok {
		return a.largeAPI.Call(ctx, id, method, req)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if asked.GetJob() != "1" {
		return nil, spec.Refuse(spec.CodeAccessDenied, "not yours")
	}
	size := int64(len(a.file))
	from := asked.GetFrom()
	if from < 0 {
		from = max(size-asked.GetMost(), 0)
	}
	to := min(from+int64(a.step), size)
	if asked.GetFrom() < 0 {
		to = size
	}
	return &apiv1.ReadOutputReply{Path: "/home/<b>/out", Node: "n1", From: from, Size: size, Data: []byte(a.file[min(from, size):max(to, min(from, size))]), Over: a.over}, nil
}

// TestOutput: the page has the end of the file as text, and the stream goes on from
// there to the end of the job, with characters whole and nothing that acts.
func TestOutput(t *testing.T) {
	c := largeConsole(t)
	api := &writingAPI{largeAPI: newLargeAPI(1, 1), file: "one <img src=x onerror=alert(1)>\ntwö\r50%\r100%\x1b[31m\n", step: 3}
	c.cfg.API = api
	c.cfg.Door = authz.Door{Standing: func(string) authz.Role { return authz.User }}
	page := readPlain(t, c, "/job/1/output")
	for _, want := range []string{"one &lt;img src=x onerror=alert(1)&gt;\ntwö\n50%\n100%[U&#43;001B][31m\n", "/home/&lt;b&gt;/out", `data-tail="/job/1/output/live?from=`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	web := httptest.NewServer(c)
	defer web.Close()
	follow := func(path string) []string {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, web.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(&http.Cookie{Name: cookieName, Value: "token"})
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var out []string
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				out = append(out, text)
			}
		}
		return out
	}
	api.mu.Lock()
	api.over = true
	api.mu.Unlock()
	got := strings.Join(follow("/job/1/output/live?from=34"), "\n")
	if !strings.Contains(got, "ö") || strings.Contains(got, "\ufffd") || !strings.Contains(got, `"over":true`) {
		t.Errorf("the stream:\n%s", got)
	}
	// A file that is shorter than what was read has begun anew.
	if got := follow("/job/1/output/live?from=1000"); len(got) < 2 || got[0] != `{"next":0,"again":true}` || !strings.HasPrefix(got[1], `{"text":"one"`) {
		t.Errorf("after a truncation:\n%s", strings.Join(got, "\n"))
	}
	// What is refused ends the stream.
	if got := follow("/job/2/output/live?from=0"); len(got) != 1 || !strings.Contains(got[0], `"over":true`) || !strings.Contains(got[0], "not yours") {
		t.Errorf("a job of somebody else:\n%s", strings.Join(got, "\n"))
	}
	for _, bad := range []string{"/job/1/output/live", "/job/1/output/live?from=-1", "/job/x;y/output/live?from=0"} {
		if got := follow(bad); got != nil {
			t.Errorf("%s streams %s", bad, got)
		}
	}
}

// TestWholeRunes: the beginning of a character waits for its end, and no byte is lost.
func TestWholeRunes(t *testing.T) {
	text := "aä€😀\xff"
	for cut := range len(text) + 1 {
		first := wholeRunes(&apiv1.ReadOutputReply{Data: []byte(text[:cut]), Size: int64(len(text))})
		rest := text[len(first):]
		if strings.ToValidUTF8(string(first), "")+strings.ToValidUTF8(rest, "") != "aä€😀" {
			t.Errorf("cut at %d: %q, %q", cut, first, rest)
		}
	}
	if got := wholeRunes(&apiv1.ReadOutputReply{Data: []byte("a\xe2"), Size: 2, Over: true}); string(got) != "a\xe2" {
		t.Errorf("the end of a file: %q", got)
	}
}
