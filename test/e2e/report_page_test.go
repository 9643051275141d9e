package e2e

import (
	"strings"
	"testing"
)

// TestReportPage: the page about a real job has its life and its events, is whole by itself, and
// shows what its user named as text.
func TestReportPage(t *testing.T) {
	c := start(t)
	const name = "<script>alert(1)</script>"
	id := c.must("sbatch", "--parsable", "-N1", "--gpus=1", "-J", name, "--comment", "</title><img src=x>", "--wrap", "sleep 3")
	c.until("COMPLETED", "sacct", "-nPX", "-o", "state", "-j", id)
	page := c.must("report", id, "--html")
	for _, want := range []string{
		"&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;/title&gt;&lt;img src=x&gt;", `<svg class="life"`, `class="ran"`, `class="mark"`,
		"<td>JobSubmitted</td>", "<td>JobStarted</td>", "<td>JobEnded</td>", "GPU 0",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<script", "<img", "http:", "https:", "cannot be read"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}
