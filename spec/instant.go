package spec

import "math"

// Instant is a moment in nanoseconds since 1970-01-01T00:00:00Z. Zero means
// "not yet" or "never", as the field says. It is an integer and not a
// time.Time so that a decoded value equals the encoded one.
type Instant int64

// Span is a length of time in nanoseconds.
type Span int64

// Units of Span.
const (
	Microsecond Span = 1_000
	Millisecond      = 1_000 * Microsecond
	Second           = 1_000 * Millisecond
	Minute           = 60 * Second
	Hour             = 60 * Minute
	Day              = 24 * Hour
)

// Infinite is the Span of a limit that does not limit.
const Infinite Span = math.MaxInt64

// FarFuture is later than every instant that a plan may name.
const FarFuture Instant = math.MaxInt64

// Add moves an instant; it saturates instead of wrapping.
func (t Instant) Add(d Span) Instant {
	if d == Infinite || (d > 0 && t > Instant(math.MaxInt64-int64(d))) {
		return FarFuture
	}
	return t + Instant(d)
}

// Sub gives the span from u to t.
func (t Instant) Sub(u Instant) Span { return Span(t - u) }

// IsZero tells an unset instant.
func (t Instant) IsZero() bool { return t == 0 }

// Unix gives whole seconds since 1970, rounded down.
func (t Instant) Unix() int64 {
	s := int64(t) / int64(Second)
	if int64(t)%int64(Second) < 0 {
		s--
	}
	return s
}

// AtUnix makes an instant of whole seconds since 1970.
func AtUnix(seconds int64) Instant { return Instant(seconds * int64(Second)) }

// Seconds gives whole seconds, rounded down; Infinite stays the largest value.
func (d Span) Seconds() int64 {
	if d == Infinite {
		return math.MaxInt64
	}
	return int64(d / Second)
}

// Seconds makes a span of n seconds.
func Seconds(n int64) Span {
	if n >= int64(Infinite/Second) {
		return Infinite
	}
	return Span(n) * Second
}
