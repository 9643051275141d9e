package embedded

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestPieces: a long answer is one file of its format, with one head and one
// foot, however many pieces the engine makes of it.
func TestPieces(t *testing.T) {
	engine := startEngine(t, Options{})
	ask := func(format string) []byte {
		resp, err := socketClient(engine.Socket()).Get("http://localhost/?" + url.Values{"query": {"SELECT number AS n FROM numbers(300000)"}, "default_format": {format}}.Encode())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", format, resp.Status, err)
		}
		return b
	}
	for _, format := range []string{"CSVWithNames", "TabSeparatedWithNames"} {
		if n := strings.Count(string(ask(format)), "n\""+"\n") + strings.Count("\n"+string(ask(format)), "\nn\n"); n != 1 {
			t.Errorf("%s has %d heads", format, n)
		}
	}
	b := ask("Parquet")
	if n := bytes.Count(b, []byte("PAR1")); n != 2 {
		t.Errorf("a Parquet file with %d marks, not one at each end", n)
	}
	if n := strings.Count(string(ask("JSONEachRow")), "\n"); n != 300000 {
		t.Errorf("%d lines of JSON", n)
	}
}
