package render

import (
	"testing"

	"github.com/musterhpc/muster/cli/tool"
)

// TestLevels: letters for every terminal, blocks where the locale says UTF-8.
func TestLevels(t *testing.T) {
	c := &tool.Call{Env: &tool.Env{Environ: []string{"LANG=de_DE.UTF-8"}}}
	if steps, empty := BarLevels(c); string(steps) != "▁▂▃▄▅▆▇█" || empty != '·' {
		t.Errorf("%q %q", string(steps), empty)
	}
	c.Environ = []string{"LC_ALL=C", "LANG=de_DE.UTF-8"}
	if steps, _ := BarLevels(c); steps[0] != '_' {
		t.Errorf("%q", string(steps))
	}
}
