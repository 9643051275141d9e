// Package x11 is what forwarding a display takes of the X protocol: where a display is, the
// first message of a client, which carries its cookie, and the file in which clients look
// for that.
//
// A node gives the clients of a job a cookie of its own making. It lets in who shows that,
// and the command that submitted the job puts the display's real cookie in its place: the
// real one never leaves the submitter's host.
package x11

import (
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// firstPort is the TCP port of display 0.
const firstPort = 6000

// maxDisplay is the largest number of a display that has a TCP port of its own.
const maxDisplay = 59535

// ErrNoDisplay: DISPLAY is not set, or names no display.
var ErrNoDisplay = errors.New("no display")

// Address is where a display listens: the argument of net.Dial.
type Address struct {
	Network string
	Address string
}

// ParseDisplay reads a value of DISPLAY and gives the addresses to try, in order.
func ParseDisplay(text string) ([]Address, error) {
	if text == "" {
		return nil, fmt.Errorf("%w: DISPLAY is not set", ErrNoDisplay)
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return nil, fmt.Errorf("%w: DISPLAY=%s has no number: expected HOST:NUMBER", ErrNoDisplay, text)
	}
	host := text[:colon]
	digits, _, _ := strings.Cut(text[colon+1:], ".")
	number, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || number > maxDisplay {
		return nil, fmt.Errorf("%w: DISPLAY=%s has an invalid number", ErrNoDisplay, text)
	}
	switch {
	case strings.HasPrefix(text, "/"): // a socket that is named like a display
		return []Address{{"unix", text}}, nil
	case host == "" || host == "unix":
		path := fmt.Sprintf("/tmp/.X11-unix/X%d", number)
		return []Address{{"unix", path}, {"unix", "@" + path}}, nil
	}
	host = strings.Trim(strings.TrimPrefix(host, "tcp/"), "[]")
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return []Address{{"tcp", fmt.Sprintf("%s:%d", host, Port(int(number)))}}, nil
}

// Port is the TCP port of a display.
func Port(number int) int { return firstPort + number }

// protocol is the kind of authorization that servers and xauth have had for decades.
const protocol = "MIT-MAGIC-COOKIE-1"

// Cookie lets a client in.
type Cookie [16]byte

// FindCookie finds the cookie in what `xauth list DISPLAY` prints.
func FindCookie(list string) (Cookie, bool) {
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) != 3 || words[1] != protocol {
			continue
		}
		raw, err := hex.DecodeString(words[2])
		if err == nil && len(raw) == len(Cookie{}) {
			return Cookie(raw), true
		}
	}
	return Cookie{}, false
}

// familyWild is the family of an entry that holds for a display's number on every host.
const familyWild = 0xffff

// Authority is the content of an Xauthority file with the cookie of one display. It holds
// under each name of the host, which containers may change.
func Authority(number int, cookie Cookie) []byte {
	out := binary.BigEndian.AppendUint16(nil, familyWild)
	for _, field := range []string{"", strconv.Itoa(number), protocol, string(cookie[:])} {
		out = binary.BigEndian.AppendUint16(out, uint16(len(field)))
		out = append(out, field...)
	}
	return out
}

// ReadAuthority reads what Authority has written.
func ReadAuthority(data []byte) (number int, cookie Cookie, err error) {
	bad := errors.New("not the cookie file of one display")
	if len(data) < 2 || binary.BigEndian.Uint16(data) != familyWild {
		return 0, cookie, bad
	}
	rest := data[2:]
	var fields []string
	for len(rest) >= 2 {
		size := int(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
		if size > len(rest) {
			return 0, cookie, bad
		}
		fields = append(fields, string(rest[:size]))
		rest = rest[size:]
	}
	if len(rest) != 0 || len(fields) != 4 || fields[2] != protocol || len(fields[3]) != len(cookie) {
		return 0, cookie, bad
	}
	number, err = strconv.Atoi(fields[1])
	if err != nil || number < 0 || number > maxDisplay {
		return 0, cookie, bad
	}
	return number, Cookie([]byte(fields[3])), nil
}

// ErrSetup is what is not the first message of an X client.
var ErrSetup = errors.New("not the first message of an X client")

// The first message of a client: its byte order, its version of the protocol, and name and
// data of its authorization, each filled up to a multiple of four.
const (
	setupSize    = 12
	maxSetupPart = 256
)

// Setup is the first message of a client.
type Setup struct {
	head  [setupSize]byte
	order binary.ByteOrder
	name  string
	data  []byte
}

// ReadSetup reads the first message of a client.
func ReadSetup(r io.Reader) (*Setup, error) {
	setup := &Setup{}
	if _, err := io.ReadFull(r, setup.head[:]); err != nil {
		return nil, err
	}
	switch setup.head[0] {
	case 'B':
		setup.order = binary.BigEndian
	case 'l':
		setup.order = binary.LittleEndian
	default:
		return nil, ErrSetup
	}
	nameSize := int(setup.order.Uint16(setup.head[6:]))
	dataSize := int(setup.order.Uint16(setup.head[8:]))
	if nameSize > maxSetupPart || dataSize > maxSetupPart {
		return nil, fmt.Errorf("%w: an authorization of %d bytes", ErrSetup, nameSize+dataSize)
	}
	rest := make([]byte, padded(nameSize)+padded(dataSize))
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, err
	}
	setup.name = string(rest[:nameSize])
	setup.data = rest[padded(nameSize) : padded(nameSize)+dataSize]
	return setup, nil
}

// padded is a size filled up to a multiple of four.
func padded(n int) int { return (n + 3) &^ 3 }

// Shows tells whether the client shows a cookie.
func (s *Setup) Shows(cookie Cookie) bool {
	return s.name == protocol && subtle.ConstantTimeCompare(s.data, cookie[:]) == 1
}

// WithCookie is the message with another cookie.
func (s *Setup) WithCookie(cookie Cookie) []byte {
	out := append([]byte(nil), s.head[:]...)
	s.order.PutUint16(out[6:], uint16(len(protocol)))
	s.order.PutUint16(out[8:], uint16(len(cookie)))
	out = append(out, protocol...)
	out = append(out, make([]byte, padded(len(protocol))-len(protocol))...)
	return append(out, cookie[:]...)
}

// Refuse is the answer of a server that does not let the client in; Xlib prints the reason.
func (s *Setup) Refuse(reason string) []byte {
	reason = reason[:min(len(reason), maxSetupPart-4)]
	out := make([]byte, 8+padded(len(reason)))
	out[1] = byte(len(reason))
	copy(out[2:6], s.head[2:6]) // the client's own version of the protocol
	s.order.PutUint16(out[6:], uint16(padded(len(reason))/4))
	copy(out[8:], reason)
	return out
}
