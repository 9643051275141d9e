package push

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/otlp"
)

// The ways in which values are sent.
const (
	FormatRemoteWrite = "remote_write"
	FormatOTLP        = "otlp"
)

// Settings say where values go.
type Settings struct {
	Format  string // FormatRemoteWrite or FormatOTLP
	At      *url.URL
	CA      string   // file; empty = what the host trusts
	Headers []string // lines "Name: value"
	Target  Target
	Began   time.Time // since when the process counts
	Timeout time.Duration
}

// Open makes the receiver.
func Open(settings Settings) (Receiver, error) {
	if settings.Format == FormatOTLP {
		client, err := otlp.New(
			otlp.Config{
				At:      settings.At,
				CA:      settings.CA,
				Headers: settings.Headers,
				Timeout: settings.Timeout,
			},
		)
		if err != nil {
			return nil, err
		}
		return NewOTLP(client, settings.Target, settings.Began), nil
	}
	secure, err := otlp.TLS(settings.CA, "", "")
	if err != nil {
		return nil, err
	}
	return NewRemoteWrite(
		HTTP{URL: settings.At, TLS: secure, Headers: settings.Headers}, settings.Target,
	)
}

// errHeader is wrapped when a line of the headers' file is none.
var errHeader = errors.New("is not a header (Name: value)")

// ReadHeaders reads the headers of a push. The file may hold a secret, so it
// must not be readable by others.
func ReadHeaders(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := durable.ReadPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("telemetry.push_headers_file: %w", err)
	}
	var out []string
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("telemetry.push_headers_file: %s:%d: %w", path, n, errHeader)
		}
		out = append(out, name+": "+strings.TrimSpace(value))
	}
	return out, nil
}
