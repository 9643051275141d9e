package log

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// hcLog lets raft and raft-wal, which speak hclog, write to slog. Their informational messages are debug messages here: an
// election of one is no news.
type hcLog struct {
	l    *slog.Logger
	name string
	args []any
}

func newHCLog(logger *slog.Logger) hclog.Logger { return &hcLog{l: logger, name: "raft"} }

func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

func (h *hcLog) Log(level hclog.Level, message string, args ...any) {
	lv := slogLevel(level)
	if !h.l.Enabled(context.Background(), lv) {
		return
	}
	out := make([]any, 0, len(args)+2)
	out = append(out, "part", h.name)
	for _, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		out = append(out, a)
	}
	h.l.Log(context.Background(), lv, message, out...)
}

func (h *hcLog) Trace(message string, args ...any) { h.Log(hclog.Trace, message, args...) }
func (h *hcLog) Debug(message string, args ...any) { h.Log(hclog.Debug, message, args...) }
func (h *hcLog) Info(message string, args ...any)  { h.Log(hclog.Info, message, args...) }
func (h *hcLog) Warn(message string, args ...any)  { h.Log(hclog.Warn, message, args...) }
func (h *hcLog) Error(message string, args ...any) { h.Log(hclog.Error, message, args...) }

func (h *hcLog) is(level hclog.Level) bool {
	return h.l.Enabled(context.Background(), slogLevel(level))
}

func (h *hcLog) IsTrace() bool { return h.is(hclog.Trace) }
func (h *hcLog) IsDebug() bool { return h.is(hclog.Debug) }
func (h *hcLog) IsInfo() bool  { return h.is(hclog.Info) }
func (h *hcLog) IsWarn() bool  { return h.is(hclog.Warn) }
func (h *hcLog) IsError() bool { return h.is(hclog.Error) }

func (h *hcLog) ImpliedArgs() []any { return h.args }

func (h *hcLog) With(args ...any) hclog.Logger {
	return &hcLog{
		l:    h.l.With(args...),
		name: h.name,
		args: append(append([]any{}, h.args...), args...),
	}
}

func (h *hcLog) Name() string { return h.name }

func (h *hcLog) Named(name string) hclog.Logger {
	return &hcLog{l: h.l, name: h.name + "." + name, args: h.args}
}

func (h *hcLog) ResetNamed(name string) hclog.Logger {
	return &hcLog{l: h.l, name: name, args: h.args}
}

// SetLevel does nothing: the level is the slog handler's.
func (h *hcLog) SetLevel(hclog.Level) {}

func (h *hcLog) GetLevel() hclog.Level {
	for _, lv := range []hclog.Level{hclog.Debug, hclog.Warn} {
		if h.is(lv) {
			return lv
		}
	}
	return hclog.Error
}

func (h *hcLog) StandardLogger(*hclog.StandardLoggerOptions) *stdlog.Logger {
	return slog.NewLogLogger(h.l.Handler(), slog.LevelInfo)
}

func (h *hcLog) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return h.StandardLogger(o).Writer()
}
