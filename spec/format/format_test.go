package format

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// want is a table row of the readers: ok text or the reason of the error.
func check[T comparable](t *testing.T, in string, got T, err error, want T, reason string) {
	t.Helper()
	if reason != "" {
		var e *SyntaxError
		if !errors.As(err, &e) || !strings.Contains(e.Reason, reason) {
			t.Errorf("%q: error %v, want one that says %q", in, err, reason)
		}
		return
	}
	if err != nil || got != want {
		t.Errorf("%q: got %v, %v; want %v", in, got, err, want)
	}
}

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		bad  string
	}{
		{"30", 1800, ""}, {"0", 0, ""}, {"10:30", 630, ""}, {"1:00:00", 3600, ""}, {"90:00", 5400, ""},
		{"1-0", 86400, ""}, {"7-0", 604800, ""}, {"1-12", 129600, ""}, {"1-12:30", 131400, ""}, {"2-01:02:03", 176523, ""},
		{"1-00:00:00", 86400, ""}, {"00:90:00", 5400, ""}, {"UNLIMITED", Infinite, ""}, {"infinite", Infinite, ""}, {"-1", Infinite, ""},
		{"", 0, "it is empty"}, {"1:2:3:4", 0, "expected minutes"}, {"-2", 0, "expected"}, {"1h", 0, "expected"}, {"1-", 0, "expected"},
		{"-1:00", 0, "expected"}, {"1-2-3", 0, "expected"}, {"1:", 0, "expected"}, {" 1", 0, "expected"}, {"17000000000", 0, "285 years"}, {"99999999999999999999", 0, "expected"},
	} {
		got, err := ParseDuration(c.in)
		check(t, c.in, got, err, c.want, c.bad)
	}
}

func TestDurationText(t *testing.T) {
	for _, c := range []struct {
		sec         int64
		long, short string
	}{
		{0, "00:00:00", "0:00"}, {5, "00:00:05", "0:05"}, {61, "00:01:01", "1:01"}, {600, "00:10:00", "10:00"}, {3600, "01:00:00", "1:00:00"},
		{36000, "10:00:00", "10:00:00"}, {86400, "1-00:00:00", "1-00:00:00"}, {604800, "7-00:00:00", "7-00:00:00"},
		{90061, "1-01:01:01", "1-01:01:01"}, {Infinite, "UNLIMITED", "UNLIMITED"}, {-1, "INVALID", "INVALID"},
	} {
		if Duration(c.sec) != c.long || ShortDuration(c.sec) != c.short {
			t.Errorf("%d: %s, %s; want %s, %s", c.sec, Duration(c.sec), ShortDuration(c.sec), c.long, c.short)
		}
	}
	for usec, want := range map[int64]string{3000: "00:00.003", 0: "00:00:00", 2_000_000: "00:00:02", 61_250_000: "01:01.250", 3_600_500_000: "01:00:00", 90_061_999_999: "1-01:01:01"} {
		if got := CPUTime(usec); got != want {
			t.Errorf("CPUTime(%d) = %s, want %s", usec, got, want)
		}
	}
	for in, want := range map[int64]int64{0: 0, 1: 60, 60: 60, 61: 120, Infinite: Infinite} {
		if got := Minutes(in); got != want {
			t.Errorf("Minutes(%d) = %d, want %d", in, got, want)
		}
	}
}

func TestDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sec := rapid.Int64Range(0, maxDuration).Draw(t, "seconds")
		for _, text := range []string{Duration(sec), ShortDuration(sec)} {
			if got, err := ParseDuration(text); err != nil || got != sec {
				t.Fatalf("%d -> %s -> %d, %v", sec, text, got, err)
			}
		}
	})
}

func TestParseMemoryAndCount(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		bad  string
	}{
		{"500", 500, ""}, {"500M", 500, ""}, {"4G", 4096, ""}, {"4g", 4096, ""}, {"4GB", 4096, ""}, {"1024K", 1, ""}, {"1K", 1, ""}, {"1025K", 2, ""},
		{"1T", 1 << 20, ""}, {"2P", 2 << 30, ""}, {"0", 0, ""}, {"16000", 16000, ""},
		{"", 0, "whole number"}, {"M", 0, "whole number"}, {"1.5G", 0, "fractions"}, {"-1", 0, "negative"}, {"4X", 0, "whole number"},
		{"4GiB", 0, "unknown unit"}, {"4GG", 0, "unknown unit"}, {"4B", 0, "unknown unit"}, {"99999999999999999999", 0, "too large"}, {"9999999P", 0, "too large"},
	} {
		got, err := ParseMemory(c.in)
		check(t, c.in, got, err, c.want, c.bad)
	}
	for _, c := range []struct {
		in   string
		want int64
		bad  string
	}{{"10", 10, ""}, {"2K", 2048, ""}, {"1k", 1024, ""}, {"4G", 4 << 30, ""}, {"1M", 1 << 20, ""}, {"x", 0, "whole number"}, {"9999P", 0, "too large"}} {
		got, err := ParseCount(c.in)
		check(t, c.in, got, err, c.want, c.bad)
	}
}

