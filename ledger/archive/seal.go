package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/musterhpc/muster/internal/durable"
)

func (a *Archive) sealSoon() {
	select {
	case a.seal <- struct{}{}:
	default:
	}
}

// runSealer compresses full segments in the background. A failure is retried when the next segment
// is full, or at the next Open; until then the segment stays readable as it is.
func (a *Archive) runSealer() {
	defer a.wg.Done()
	for {
		select {
		case <-a.seal:
		case <-a.quit:
			return
		}
		for {
			more, err := a.sealOne()
			if err != nil && !errors.Is(err, ErrClosed) {
				a.opts.Logger.Warn(
					"a segment of the archive could not be compressed; it stays as it is",
					"error",
					err,
				)
			}
			if err != nil || !more {
				break
			}
		}
	}
}

// sealOne seals the oldest full live segment and reports whether there was one.
func (a *Archive) sealOne() (bool, error) {
	a.mu.RLock()
	var s *segment
	for i, g := range a.segs {
		if !g.sealed && i+1 < len(a.segs) {
			s = g
			break
		}
	}
	a.mu.RUnlock()
	if s == nil {
		return false, nil
	}
	out, err := a.writeSealed(s)
	if err != nil {
		return false, fmt.Errorf("compress %s: %w", s.path, err)
	}
	a.mu.Lock()
	// Only sealed segments are ever dropped, so s is still there, though perhaps at another place.
	a.segs[slices.Index(a.segs, s)] = out
	a.mu.Unlock()
	return true, os.Remove(s.path)
}

// writeSealed writes the sealed form of s and makes it durable. The segment no longer changes.
func (a *Archive) writeSealed(s *segment) (*segment, error) {
	in, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out := &segment{
		path:     sealedPath(a.segDir(), s.first),
		sealed:   true,
		salt:     s.salt,
		first:    s.first,
		last:     s.last,
		firstSeq: s.firstSeq,
		lastSeq:  s.lastSeq,
		at:       s.at,
	}
	err = durable.Replace(out.path, 0o600, func(w io.Writer) error {
		return a.packBlocks(s, in, out, w)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (a *Archive) packBlocks(s *segment, in *os.File, out *segment, w io.Writer) error {
	encoder, err := zstd.NewWriter(
		nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
	)
	if err != nil {
		return err
	}
	defer encoder.Close()
	if _, err := w.Write(putFileHeader(magicSealed, s.salt, s.first)); err != nil {
		return err
	}
	off := int64(fileHeader)
	for position := s.first; position <= s.last; {
		select {
		case <-a.quit:
			return ErrClosed
		default:
		}
		from, to := s.byteSpan(position)
		body := make([]byte, to-from)
		if _, err := in.ReadAt(body, from); err != nil {
			return err
		}
		k := block{off: off, size: uint32(len(body)), firstPos: position}
		position, err = k.describeBlock(body, s, position)
		if err != nil {
			return err
		}
		packed := encoder.EncodeAll(body, nil)
		k.packed, k.sum = uint32(len(packed)), durable.Checksum(packed)
		if _, err := w.Write(packed); err != nil {
			return err
		}
		off += int64(len(packed))
		out.blocks = append(out.blocks, k)
	}
	var index []byte
	for _, k := range out.blocks {
		index = appendBlock(index, k)
	}
	foot := appendFooter(nil, off, index, out)
	if _, err := w.Write(append(index, foot...)); err != nil {
		return err
	}
	out.size = off + int64(len(index)+len(foot))
	return nil
}

// describeBlock fills in what the index says about a block, checking its records once more before
// the only other copy goes.
func (k *block) describeBlock(body []byte, s *segment, position uint64) (uint64, error) {
	for len(body) > 0 {
		record, n, err := readRecord(body, s.salt)
		if err != nil || record.Pos != position {
			return position, corruptError(
				s.path, 0, cureSegment, "record of batch %d: %v", position, err,
			)
		}
		if k.count == 0 {
			k.firstSeq = record.FirstSeq
		}
		k.lastSeq, k.at = record.LastSeq, record.At
		k.count++
		position++
		body = body[n:]
	}
	return position, nil
}
