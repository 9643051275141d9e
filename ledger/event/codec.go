package event

import (
	"errors"
	"fmt"

	"github.com/musterhpc/muster/ledger/event/record"
	"github.com/musterhpc/muster/spec"
)

// Version is the vocabulary version that this release reads, and that it may write once the
// controllers have agreed on it (ClusterVersionRaised). It goes up by one in a release that
// brings a kind or a field; testdata has what each version brought.
const Version uint32 = 2

// Errors of the codec; compare with errors.Is.
var (
	// ErrNewer tells an event, field or batch of a newer release.
	ErrNewer = errors.New(
		"written by a newer release of muster: upgrade this controller before it reads the ledger",
	)
	// ErrMalformed tells bytes that are no batch of events.
	ErrMalformed = errors.New("not a batch of events")
)

// A batch is the array [version, [envelope …]]; an envelope is the array
// [sequence, instant, actor, cause, kind, event]. Arrays grow at their end.
const (
	batchLen    = 2
	envelopeLen = 6
)

// Codec encodes and decodes batches. It is immutable and safe to share; make
// one with NewCodec and pass it on.
type Codec struct {
	set     *record.Set
	version uint32 // kinds that came later are not known
}

// NewCodec builds the codec: deterministic encoding, strict decoding.
func NewCodec() (*Codec, error) { return NewCodecOf(Version) }

// NewCodecOf is the codec of a release that knows a version of the vocabulary.
func NewCodecOf(version uint32) (*Codec, error) {
	samples := []any{new(Actor), new(Cause)}
	for _, k := range Kinds() {
		if k.Since() <= version {
			samples = append(samples, New(k))
		}
	}
	set, err := record.Compile(version, samples...)
	if err != nil {
		return nil, fmt.Errorf("event codec: %w", err)
	}
	return &Codec{set: set, version: version}, nil
}

// Needs is the vocabulary version that a reader of an event must know, and what in it asks
// for that: its kind, or a field.
func (c *Codec) Needs(e Event) (version uint32, what string, err error) {
	version, what, err = c.set.Needs(e)
	if since := e.Kind().Since(); since >= version {
		version, what = since, e.Kind().String()
	}
	return version, what, err
}

// Reduce is a copy of an event without the fields that came after a version.
func (c *Codec) Reduce(e Event, version uint32) (Event, error) {
	data, err := c.set.Append(nil, e)
	if err != nil {
		return nil, err
	}
	out := New(e.Kind())
	if err := c.set.NewDecoder(data).Value(out); err != nil {
		return nil, err
	}
	return out, c.set.Reduce(out, version)
}

// Vocabulary lists the kinds and fields that a version knows, one a line.
func (c *Codec) Vocabulary(version uint32) []string {
	var out []string
	for _, k := range Kinds() {
		if k.Since() <= version {
			out = append(out, fmt.Sprintf("kind %d %s", k, k))
		}
	}
	return append(out, c.set.Vocabulary(version)...)
}

// Encode writes a batch. Equal batches give equal bytes. The batch says which version it
// needs, so that releases which know no more than that can read it.
func (c *Codec) Encode(batch []Envelope) ([]byte, error) {
	return c.Append(make([]byte, 0, 64+384*len(batch)), batch)
}

// Append writes a batch behind dst, for callers that keep a buffer.
func (c *Codec) Append(dst []byte, batch []Envelope) ([]byte, error) {
	dst = record.AppendHead(dst, record.MajorArray, batchLen)
	needed := uint32(1)
	for i := range batch {
		version, _, err := c.Needs(batch[i].Event)
		if err != nil {
			return nil, fmt.Errorf("encode (sequence %d): %w", batch[i].Seq, err)
		}
		needed = max(needed, version)
	}
	dst = record.AppendHead(dst, record.MajorUint, uint64(needed))
	dst = record.AppendHead(dst, record.MajorArray, uint64(len(batch)))
	for i := range batch {
		var err error
		dst, err = c.appendEnvelope(dst, &batch[i])
		if err != nil {
			return nil, fmt.Errorf(
				"encode %s (sequence %d): %w",
				batch[i].Event.Kind(),
				batch[i].Seq,
				err,
			)
		}
	}
	return dst, nil
}