func TestUnits(t *testing.T) {
	for mib, want := range map[int64]string{0: "0", 500: "500M", 1000: "1000M", 1024: "1G", 4096: "4G", 16000: "16000M", 32000: "32000M", 20480: "20G", 1 << 20: "1T", 1 << 30: "1P", 1 << 40: "1024P", -1024: "-1G"} {
		if got := TRESMemory(mib); got != want {
			t.Errorf("TRESMemory(%d) = %s, want %s", mib, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 11085: "11085", 3316 << 10: "3316K", 316756 << 10: "316756K", 1 << 20: "1M", 1: "1"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
	for _, c := range []struct {
		n    int64
		from byte
		how  Convert
		want string
	}{
		{500, 'M', Convert{To: 'G'}, "0.49G"}, // sacct --units=G
		{2048, 'M', Convert{To: 'G'}, "2G"},   //
		{2048, 'M', Convert{To: 'K'}, "2097152K"},
		{2048, 'M', Convert{Keep: true}, "2048M"}, // --noconvert
		{1536, 'M', Convert{}, "1.50G"},
		{2500, 'K', Convert{Decimal: true}, "2.50M"}, // AveCPUFreq
		{11085, 0, Convert{To: 'M', Fraction: true}, "0.01M"},
		{1990, 0, Convert{To: 'M', Fraction: true}, "0.00M"},
		{1 << 20, 0, Convert{To: 'M', Fraction: true}, "1.00M"},
		{0, 0, Convert{To: 'M', Fraction: true}, "0.00M"},
		{1 << 50, 'M', Convert{}, "1048576P"},
	} {
		if got := Units(c.n, c.from, c.how); got != c.want {
			t.Errorf("Units(%d, %q, %+v) = %s, want %s", c.n, c.from, c.how, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		mib := rapid.Int64Range(0, maxAmount-1).Draw(t, "MiB")
		if got, err := ParseMemory(TRESMemory(mib)); err != nil || got != mib {
			t.Fatalf("%d -> %s -> %d, %v", mib, TRESMemory(mib), got, err)
		}
	})
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int
		bad  string
	}{{"TERM", 15, ""}, {"SIGUSR1", 10, ""}, {"9", 9, ""}, {"usr2", 12, ""}, {"64", 64, ""}, {"SIGCLD", 17, ""},
		{"0", 0, "expected a name"}, {"65", 0, "expected a name"}, {"", 0, "expected a name"}, {"SIG", 0, "expected a name"}, {"FOO", 0, "expected a name"}} {
		got, err := ParseSignal(c.in)
		check(t, c.in, got, err, c.want, c.bad)
	}
	for n := 1; n <= maxSignal; n++ {
		if got, err := ParseSignal(Signal(n)); err != nil || got != n {
			t.Errorf("%d -> %s -> %d, %v", n, Signal(n), got, err)
		}
	}
	for _, c := range []struct {
		in   string
		want EarlySignal
		bad  string
	}{
		{"TERM", EarlySignal{Number: 15, Before: 60}, ""}, {"B:USR1@300", EarlySignal{Number: 10, Before: 300, Batch: true}, ""},
		{"R:10@0", EarlySignal{Number: 10, Overlap: true}, ""}, {"RB:SIGINT@65535", EarlySignal{Number: 2, Before: 65535, Batch: true, Overlap: true}, ""},
		{"X:TERM", EarlySignal{}, "only hold R and B"}, {":TERM", EarlySignal{}, "is empty"}, {"TERM@x", EarlySignal{}, "seconds"},
		{"TERM@65536", EarlySignal{}, "seconds"}, {"@60", EarlySignal{}, "unknown signal"}, {"", EarlySignal{}, "unknown signal"},
	} {
		got, err := ParseEarlySignal(c.in)
		check(t, c.in, got, err, c.want, c.bad)
		if err == nil {
			if back, err := ParseEarlySignal(got.String()); err != nil || back != got {
				t.Errorf("%q -> %q -> %v, %v", c.in, got, back, err)
			}
		}
	}
}

func TestPerNode(t *testing.T) {
	for in, want := range map[string]string{"2(x3),1": "2(x3),1", "4": "4", "1,1,1": "1(x3)", "0(x2)": "0(x2)", "4(x1),3": "4,3"} {
		counts, err := ParsePerNode(in)
		if err != nil || PerNode(counts) != want {
			t.Errorf("%s -> %v, %v -> %s, want %s", in, counts, err, PerNode(counts), want)
		}
	}
	for _, in := range []string{"", "1,", "x", "1(x)", "1(x0)", "1(x2", "1(2)", "1(x999999999)", "1(x200000),1(x200000)"} {
		if got, err := ParsePerNode(in); err == nil {
			t.Errorf("%q: accepted as %d counts", in, len(got))
		}
	}
}

func FuzzFormats(f *testing.F) {
	for _, s := range []string{"1-02:03:04", "4G", "B:USR1@300", "2(x3),1", "UNLIMITED", "-1", "1.5G", "99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil {
			if back, err := ParseDuration(Duration(d)); err != nil || back != d {
				t.Fatalf("%q -> %d -> %q -> %d, %v", s, d, Duration(d), back, err)
			}
		}
		if m, err := ParseMemory(s); err == nil {
			if back, err := ParseMemory(TRESMemory(m)); err != nil || back != m {
				t.Fatalf("%q -> %d -> %q -> %d, %v", s, m, TRESMemory(m), back, err)
			}
		}
		if n, err := ParseCount(s); err == nil {
			if back, err := ParseCount(Count(n)); err != nil || back != n {
				t.Fatalf("%q -> %d -> %q -> %d, %v", s, n, Count(n), back, err)
			}
		}
		if e, err := ParseEarlySignal(s); err == nil {
			if back, err := ParseEarlySignal(e.String()); err != nil || back != e {
				t.Fatalf("%q -> %v -> %v, %v", s, e, back, err)
			}
		}
		if c, err := ParsePerNode(s); err == nil && len(c) < 1000 {
			if back, err := ParsePerNode(PerNode(c)); err != nil || len(back) != len(c) {
				t.Fatalf("%q -> %v -> %v, %v", s, c, back, err)
			}
		}
	})
}
