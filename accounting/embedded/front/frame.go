package front

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/go-faster/city"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxFrame bounds the plain bytes of one frame that the front writes.
const maxFrame = 1 << 20

// framing is how a request wants its answer compressed: ClickHouse's own blocks (checksum, method, sizes, data), not an
// HTTP content encoding.
type framing struct {
	method compress.Method
	level  compress.Level
}

// parseFraming reads network_compression_method and its level; "" means LZ4.
func parseFraming(method, level string) (framing, error) {
	f := framing{method: compress.LZ4}
	switch strings.ToUpper(method) {
	case "", "LZ4":
	case "LZ4HC":
		f.method = compress.LZ4HC
	case "ZSTD":
		f.method = compress.ZSTD
	case "NONE":
		f.method = compress.None
	default:
		return f, fmt.Errorf(
			"network_compression_method %q is not one of LZ4, LZ4HC, ZSTD, NONE",
			method,
		)
	}
	if level != "" {
		var n uint8
		if _, err := fmt.Sscanf(level, "%d", &n); err != nil || n > 22 {
			return f, fmt.Errorf("compression level %q is not a number from 0 to 22", level)
		}
		f.level = compress.Level(n)
	}
	return f, nil
}

// frameWriter cuts what is written into frames.
type frameWriter struct {
	to  io.Writer
	enc *compress.Writer
}

func newFrameWriter(to io.Writer, f framing) *frameWriter {
	return &frameWriter{to: to, enc: compress.NewWriter(f.level, f.method)}
}

func (w *frameWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), maxFrame)
		if err := w.enc.Compress(p[:n]); err != nil {
			return written, fmt.Errorf("compress an answer: %w", err)
		}
		if _, err := w.to.Write(w.enc.Data); err != nil {
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

// Sizes of a frame's parts: a 16-byte checksum, then a 9-byte header that the checksum covers with the data behind it:
// method, size of header and data, size of the plain data.
const (
	checksumSize = 16
	frameHeader  = 9
	maxPlain     = 1 << 30 // of one incoming frame, as ClickHouse's own servers accept
)

// frameReader unpacks frames. It returns io.EOF only when the input ended cleanly between two frames; an end within a
// frame is io.ErrUnexpectedEOF, and so is a body that HTTP itself found cut short.
type frameReader struct {
	from  io.Reader
	raw   bytes.Buffer
	plain []byte // of the current frame
	read  int    // how much of plain has been handed out
	zstd  *zstd.Decoder
}

func newFrameReader(from io.Reader) *frameReader { return &frameReader{from: from} }

func (r *frameReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.read == len(r.plain) {
		if err := r.unpack(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.plain[r.read:])
	r.read += n
	return n, nil
}

// unpack reads the next frame into plain.
func (r *frameReader) unpack() error {
	r.plain, r.read = r.plain[:0], 0
	var head [checksumSize + frameHeader]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return err // io.EOF only if there was no byte at all
	}
	size := binary.LittleEndian.Uint32(head[checksumSize+1:])
	plain := binary.LittleEndian.Uint32(head[checksumSize+5:])
	if size < frameHeader || size > maxPlain || plain > maxPlain {
		return fmt.Errorf(
			"compressed body: a block of %d bytes that unpack to %d is out of bounds",
			size,
			plain,
		)
	}
	// Grows with what arrives, not with what the header promises.
	r.raw.Reset()
	r.raw.Write(head[checksumSize:])
	if _, err := io.CopyN(&r.raw, r.from, int64(size-frameHeader)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	sum := city.CH128(r.raw.Bytes())
	if sum.Low != binary.LittleEndian.Uint64(head[0:]) ||
		sum.High != binary.LittleEndian.Uint64(head[8:]) {
		return errors.New("compressed body: a block's checksum does not match its data")
	}
	return r.decode(head[checksumSize], r.raw.Bytes()[frameHeader:], int(plain))
}

// Method bytes of the frame header.
const (
	methodNone = 0x02
	methodLZ4  = 0x82
	methodZSTD = 0x90
)

// maxRatio is the most that one byte of LZ4 can unpack to; a header that promises more is a lie.
const maxRatio = 255

func (r *frameReader) decode(method byte, data []byte, size int) error {
	switch method {
	case methodNone:
		if len(data) != size {
			return fmt.Errorf(
				"compressed body: a stored block holds %d bytes and claims %d",
				len(data),
				size,
			)
		}
		r.plain = append(r.plain, data...)
		return nil
	case methodLZ4:
		if size > (len(data)+1)*maxRatio {
			return fmt.Errorf(
				"compressed body: %d bytes of LZ4 cannot unpack to %d",
				len(data),
				size,
			)
		}
		r.plain = slices.Grow(r.plain, size)[:size]
		n, err := lz4.UncompressBlock(data, r.plain)
		if err == nil && n != size {
			err = fmt.Errorf("it unpacks to %d bytes and claims %d", n, size)
		}
		if err != nil {
			r.plain = r.plain[:0]
			return fmt.Errorf("compressed body: LZ4 block: %w", err)
		}
		return nil
	case methodZSTD:
		return r.decodeZSTD(data, size)
	}
	return fmt.Errorf(
		"compressed body: method 0x%02x is not known (LZ4, ZSTD and none are)",
		method,
	)
}

func (r *frameReader) decodeZSTD(data []byte, size int) error {
	if r.zstd == nil {
		decoder, err := zstd.NewReader(
			nil,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxPlain),
		)
		if err != nil {
			return fmt.Errorf("compressed body: %w", err)
		}
		r.zstd = decoder
	}
	plain, err := r.zstd.DecodeAll(data, r.plain[:0])
	if err == nil && len(plain) != size {
		err = fmt.Errorf("it unpacks to %d bytes and claims %d", len(plain), size)
	}
	if err != nil {
		r.plain = r.plain[:0]
		return fmt.Errorf("compressed body: ZSTD block: %w", err)
	}
	r.plain = plain
	return nil
}

// close frees the decoder.
func (r *frameReader) close() {
	if r.zstd != nil {
		r.zstd.Close()
	}
}
