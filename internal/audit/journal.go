package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"
)

// JournalSocket is where systemd-journald takes entries of its native protocol.
const JournalSocket = "/run/systemd/journal/socket"

// Journal hands entries to systemd-journald: MESSAGE is the text for people,
// MUSTER_AUDIT the whole record.
type Journal struct {
	path string
	conn net.Conn
}

// NewJournal makes a target on a journald's socket.
func NewJournal(path string) *Journal { return &Journal{path: path} }

// Settles implements Target.
func (*Journal) Settles() time.Duration { return 0 }

// Write implements Target.
func (t *Journal) Write(ctx context.Context, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if t.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", t.path)
		if err != nil {
			return fmt.Errorf("audit.journald: %w", err)
		}
		t.conn = conn
	}
	for _, line := range lines {
		err := t.conn.SetWriteDeadline(time.Now().Add(sendPatience))
		if err == nil {
			_, err = t.conn.Write([]byte(journalEntry(line)))
		}
		if err != nil {
			_ = t.Close() // the next call begins anew
			return fmt.Errorf("audit.journald: %w", err)
		}
	}
	return ctx.Err()
}

// journalEntry is a record as fields, one a line. JSON has no line breaks in it.
func journalEntry(line string) string {
	var r struct {
		Message string
		Event   struct{ Action, Outcome, ID string }
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		r.Message = line
	}
	priority := "5"
	if r.Event.Outcome == "failure" {
		priority = "4"
	}
	one := strings.NewReplacer("\n", " ", "\r", " ")
	var text strings.Builder
	for _, f := range [...][2]string{{"MESSAGE", r.Message}, {"PRIORITY", priority}, {"SYSLOG_IDENTIFIER", "muster"}, {"SYSLOG_FACILITY", "10"},
		{"MUSTER_ACTION", r.Event.Action}, {"MUSTER_OUTCOME", r.Event.Outcome}, {"MUSTER_EVENT_ID", r.Event.ID}, {"MUSTER_AUDIT", line}} {
		text.WriteString(f[0] + "=" + one.Replace(f[1]) + "\n")
	}
	return text.String()
}

// Close implements Target.
func (t *Journal) Close() error {
	if t.conn == nil {
		return nil
	}
	err := t.conn.Close()
	t.conn = nil
	return err
}
