package simulated

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// ErrLoad is wrapped by every error of ParseLoad.
var ErrLoad = errors.New("bad simulated GPU load")

// Shape is the course of a load over time.
type Shape uint8

// The shapes of load.
const (
	Steady Shape = iota // at its peak, with a little jitter
	Saw                 // rises through each period, then drops: stalls on data
	Burst               // half of each period at its peak, half nearly idle
	Ramp                // rises through the first period, then stays
	Idle                // holds memory and never computes
	Absent              // no process at all: an allocation that nobody uses
)

func shapes() []string { return []string{"steady", "saw", "burst", "ramp", "idle", "absent"} }

// String gives the shape as ParseLoad reads it.
func (s Shape) String() string {
	if int(s) < len(shapes()) {
		return shapes()[s]
	}
	return "shape" + strconv.Itoa(int(s))
}

// FaultKind is a kind of injected fault.
type FaultKind uint8

// The faults a load can bring.
const (
	FaultXID     FaultKind = iota // the driver reports an error number
	FaultLost                     // the device falls off the bus
	FaultThermal                  // the clocks are held down for a while
	FaultCut                      // an administrator partitions the device anew
)

// Fault happens After a job's start on its device.
type Fault struct {
	Kind  FaultKind
	After spec.Span
	XID   int       // of FaultXID
	For   spec.Span // of FaultThermal
	// Profiles of the instances that a FaultCut makes; none makes it whole.
	Profiles []string
}

// Load is what one job does to one device.
type Load struct {
	Shape  Shape
	Util   int       // peak utilisation in percent
	Memory int       // memory held, in percent of the device
	Period spec.Span // of Saw, Burst and Ramp
	Warmup spec.Span // time to fill the memory, nearly idle
	Faults []Fault   // in order of After
}

// LoadOf is the load of a job that says nothing about it: mostly steady
// training, some uneven ones, one in sixteen that never computes.
func LoadOf(job spec.JobUID) Load {
	h := mixBits(uint64(job))
	load := Load{
		Util:   70 + int(h>>8%31),
		Memory: 35 + int(h>>16%61),
		Period: spec.Seconds(20 + int64(h>>24%100)),
		Warmup: spec.Seconds(2 + int64(h>>32%8)),
	}
	switch h % 16 {
	case 0:
		load.Shape = Idle
	case 1, 2, 3:
		load.Shape = Saw
	case 4, 5:
		load.Shape = Burst
	case 6:
		load.Shape = Ramp
	default:
		load.Shape = Steady
	}
	return load
}

// ParseLoad reads a load such as
//
//	util=90,mem=60,shape=saw,period=30s,warmup=5s,xid=79@2m,thermal@60s+30s,lost@5m,mig=3g.40gb/1g.10gb@8m
//
// on top of base. Words are separated by commas; util and mem are percents;
// spans are whole numbers with ms, s, m or h. The empty text is base itself.
func ParseLoad(text string, base Load) (Load, error) {
	load := base
	load.Faults = append([]Fault(nil), base.Faults...)
	for _, word := range strings.Split(text, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		if err := load.applyWord(word); err != nil {
			return Load{}, fmt.Errorf("%w: %q: %w", ErrLoad, word, err)
		}
	}
	for i := 1; i < len(load.Faults); i++ { // insertion sort: a handful, stable
		for j := i; j > 0 && load.Faults[j].After < load.Faults[j-1].After; j-- {
			load.Faults[j], load.Faults[j-1] = load.Faults[j-1], load.Faults[j]
		}
	}
	return load, nil
}

// applyWord applies one word of a load text.
func (l *Load) applyWord(word string) error {
	if name, at, ok := strings.Cut(word, "@"); ok {
		return l.applyFault(name, at)
	}
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		return errors.New("want key=value, or fault@after")
	}
	var err error
	switch key {
	case "util":
		l.Util, err = percent(value)
	case "mem":
		l.Memory, err = percent(value)
	case "period":
		l.Period, err = parseSpan(value)
	case "warmup":
		l.Warmup, err = parseSpan(value)
	case "shape":
		for i, s := range shapes() {
			if s == value {
				l.Shape = Shape(i)
				return nil
			}
		}
		err = fmt.Errorf("want one of %s", strings.Join(shapes(), ", "))
	default:
		err = errors.New("want util, mem, shape, period, warmup, xid@, thermal@, mig@ or lost@")
	}
	return err
}

// applyFault applies xid=N@AFTER, lost@AFTER or thermal@AFTER+FOR.
func (l *Load) applyFault(name, at string) error {
	fault := Fault{}
	kind, number, hasNumber := strings.Cut(name, "=")
	after, length, hasLength := strings.Cut(at, "+")
	var err error
	fault.After, err = parseSpan(after)
	if err != nil {
		return err
	}
	switch {
	case kind == "xid" && hasNumber && !hasLength:
		fault.XID, err = strconv.Atoi(number)
		if err != nil || fault.XID <= 0 || fault.XID > 9999 {
			return errors.New("want an XID from 1 to 9999")
		}
	case kind == "mig" && !hasLength:
		fault.Kind = FaultCut
		for _, profile := range strings.FieldsFunc(number, func(r rune) bool { return r == '/' }) {
			if _, _, ok := profileOf(profile); !ok {
				return fmt.Errorf("invalid MIG profile %q: expected for example 1g.10gb", profile)
			}
			fault.Profiles = append(fault.Profiles, profile)
		}
	case kind == "lost" && !hasNumber && !hasLength:
		fault.Kind = FaultLost
	case kind == "thermal" && !hasNumber && hasLength:
		fault.Kind = FaultThermal
		fault.For, err = parseSpan(length)
		if err != nil {
			return err
		}
	default:
		return errors.New(
			"want xid=N@AFTER, lost@AFTER, mig=PROFILE/PROFILE@AFTER or thermal@AFTER+FOR",
		)
	}
	l.Faults = append(l.Faults, fault)
	return nil
}

func percent(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || n < 0 || n > 100 {
		return 0, errors.New("want a percentage from 0 to 100")
	}
	return n, nil
}

// parseSpan reads a whole number with a unit, at most a year.
func parseSpan(text string) (spec.Span, error) {
	units := []struct {
		suffix string
		unit   spec.Span
	}{{"ms", spec.Millisecond}, {"s", spec.Second}, {"m", spec.Minute}, {"h", spec.Hour}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > int64(365*spec.Day/u.unit) {
			break
		}
		return spec.Span(n) * u.unit, nil
	}
	return 0, errors.New("want a span such as 500ms, 30s, 5m or 2h")
}

// mixBits spreads the bits of a number (the finaliser of a multiply-xor hash).
func mixBits(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
