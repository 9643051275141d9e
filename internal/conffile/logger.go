package conffile

import (
	"io"
	"log/slog"
	"strings"
)

// NewLogger writes lines in the configured form to a writer. The logger obeys level, which is set
// to what is configured, so that its holder can change it while the program runs.
func (c Log) NewLogger(to io.Writer, level *slog.LevelVar) *slog.Logger {
	var configured slog.Level
	if err := configured.UnmarshalText([]byte(strings.ToUpper(c.Level))); err != nil {
		// Only a Config that was not read from a file has a level that is none.
		configured = slog.LevelInfo
	}
	level.Set(configured)
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
