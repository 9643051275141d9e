package query

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/agent-metrics.txt
var agentText string

func TestGPURows(t *testing.T) {
	list := gpusOf("n1", agentText)
	const top = "" +
		"NODE  GPU       LOAD      UTIL   SM  TENSOR    MEMORY  POWER  TEMP  JOBID  USER    ACCOUNT\n" +
		"n1    0         lost        0%    -       -  1.0/2.0G      -     -  -      -       -\n" +
		"n1    1         ####....   50%  50%       -         -   300W     -  7      al\\ice  ml\n" +
		"n1    0         -            -    -       -         -      -     -  8      bob     ml\n" +
		"n1    0/shared  -            -    -       -         -      -     -  9      eve     ml\n"
	if got := gpuTable("top", list, true); got != top {
		t.Errorf("got\n%s\nwant\n%s", got, top)
	}
	if got, want := gpuTable("job", list[1:2], false), "n1  1  ####....  50%  50%  -  -  300W  -  2 h 1 min  2 h  0 s  60 s  2.0Wh  GPU-b\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if list[1].model != `H "x" 80` || list[1].heldSeconds() != 7260 {
		t.Errorf("%+v", list[1])
	}
}

// TestFetchMetrics: what does not answer, or answers something else, is told
// in time.
func TestFetchMetrics(t *testing.T) {
	for name, tc := range map[string]struct{ answer, want string }{
		"fine":     {"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + agentText, ""},
		"a token":  {"HTTP/1.0 401 Unauthorized\r\n\r\nno", "name its file in MUSTER_METRICS_TOKEN_FILE"},
		"TLS":      {"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", "it speaks TLS"},
		"an error": {"HTTP/1.0 500 Oops\r\n\r\n", "HTTP/1.0 500 Oops"},
		"ssh":      {"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"},
		"silence":  {"-", "i/o timeout"},
	} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				done <- err.Error()
				return
			}
			defer conn.Close()
			r, asked := bufio.NewReader(conn), ""
			for {
				line, err := r.ReadString('\n')
				if err != nil || line == "\r\n" {
					break
				}
				asked += line
			}
			if tc.answer == "-" {
				_, _ = r.ReadString('\n') // until the client gives up
			}
			fmt.Fprint(conn, tc.answer)
			done <- asked
		}()
		text, err := fetchMetrics(context.Background(), l.Addr().String(), "t0ken", 300*time.Millisecond)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if tc.want == "" && text != agentText {
			t.Errorf("%s: %q", name, text)
		}
		if asked := <-done; !strings.HasPrefix(asked, "GET /metrics HTTP/1.0\r\n") || !strings.Contains(asked, "Authorization: Bearer t0ken\r\n") {
			t.Errorf("%s: asked %q", name, asked)
		}
		l.Close()
	}
	if _, err := fetchMetrics(context.Background(), "127.0.0.1:1", "", time.Second); err == nil {
		t.Error("nobody is there, and it answers")
	}
}