func (c *Codec) appendEnvelope(dst []byte, envelope *Envelope) ([]byte, error) {
	dst = record.AppendHead(dst, record.MajorArray, envelopeLen)
	dst = record.AppendHead(dst, record.MajorUint, envelope.Seq)
	dst = record.AppendInt(dst, int64(envelope.At))
	dst, err := c.set.Append(dst, &envelope.Actor)
	if err != nil {
		return nil, err
	}
	dst, err = c.set.Append(dst, &envelope.Cause)
	if err != nil {
		return nil, err
	}
	dst = record.AppendHead(dst, record.MajorUint, uint64(envelope.Event.Kind()))
	return c.set.Append(dst, envelope.Event)
}

// Decode reads a batch. It returns ErrNewer for what a newer release wrote
// and ErrMalformed for anything else that is no batch. On an error no event
// of the batch counts.
func (c *Codec) Decode(data []byte) ([]Envelope, error) {
	decoder := c.set.NewDecoder(data)
	parts, err := decoder.Array()
	if err != nil {
		return nil, classifyKind(err, "batch")
	}
	version, err := decoder.Uint()
	switch {
	case err != nil:
		return nil, classifyKind(err, "batch")
	case version > uint64(Version):
		return nil, fmt.Errorf(
			"batch of vocabulary version %d, this release knows %d: %w",
			version,
			Version,
			ErrNewer,
		)
	case version == 0 || parts < batchLen:
		return nil, fmt.Errorf("batch without a version or events: %w", ErrMalformed)
	case parts > batchLen:
		return nil, fmt.Errorf("batch of %d parts: %w", parts, ErrNewer)
	}
	n, err := decoder.Array()
	if err != nil {
		return nil, classifyKind(err, "batch")
	}
	if n > decoder.Len()/minEnvelope {
		return nil, fmt.Errorf("batch of %d events in %d bytes: %w", n, decoder.Len(), ErrMalformed)
	}
	envelopes := make([]Envelope, n)
	for i := range envelopes {
		if err := c.decodeEnvelope(decoder, &envelopes[i]); err != nil {
			return nil, err
		}
	}
	if decoder.Len() != 0 {
		return nil, fmt.Errorf("%d bytes after the batch: %w", decoder.Len(), ErrMalformed)
	}
	return envelopes, nil
}

// minEnvelope is the least number of bytes of an envelope.
const minEnvelope = 1 + envelopeLen

func (c *Codec) decodeEnvelope(decoder *record.Decoder, envelope *Envelope) error {
	parts, err := decoder.Array()
	if err != nil {
		return classifyKind(err, "envelope")
	}
	if parts > envelopeLen {
		return fmt.Errorf("envelope of %d parts: %w", parts, ErrNewer)
	}
	if parts < envelopeLen {
		return fmt.Errorf("envelope of %d parts: %w", parts, ErrMalformed)
	}
	envelope.Seq, err = decoder.Uint()
	if err != nil {
		return classifyKind(err, "envelope")
	}
	at, err := decoder.Int()
	if err == nil {
		envelope.At = spec.Instant(at)
		err = decoder.Value(&envelope.Actor)
	}
	if err == nil {
		err = decoder.Value(&envelope.Cause)
	}
	var kind uint64
	if err == nil {
		kind, err = decoder.Uint()
	}
	if err != nil {
		return classifyKind(err, fmt.Sprintf("envelope at sequence %d", envelope.Seq))
	}
	if kind <= uint64(^Kind(0)) && Kind(kind).Since() <= c.version {
		envelope.Event = New(Kind(kind))
	}
	if envelope.Event == nil {
		return fmt.Errorf("event kind %d at sequence %d: %w", kind, envelope.Seq, ErrNewer)
	}
	if err := decoder.Value(envelope.Event); err != nil {
		return classifyKind(
			err,
			fmt.Sprintf("%s at sequence %d", envelope.Event.Kind(), envelope.Seq),
		)
	}
	return nil
}

func classifyKind(err error, what string) error {
	if errors.Is(err, record.ErrUnknownField) {
		return fmt.Errorf("%s: %w: %w", what, ErrNewer, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrMalformed, err)
}
