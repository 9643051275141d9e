package pmix

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrProtocol is what muster-pmix sends that is not a message.
var ErrProtocol = errors.New("malformed message of muster-pmix")

// kind is what a message is; cmd/muster-pmix has the same numbers.
type kind uint8

const (
	kindSetup kind = iota + 1
	kindVariables
	kindReady
	kindFence
	kindPassed
	kindAsk
	kindAnswer
	kindAbort
	kindFailed
)

// maxMessage is the largest message in bytes.
const maxMessage = 64 << 20

// message encodes one message of numbers and data.
func message(k kind, data []byte, numbers ...uint32) []byte {
	size := 1 + 4*len(numbers) + len(data)
	buffer := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+size), uint32(size))
	buffer = append(buffer, byte(k))
	for _, n := range numbers {
		buffer = binary.LittleEndian.AppendUint32(buffer, n)
	}
	return append(buffer, data...)
}

// next takes the first whole message of a buffer; n is what it takes there, 0
// where it is not whole yet.
func next(buffer []byte) (k kind, body []byte, n int, err error) {
	if len(buffer) < 5 {
		return 0, nil, 0, nil
	}
	size := binary.LittleEndian.Uint32(buffer)
	if size < 1 || size > maxMessage {
		return 0, nil, 0, fmt.Errorf("%w: %d bytes", ErrProtocol, size)
	}
	if uint32(len(buffer)-4) < size {
		return 0, nil, 0, nil
	}
	n = 4 + int(size)
	return kind(buffer[4]), buffer[5:n], n, nil
}

// numbers takes numbers from the front of a body.
func numbers(body []byte, count int) (list []uint32, rest []byte, err error) {
	if count < 0 || len(body)/4 < count {
		return nil, nil, fmt.Errorf("%w: it is cut off", ErrProtocol)
	}
	for i := range count {
		list = append(list, binary.LittleEndian.Uint32(body[4*i:]))
	}
	return list, body[4*count:], nil
}
