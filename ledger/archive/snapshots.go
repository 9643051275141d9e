package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/musterhpc/muster/internal/durable"
)

// A snapshot file is "MUSTARSN", version u32, position, sequence and time u64, CRC32C of these
// u32; then chunks of a zstd stream: length u32, CRC32C of chunk number and bytes u32, bytes; a
// chunk of length 0 ends it.
const (
	snapMagic  = "MUSTARSN"
	snapHeader = 40
	snapChunk  = 256 << 10
)

// SnapshotInfo describes a snapshot of the state in the archive.
type SnapshotInfo struct {
	Pos  uint64 // the state after this batch
	Seq  uint64 // and this event
	At   time.Time
	Size int64 // bytes on disk
	path string
}

func (a *Archive) snapPath(position, seq uint64) string {
	return filepath.Join(a.snapDir(), fmt.Sprintf("%020d-%020d.snap", position, seq))
}

// PutSnapshot stores the state after the batch at position, whose last event is seq, as r encodes
// it. It is durable on return.
func (a *Archive) PutSnapshot(position, seq uint64, r io.Reader) error {
	path := a.snapPath(position, seq)
	err := durable.Replace(path, 0o600, func(w io.Writer) error {
		return writeSnapshot(w, position, seq, a.opts.Now(), r)
	})
	if err != nil {
		return fmt.Errorf("write the snapshot of batch %d: %w", position, err)
	}
	return a.linkSnapshot(position, seq, path)
}

func writeSnapshot(w io.Writer, position, seq uint64, at time.Time, r io.Reader) error {
	le := binary.LittleEndian
	head := le.AppendUint32([]byte(snapMagic), formatVersion)
	head = le.AppendUint64(le.AppendUint64(head, position), seq)
	head = le.AppendUint64(head, uint64(at.UnixNano()))
	head = le.AppendUint32(head, durable.Checksum(head))
	if _, err := w.Write(head); err != nil {
		return err
	}
	writer := &chunkWriter{w: w}
	encoder, err := zstd.NewWriter(
		writer,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
	)
	if err != nil {
		return err
	}
	if _, err := io.Copy(encoder, r); err != nil {
		return errors.Join(err, encoder.Close())
	}
	if err := encoder.Close(); err != nil {
		return err
	}
	return writer.endChunk()
}

type chunkWriter struct {
	w   io.Writer
	n   uint32
	buf []byte
}

func (c *chunkWriter) Write(p []byte) (int, error) {
	c.buf = append(c.buf, p...)
	for len(c.buf) >= snapChunk {
		if err := c.putRecord(c.buf[:snapChunk]); err != nil {
			return 0, err
		}
		c.buf = append(c.buf[:0], c.buf[snapChunk:]...)
	}
	return len(p), nil
}

func (c *chunkWriter) putRecord(data []byte) error {
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
	head = binary.LittleEndian.AppendUint32(head, chunkSum(c.n, data))
	c.n++
	_, err := c.w.Write(append(head, data...))
	return err
}

func (c *chunkWriter) endChunk() error {
	if len(c.buf) > 0 {
		if err := c.putRecord(c.buf); err != nil {
			return err
		}
	}
	return c.putRecord(nil)
}

func chunkSum(n uint32, data []byte) uint32 {
	return durable.ExtendChecksum(durable.Checksum(binary.LittleEndian.AppendUint32(nil, n)), data)
}

// Snapshots lists the snapshots, oldest first.
func (a *Archive) Snapshots() ([]SnapshotInfo, error) {
	entries, err := os.ReadDir(a.snapDir())
	if err != nil {
		return nil, err
	}
	var snapshots []SnapshotInfo
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".snap") {
			continue
		}
		file, info, err := openSnapshot(filepath.Join(a.snapDir(), entry.Name()))
		if err != nil {
			return nil, err
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
		snapshots = append(snapshots, info)
	}
	return snapshots, nil // names sort by position
}

