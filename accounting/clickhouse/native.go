package clickhouse

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Rows go to a ClickHouse HTTP interface as one block in the Native format:
// column after column, straight from the rows. The driver builds every column
// in memory first, and then the block; with batches of hundreds of thousands of
// rows that was most of what the writer spent.

// stream writes a block. What it holds is small, however large the block is.
type stream struct {
	w   io.Writer
	buf []byte
	err error
}

// streamRoom is how much a stream gathers.
const streamRoom = 128 << 10

func (s *stream) flushBlock() {
	if s.err == nil {
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
}

// makeRoom makes room; every value begins with it.
func (s *stream) makeRoom() {
	if len(s.buf) >= streamRoom {
		s.flushBlock()
	}
}

func (s *stream) text(t string) {
	s.makeRoom()
	s.buf = append(binary.AppendUvarint(s.buf, uint64(len(t))), t...)
}

func (s *stream) putUint64(n uint64) {
	s.makeRoom()
	s.buf = binary.LittleEndian.AppendUint64(s.buf, n)
}

func (s *stream) putInt64(n int64) { s.putUint64(uint64(n)) }

func (s *stream) putInt32(n int32) { s.putUint32(uint32(n)) }

func (s *stream) putUint32(n uint32) {
	s.makeRoom()
	s.buf = binary.LittleEndian.AppendUint32(s.buf, n)
}

func (s *stream) putBit(on bool) {
	s.makeRoom()
	b := byte(0)
	if on {
		b = 1
	}
	s.buf = append(s.buf, b)
}

// putUUID writes a UUID: two numbers, the high half first.
func (s *stream) putUUID(u uuid.UUID) {
	s.putUint64(binary.BigEndian.Uint64(u[:8]))
	s.putUint64(binary.BigEndian.Uint64(u[8:]))
}

// The types that are written straight.
const (
	wireTime     = "DateTime64(6, 'UTC')"
	wireNullTime = "Nullable(" + wireTime + ")"
	wireNullInt  = "Nullable(Int64)"
)

// encoder writes a column as one type of the store.
type encoder[R any] struct {
	wire string
	put  func(s *stream, rows []R)
}

// encoderOf gives the way in which a column is written; empty for one that
// only the driver writes.
//
//muster:table one case for each type of a column
func encoderOf[R, V any](get func(*R) V) encoder[R] {
	switch get := any(get).(type) {
	case func(*R) string:
		return encoder[R]{"String", putEach(get, (*stream).text)}
	case func(*R) uint64:
		return encoder[R]{"UInt64", putEach(get, (*stream).putUint64)}
	case func(*R) int64:
		return encoder[R]{"Int64", putEach(get, (*stream).putInt64)}
	case func(*R) uint32:
		return encoder[R]{"UInt32", putEach(get, (*stream).putUint32)}
	case func(*R) int32:
		return encoder[R]{"Int32", putEach(get, (*stream).putInt32)}
	case func(*R) bool:
		return encoder[R]{"Bool", putEach(get, (*stream).putBit)}
	case func(*R) uuid.UUID:
		return encoder[R]{"UUID", putEach(get, (*stream).putUUID)}
	case func(*R) *int64:
		return encoder[R]{wireNullInt, writeNullable(get, (*stream).putInt64)}
	case func(*R) *uint32:
		return encoder[R]{"Nullable(UInt32)", writeNullable(get, (*stream).putUint32)}
	case func(*R) []string:
		return encoder[R]{"Array(String)", writeLists(get, (*stream).text)}
	case func(*R) []int64:
		return encoder[R]{"Array(Int64)", writeLists(get, (*stream).putInt64)}
	case func(*R) []int32:
		return encoder[R]{"Array(Int32)", writeLists(get, (*stream).putInt32)}
	case func(*R) []uint32:
		return encoder[R]{"Array(UInt32)", writeLists(get, (*stream).putUint32)}
	case func(*R) []time.Time:
		return encoder[R]{
			"Array(" + wireTime + ")",
			writeLists(get, func(s *stream, t time.Time) { s.putInt64(t.UnixMicro()) }),
		}
	case func(*R) map[string]int64:
		return encoder[R]{"Map(String, Int64)", maps64(get)}
	}
	return encoder[R]{}
}

func putEach[R, V any](get func(*R) V, put func(*stream, V)) func(*stream, []R) {
	return func(s *stream, rows []R) {
		for i := range rows {
			put(s, get(&rows[i]))
		}
	}
}

// writeNullable writes which values are NULL and then all of them.
func writeNullable[R, V any](get func(*R) *V, put func(*stream, V)) func(*stream, []R) {
	return func(s *stream, rows []R) {
		for i := range rows {
			s.putBit(get(&rows[i]) == nil)
		}
		var none V
		for i := range rows {
			if p := get(&rows[i]); p != nil {
				put(s, *p)
			} else {
				put(s, none)
			}
		}
	}
}

// writeLists writes where each list ends and then all elements.
func writeLists[R, V any](get func(*R) []V, put func(*stream, V)) func(*stream, []R) {
	return func(s *stream, rows []R) {
		var end uint64
		for i := range rows {
			end += uint64(len(get(&rows[i])))
			s.putUint64(end)
		}
		for i := range rows {
			for _, v := range get(&rows[i]) {
				put(s, v)
			}
		}
	}
}

// maps64 writes a map as lists of its keys and its values.
func maps64[R any](get func(*R) map[string]int64) func(*stream, []R) {
	return func(s *stream, rows []R) {
		var end uint64
		var keys []string
		var values []int64
		for i := range rows {
			m := get(&rows[i])
			end += uint64(len(m))
			s.putUint64(end)
			at := len(keys)
			for k := range m {
				keys = append(keys, k)
			}
			slices.Sort(keys[at:])
			for _, k := range keys[at:] {
				values = append(values, m[k])
			}
		}
		for _, k := range keys {
			s.text(k)
		}
		for _, v := range values {
			s.putUint64(uint64(v))
		}
	}
}

// isDefaultOf makes the test for columns that hold the default of their type in every row. Such a
// column is not sent. Many columns are in use on few sites only.
func isDefaultOf[R, V any](get func(*R) V) func([]R) bool {
	switch get := any(get).(type) {
	case func(*R) string:
		return never(get, func(v string) bool { return v != "" })
	case func(*R) uint64:
		return never(get, func(v uint64) bool { return v != 0 })
	case func(*R) int64:
		return never(get, func(v int64) bool { return v != 0 })
	case func(*R) uint32:
		return never(get, func(v uint32) bool { return v != 0 })
	case func(*R) int32:
		return never(get, func(v int32) bool { return v != 0 })
	case func(*R) bool:
		return never(get, func(v bool) bool { return v })
	case func(*R) *int64:
		return never(get, func(v *int64) bool { return v != nil })
	case func(*R) *uint32:
		return never(get, func(v *uint32) bool { return v != nil })
	case func(*R) []string:
		return never(get, func(v []string) bool { return len(v) > 0 })
	case func(*R) []int64:
		return never(get, func(v []int64) bool { return len(v) > 0 })
	case func(*R) []int32:
		return never(get, func(v []int32) bool { return len(v) > 0 })
	case func(*R) []uint32:
		return never(get, func(v []uint32) bool { return len(v) > 0 })
	case func(*R) []time.Time:
		return never(get, func(v []time.Time) bool { return len(v) > 0 })
	case func(*R) map[string]int64:
		return never(get, func(v map[string]int64) bool { return len(v) > 0 })
	}
	return nil
}

// never tells that no row says something.
func never[R, V any](get func(*R) V, says func(V) bool) func([]R) bool {
	return func(rows []R) bool {
		for i := range rows {
			if says(get(&rows[i])) {
				return false
			}
		}
		return true
	}
}

// canEncode tells that every column is written as the table has it.
func canEncode[R any](ins insert, cols []column[R]) bool {
	return !slices.ContainsFunc(
		cols,
		func(c column[R]) bool { return c.encode.put == nil || c.encode.wire != ins.types[c.name] },
	)
}

// writeBlock writes rows as one block.
func writeBlock[R any](to io.Writer, ins insert, cols []column[R], rows []R) error {
	s := &stream{w: to, buf: make([]byte, 0, streamRoom+4096)}
	s.buf = binary.AppendUvarint(binary.AppendUvarint(s.buf, uint64(len(cols))), uint64(len(rows)))
	for i := range cols {
		if s.err != nil {
			break
		}
		s.text(cols[i].name)
		s.text(ins.types[cols[i].name])
		cols[i].encode.put(s, rows)
	}
	s.flushBlock()
	return s.err
}

// postBlock sends rows as one block over HTTP.
func postBlock[R any](
	ctx context.Context,
	ins insert,
	settings map[string]any,
	sql string,
	cols []column[R],
	rows []R,
) error {
	client, base, err := ins.s.rawClient()
	if err != nil {
		return err
	}
	values := url.Values{"query": {sql + " FORMAT Native"}}
	for name, value := range settings {
		values.Set(name, fmt.Sprint(value))
	}
	body := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(writeBlock(w, ins, cols, rows)) }()
		return r, nil
	}
	first, _ := body()
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, base+"/?"+values.Encode(), first,
	)
	if err != nil {
		_ = first.Close()
		return err
	}
	request.GetBody = body
	request.Header.Set("Content-Type", "application/octet-stream")
	if ins.s.auth.Username != "" {
		request.Header.Set("X-ClickHouse-User", ins.s.auth.Username)
		request.Header.Set("X-ClickHouse-Key", ins.s.auth.Password)
	}
	resp, err := client.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	// Also with a good status: what an insert answers is nothing, but for an
	// exception after the headers had left.
	if said := strings.TrimSpace(string(text)); said != "" {
		return &EngineError{Text: said}
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the store answers with %s", resp.Status)
	}
	return nil
}
