// What a message costs to decode is bounded. Two bytes on the wire can
// become hundreds in memory: an empty element of a list of messages does. A server
// therefore counts the elements before it decodes a message, and refuses one with
// too many, whatever its size.

package grpcx

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxValues bounds the values of one message. A script or an environment is one
// value, whatever its size. The largest messages of agents and of sacctmgr load
// have less than a quarter of it.
const MaxValues = 400_000

// smallMessage is the size up to which a message is decoded without a look: it
// cannot hold enough values to matter.
const smallMessage = 64 << 10

// maxDepth is how deep messages are looked into. No message of the API is nested
// so deeply; protobuf refuses what is.
const maxDepth = 64

// exceedsValues tells whether an encoded message has more values than most. What is not
// an encoding of the message is left for protobuf to refuse.
func exceedsValues(data []byte, m proto.Message, most int) bool {
	if len(data) <= smallMessage {
		return false
	}
	left := most
	countValues(data, m.ProtoReflect().Descriptor(), &left, maxDepth)
	return left < 0
}

// countValues takes the values of a message from what is left.
func countValues(data []byte, message protoreflect.MessageDescriptor, left *int, depth int) {
	for len(data) > 0 && *left >= 0 && depth > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return
		}
		data = data[size:]
		size = protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return
		}
		*left--
		if field := message.Fields().ByNumber(number); field != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data)
			switch {
			case field.Message() != nil:
				countValues(value, field.Message(), left, depth-1)
			case field.IsList() && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind:
				*left -= len(value) / 8 // packed numbers, of one byte at least and eight in memory
			}
		}
		data = data[size:]
	}
}