func openSnapshot(path string) (*os.File, SnapshotInfo, error) {
	fail := func(f *os.File, err error) (*os.File, SnapshotInfo, error) {
		return nil, SnapshotInfo{}, errors.Join(err, f.Close())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, SnapshotInfo{}, err
	}
	var b [snapHeader]byte
	if _, err := io.ReadFull(file, b[:]); err != nil || string(b[:8]) != snapMagic {
		return fail(file, corruptError(path, 0, cureSnapshot, "not a snapshot"))
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v > formatVersion {
		return fail(file, newerError(path, v))
	}
	if durable.Checksum(b[:36]) != le.Uint32(b[36:]) {
		return fail(
			file,
			corruptError(path, 36, cureSnapshot, "checksum of the header does not match"),
		)
	}
	st, err := file.Stat()
	if err != nil {
		return fail(file, err)
	}
	return file, SnapshotInfo{
		Pos:  le.Uint64(b[12:]),
		Seq:  le.Uint64(b[20:]),
		At:   time.Unix(0, int64(le.Uint64(b[28:]))).UTC(),
		Size: st.Size(),
		path: path,
	}, nil
}

// OpenSnapshot returns the state of a snapshot that Snapshots listed. Its content is checked as
// it is read: io.EOF comes only after everything matched.
func (a *Archive) OpenSnapshot(snapshot SnapshotInfo) (io.ReadCloser, error) {
	file, _, err := openSnapshot(a.snapPath(snapshot.Pos, snapshot.Seq))
	if err != nil {
		return nil, err
	}
	reader := &chunkReader{f: file, path: file.Name(), at: snapHeader}
	decoder, err := zstd.NewReader(reader, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &snapReader{cr: reader, dec: decoder}, nil
}

// SnapshotBefore returns the newest snapshot at or before position; ok is false when there is none.
func (a *Archive) SnapshotBefore(position uint64) (snapshot SnapshotInfo, ok bool, err error) {
	all, err := a.Snapshots()
	for _, have := range all {
		if have.Pos <= position {
			snapshot, ok = have, true
		}
	}
	return snapshot, ok, err
}

type snapReader struct {
	cr  *chunkReader
	dec *zstd.Decoder
}

func (r *snapReader) Read(p []byte) (int, error) {
	n, err := r.dec.Read(p)
	if r.cr.err != nil {
		return n, r.cr.err // says more than the decoder
	}
	if errors.Is(err, io.EOF) && !r.cr.done {
		// The zstd stream may end before the end mark has been seen.
		if _, more := r.cr.Read(make([]byte, 1)); !errors.Is(more, io.EOF) || r.cr.err != nil {
			return n, corruptError(r.cr.path, r.cr.at, cureSnapshot, "the end mark is missing")
		}
	}
	return n, err
}

func (r *snapReader) Close() error {
	r.dec.Close()
	return r.cr.f.Close()
}

type chunkReader struct {
	f    *os.File
	path string
	at   int64
	n    uint32
	buf  []byte
	done bool
	err  error
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if len(c.buf) == 0 && !c.done && c.err == nil {
		c.err = c.loadChunk()
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.done {
		return 0, io.EOF
	}
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}

func (c *chunkReader) loadChunk() error {
	var head [8]byte
	if _, err := io.ReadFull(c.f, head[:]); err != nil {
		return corruptError(c.path, c.at, cureSnapshot, "the file ends too early")
	}
	n, sum := le32(head[:]), le32(head[4:])
	if n > snapChunk {
		return corruptError(c.path, c.at, cureSnapshot, "a chunk has an impossible length")
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(c.f, buf); err != nil || chunkSum(c.n, buf) != sum {
		return corruptError(c.path, c.at, cureSnapshot, "checksum of a chunk does not match")
	}
	c.at += int64(n) + 8
	c.n++
	c.buf, c.done = buf, n == 0
	return nil
}
