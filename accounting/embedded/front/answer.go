package front

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
)

// answer is the body of a response on its way out. It holds back the first bytes, so that a
// statement that fails early still gets a status of its own; with spool it holds back
// everything, beyond memory in a file.
type answer struct {
	w       http.ResponseWriter
	packed  io.Writer // w's side of compression: frames, or itself
	hold    int
	held    bytes.Buffer
	spool   bool
	file    *os.File // what outgrew held
	sent    bool     // the status line is out
	tag     string   // announces exceptions in the middle of data
	started time.Time
}

// errGone is how a write to a client that left is told from an engine error.
var errGone = errors.New("the client has gone")

func newAnswer(writer http.ResponseWriter, req *request) *answer {
	a := &answer{
		w: writer, hold: req.hold, spool: req.wait, tag: randomName(8), started: time.Now(),
	}
	a.packed = writerFunc(a.put)
	if req.framed {
		a.packed = newFrameWriter(writerFunc(a.put), req.framing)
	}
	writer.Header().Set("X-ClickHouse-Exception-Tag", a.tag)
	return a
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Write takes a piece of the result.
func (a *answer) Write(p []byte) (int, error) { return a.packed.Write(p) }

// put takes bytes as they will be on the wire.
func (a *answer) put(p []byte) (int, error) {
	if !a.sent && a.held.Len()+len(p) <= a.hold {
		return a.held.Write(p)
	}
	if a.spool {
		return a.putFile(p)
	}
	if !a.sent {
		if err := a.send(); err != nil {
			return 0, err
		}
	}
	n, err := a.w.Write(p)
	if err == nil {
		err = http.NewResponseController(a.w).Flush()
	}
	if err != nil {
		return n, fmt.Errorf("%w: %w", errGone, err)
	}
	return n, nil
}

func (a *answer) putFile(p []byte) (int, error) {
	if a.file == nil {
		file, err := os.CreateTemp("", "muster-answer-*")
		if err != nil {
			return 0, fmt.Errorf("hold back an answer (wait_end_of_query): %w", err)
		}
		_ = os.Remove(file.Name()) // it lives on until closed
		a.file = file
		a.hold = 0 // from here on everything goes to the file
	}
	n, err := a.file.Write(p)
	if err != nil {
		return n, fmt.Errorf("hold back an answer (wait_end_of_query): %w", err)
	}
	return n, nil
}

// send writes the status line and what was held.
func (a *answer) send() error {
	a.sent = true
	a.w.WriteHeader(http.StatusOK)
	if _, err := a.w.Write(a.held.Bytes()); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	a.held = bytes.Buffer{}
	return nil
}

// finishAnswer ends a good answer. stats go into the header if it has not been sent.
func (a *answer) finishAnswer(stats chdb.Stats) error {
	if a.sent {
		return nil
	}
	header := a.w.Header()
	header.Set("X-ClickHouse-Summary", summary(stats, time.Since(a.started)))
	if a.file != nil {
		defer a.file.Close()
		if _, err := a.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read back an answer: %w", err)
		}
		if err := a.send(); err != nil {
			return err
		}
		if _, err := io.Copy(a.w, a.file); err != nil {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		return nil
	}
	header.Set("Content-Length", strconv.Itoa(a.held.Len()))
	return a.send()
}

// failAnswer ends an answer with an exception: with a status of its own while nothing has been
// sent, else as a marked block behind the data, after which the connection is broken off so
// that no client takes the part for the whole.
func (a *answer) failAnswer(err error) {
	if a.file != nil {
		_ = a.file.Close() // already removed
	}
	if errors.Is(err, errGone) {
		panic(http.ErrAbortHandler)
	}
	if !a.sent {
		writeException(a.w, err)
		return
	}
	_, _ = a.w.Write(exceptionBlock(err, a.tag)) // the client may be gone
	_ = http.NewResponseController(a.w).Flush()
	panic(http.ErrAbortHandler)
}

// summary is the X-ClickHouse-Summary header.
func summary(stats chdb.Stats, took time.Duration) string {
	return fmt.Sprintf(
		`{"read_rows":"%d","read_bytes":"%d","written_rows":"%d","written_bytes":"%d","total_rows_to_read":"0","result_rows":"%d","elapsed_ns":"%d"}`,
		stats.ReadRows,
		stats.ReadBytes,
		stats.WrittenRows,
		stats.WrittenBytes,
		stats.ResultRows,
		took.Nanoseconds(),
	)
}

// contentType is the media type of a format.
func contentType(format string) string {
	switch {
	case strings.HasPrefix(format, "JSON"):
		return "application/json; charset=UTF-8"
	case strings.HasPrefix(format, "CSV"):
		return "text/csv; charset=UTF-8; header=absent"
	case strings.HasPrefix(format, "TabSeparated"), strings.HasPrefix(format, "TSV"):
		return "text/tab-separated-values; charset=UTF-8"
	case strings.HasPrefix(format, "Pretty"),
		format == "Vertical",
		format == "Values",
		format == "Markdown":
		return "text/plain; charset=UTF-8"
	}
	return "application/octet-stream"
}
