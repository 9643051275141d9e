package conffile

import (
	"log/slog"
	"strings"
	"testing"
)

// TestLogger: the form and the level are those of muster.yaml, and the level follows its variable.
func TestLogger(t *testing.T) {
	var out strings.Builder
	level := new(slog.LevelVar)
	logger := Log{Level: "warn", Format: "json"}.NewLogger(&out, level)
	logger.Info("hidden")
	logger.Warn("shown")
	level.Set(slog.LevelDebug)
	logger.Debug("now")
	if got := out.String(); strings.Contains(got, "hidden") ||
		!strings.Contains(got, `"msg":"shown"`) || !strings.Contains(got, `"msg":"now"`) {
		t.Errorf("written:\n%s", got)
	}
	out.Reset()
	Log{Level: "info", Format: "text"}.NewLogger(&out, level).Info("as text", "n", 1)
	if got := out.String(); !strings.Contains(got, `msg="as text" n=1`) {
		t.Errorf("written: %s", got)
	}
}
