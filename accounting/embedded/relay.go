package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
)

// relay passes what a child writes, line by line, to the parent's log: the child's own JSON
// records as they were, and anything else, such as the last words of a crash, as a warning.
type relay struct {
	log *slog.Logger

	mu      sync.Mutex
	partial []byte
	final   string // the last line that was an error or no record
}

// maxLine bounds what is kept of a line that does not end.
const maxLine = 64 << 10

func (r *relay) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partial = append(r.partial, p...)
	for {
		line, rest, ok := bytes.Cut(r.partial, []byte("\n"))
		if !ok {
			break
		}
		r.line(string(line))
		r.partial = append([]byte(nil), rest...)
	}
	if len(r.partial) > maxLine {
		r.line(string(r.partial))
		r.partial = nil
	}
	return len(p), nil
}

// flushLine passes on a last line without its end.
func (r *relay) flushLine() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.partial) > 0 {
		r.line(string(r.partial))
		r.partial = nil
	}
}

// lastError is the child's last error, "" when it had none.
func (r *relay) lastError() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.final
}

func (r *relay) line(line string) {
	line = strings.TrimSpace(line)
	if line == "" {
		return
	}
	record := map[string]any{}
	level := slog.LevelWarn
	if json.Unmarshal([]byte(line), &record) != nil || record[slog.MessageKey] == nil {
		r.final = line
		r.log.Log(context.Background(), level, "from the ClickHouse engine", "line", line)
		return
	}
	if text, ok := record[slog.LevelKey].(string); ok && level.UnmarshalText([]byte(text)) != nil {
		level = slog.LevelWarn
	}
	message, _ := record[slog.MessageKey].(string)
	if level >= slog.LevelError {
		r.final = message
	}
	attrs := []any{"process", "engine"}
	for _, key := range slices.Sorted(maps.Keys(record)) {
		if key != slog.MessageKey && key != slog.LevelKey && key != slog.TimeKey {
			attrs = append(attrs, key, record[key])
		}
	}
	r.log.Log(context.Background(), level, message, attrs...)
}
