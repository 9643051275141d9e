package conffile

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/spec"
)

// Size is a number of bytes, written 256MiB, 4GiB or 1048576.
type Size int64

// Units of Size.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

// sizeUnits from the largest, for printing and for reading.
var sizeUnits = [...]struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}}

// String gives the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseSize reads a Size. K, M, G and T mean KiB and so on, as in slurm.conf;
// KB and MB are refused because people mean two things by them.
func ParseSize(text string) (Size, error) {
	digits, unit := splitUnit(text)
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write it as in 256MiB or 4GiB", text)
	}
	scale := Size(0)
	if unit == "" || unit == "B" {
		scale = 1
	}
	for _, u := range sizeUnits {
		if strings.EqualFold(unit, u.name) || strings.EqualFold(unit, u.name[:1]) {
			scale = u.size
		}
	}
	switch {
	case scale == 0:
		return 0, fmt.Errorf("%q is not a size: its unit must be KiB, MiB, GiB or TiB", text)
	case n > math.MaxInt64/int64(scale):
		return 0, fmt.Errorf("%q is larger than any disk", text)
	}
	return Size(n) * scale, nil
}

func splitUnit(text string) (digits, unit string) {
	i := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimSpace(text[i:])
}

const forever = "forever"

// ParseSpan reads a length of time: 200ms, 10s, 1h30m, 7d, 2w, or forever. A
// bare number is refused because files of this field mean seconds, minutes and
// milliseconds by it.
func ParseSpan(text string) (spec.Span, error) {
	if text == forever {
		return spec.Infinite, nil
	}
	if digits, unit := splitUnit(text); unit == "d" || unit == "w" {
		n, err := strconv.ParseInt(digits, 10, 64)
		day := int64(spec.Day)
		if unit == "w" {
			day *= 7
		}
		if err != nil || n > math.MaxInt64/day {
			return 0, notSpan(text)
		}
		return spec.Span(n * day), nil
	} else if unit == "" && digits != "" && digits != "0" {
		return 0, fmt.Errorf("%q needs a unit: write it as in 200ms, 10s, 5m, 1h or 7d", text)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, notSpan(text)
	}
	return spec.Span(d), nil
}

func notSpan(text string) error {
	return fmt.Errorf(
		"%q is not a length of time: write it as in 200ms, 10s, 5m, 1h, 7d or forever",
		text,
	)
}

// formatSpan prints what ParseSpan reads back.
func formatSpan(span spec.Span) string {
	switch {
	case span == spec.Infinite:
		return forever
	case span != 0 && span%spec.Day == 0:
		return strconv.FormatInt(int64(span/spec.Day), 10) + "d"
	}
	text := time.Duration(span).String()
	// 1h0m0s reads worse than 1h.
	if t, ok := strings.CutSuffix(text, "m0s"); ok {
		text = t + "m"
	}
	if t, ok := strings.CutSuffix(text, "h0m"); ok {
		text = t + "h"
	}
	return text
}

// Addr is an address to listen on, as host:port. An empty host means every
// interface; an empty Addr means not to listen.
type Addr string

const off = "off"

// Off tells whether nothing is to listen.
func (a Addr) Off() bool { return a == "" }

// Port is the port of the address; empty if nothing is to listen.
func (a Addr) Port() string {
	_, port, err := net.SplitHostPort(string(a))
	if err != nil {
		return ""
	}
	return port
}

// String prints what ParseAddr reads back: the bare port where there is no host.
func (a Addr) String() string {
	if a.Off() {
		return off
	}
	if host, port, err := net.SplitHostPort(string(a)); err == nil && host == "" {
		return port
	}
	return string(a)
}

// ParseAddr reads a port, host:port, [v6]:port or off.
func ParseAddr(text string) (Addr, error) {
	if text == off {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = "", text
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 ||
		strings.ContainsAny(host, " /") {
		return "", fmt.Errorf(
			"%q is not an address to listen on: write a port (6817), host:port (10.0.0.1:6817) or off",
			text,
		)
	}
	return Addr(net.JoinHostPort(host, port)), nil
}

// Secret is text that is never printed or logged. Reveal gives it.
type Secret string

// Reveal gives the secret to whoever must use it.
func (s Secret) Reveal() string { return string(s) }

const hidden = "[hidden]"

// String hides the secret from %v and from renderers.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides it from %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// LogValue hides it from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides it from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
