package slurmapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// held keeps the beginning of an answer back, so that a command that fails after
// it began to print still ends in an error rather than in half a document. What is
// long it compresses on its way, where the client takes that.
//
// An answer with a tag is kept back longer, because its header says what the whole
// body is: a hash of it, so that the tag changes with everything that the answer
// shows, also with what is not in the ledger.
type held struct {
	to     http.ResponseWriter
	gzips  bool
	known  []string  // the tags of If-None-Match
	sum    hash.Hash // of the answer; nil = it has no tag
	kept   bytes.Buffer
	zip    *gzip.Writer // nil = it is sent as it is
	packed *packed      // where zip writes
	sent   bool
}

const (
	// maxHeld is how much is held back uncompressed.
	maxHeld = 128 << 10
	// maxTagged is how long an answer with a tag may be, as it is sent. It bounds the memory of
	// a request; JSON of 10,000 jobs fits in it compressed, and goes without a tag else.
	maxTagged = 2 << 20
	// minCompressed is the size below which compressing costs more than it saves.
	minCompressed = 1 << 10
)

// packed takes what is compressed: it keeps it, until it is told where to send it.
type packed struct {
	kept bytes.Buffer
	to   io.Writer // nil = keep it
}

// Write implements io.Writer.
func (p *packed) Write(data []byte) (int, error) {
	if p.to != nil {
		return p.to.Write(data)
	}
	return p.kept.Write(data)
}

// newHeld holds the answer to a request back.
func newHeld(writer http.ResponseWriter, r *http.Request) *held {
	h := &held{to: writer, gzips: acceptsGzip(r.Header.Values("Accept-Encoding"))}
	for tag := range strings.SplitSeq(strings.Join(r.Header.Values("If-None-Match"), ","), ",") {
		// If-None-Match compares weakly (RFC 9110, section 13.1.2): proxies that compress weaken tags.
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag != "" {
			h.known = append(h.known, tag)
		}
	}
	return h
}

// beginTag gives the answer a tag, unless it becomes too long. It must come before the first Write,
// and only where a request changes nothing.
func (h *held) beginTag() { h.sum = sha256.New() }

// Write implements io.Writer.
func (h *held) Write(data []byte) (int, error) {
	if h.sum != nil {
		h.sum.Write(data)
	}
	var err error
	switch {
	case h.sent || h.zip != nil:
	case h.kept.Len()+len(data) <= maxHeld:
		return h.kept.Write(data)
	case h.gzips:
		err = h.compress()
	case h.sum != nil && h.kept.Len()+len(data) <= maxTagged:
		return h.kept.Write(data)
	}
	if err == nil && !h.sent && (h.sum == nil || h.packedLen() > maxTagged || h.zip == nil) {
		h.sum = nil
		err = h.release()
	}
	if err != nil {
		return 0, err
	}
	return h.body().Write(data)
}

// packedLen is how much compressed text is kept.
func (h *held) packedLen() int {
	if h.packed == nil {
		return 0
	}
	return h.packed.kept.Len()
}

// compress has everything compressed that is kept and that comes.
func (h *held) compress() error {
	h.packed = &packed{}
	zip, err := gzip.NewWriterLevel(h.packed, gzip.BestSpeed)
	if err != nil {
		return err
	}
	h.zip = zip
	_, err = zip.Write(h.kept.Bytes())
	h.kept = bytes.Buffer{}
	return err
}

// body takes what comes.
func (h *held) body() io.Writer {
	if h.zip != nil {
		return h.zip
	}
	return h.to
}

// setHeaders sets what is known of the answer.
func (h *held) setHeaders() {
	header := h.to.Header()
	header.Set("Content-Type", "application/json")
	header.Add("Vary", "Accept-Encoding")
	if h.zip != nil {
		header.Set("Content-Encoding", "gzip")
	}
}

// release sends what is kept, and has the rest sent as it comes.
func (h *held) release() error {
	h.sent = true
	h.setHeaders()
	if h.zip == nil {
		_, err := h.to.Write(h.kept.Bytes())
		return err
	}
	h.packed.to = h.to
	_, err := h.to.Write(h.packed.kept.Bytes())
	h.packed.kept = bytes.Buffer{}
	return err
}

// finish sends what is left, or says that the client has it. An answer that broke off is not
// finished, so that a client which decompresses it notices.
func (h *held) finish() error {
	if h.zip == nil && !h.sent && h.gzips && h.kept.Len() >= minCompressed {
		if err := h.compress(); err != nil {
			return err
		}
	}
	if h.zip != nil {
		if err := h.zip.Close(); err != nil {
			return err
		}
	}
	if h.sent {
		return nil
	}
	if h.sum != nil && h.isKnown() {
		h.sent = true
		h.to.Header().Add("Vary", "Accept-Encoding")
		h.to.WriteHeader(http.StatusNotModified)
		return nil
	}
	return h.release()
}

// isKnown sets the tag, and tells whether the client has the answer.
func (h *held) isKnown() bool {
	// The two encodings of one answer are different bytes, and have tags of their own.
	coding := ""
	if h.zip != nil {
		coding = "-gzip"
	}
	tag := strconv.Quote(hex.EncodeToString(h.sum.Sum(nil)[:16]) + coding)
	header := h.to.Header()
	header.Set("ETag", tag)
	// The answer is its reader's, who asks each time whether it holds.
	header.Set("Cache-Control", "private, no-cache")
	for _, known := range h.known {
		if known == tag || known == "*" {
			return true
		}
	}
	return false
}

// acceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3).
func acceptsGzip(headers []string) bool {
	for item := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		coding, params, _ := strings.Cut(item, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		weight, given := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		return !given || err == nil && q > 0
	}
	return false
}
