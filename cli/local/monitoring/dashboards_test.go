package monitoring

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestPreviewOfNothing: what is asked wrongly is refused in one clear line, and
// a store that is away is told once, not once for each panel.
func TestPreviewOfNothing(t *testing.T) {
	prom := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/label/") {
			fmt.Fprint(w, `{"data":["lab","other"]}`)
			return
		}
		fmt.Fprint(w, `{"data":{"result":[]}}`)
	}))
	defer prom.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	page := filepath.Join(t.TempDir(), "page.html")
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"--since -1h", 1, "--since -1h0m0s: want a minute or more\n"},
		{"--board nope", 1, "no dashboard is called nope; there are muster-overview, muster-queue"},
		{"--board muster-queue --board nope", 1, "no dashboard is called nope;"},
		{"--var foo=1", 1, "--var foo=1: no dashboard has the variable foo; they have account, cluster, job, node, partition, slo, user\n"},
		{"--var account=", 1, "--var account=: has no value; leave it out for all\n"},
		{"--var account", 1, "--var account: want name=value\n"},
		{"--var cluster=nope", 1, "has no cluster nope; it has lab, other\n"},
		{"--prometheus " + gone.URL, 1, "prometheus at " + gone.URL + ": Get"},
		{"--board muster-queue", 1, "4 panels, muster-queue / Wait by partition and size the first: Post"},
		{"--board muster-queue --var partition=a\"b\n\U0001F600", 1, "queries failed for 4 panels"},
		{"--board muster-alerts", 0, "7 panels, 7 of them without data now, 0 failed\n"},
	} {
		args := append([]string{"preview", "--out", page, "--prometheus", prom.URL, "--clickhouse", gone.URL}, strings.Split(tc.args, " ")...)
		var out bytes.Buffer
		code := Dashboards(args, &out, &out)
		if text := out.String(); code != tc.code || !strings.Contains(text, tc.want) || strings.Contains(text, "SELECT") {
			t.Errorf("%s: %d, %s", tc.args, code, text)
		}
	}
}
