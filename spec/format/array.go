package format

import (
	"iter"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxArrayIndex is the largest task index that any configuration allows.
	MaxArrayIndex = 4_000_000
	// maxRanges bounds the memory of one array: a set that needs more ranges
	// than this is not what an array is for.
	maxRanges = 10_000
)

// Range is the indices First, First+Step, … Last. A single index has
// Last == First and Step 1.
type Range struct {
	First uint32 `cbor:"1,keyasint"`
	Last  uint32 `cbor:"2,keyasint"`
	Step  uint32 `cbor:"3,keyasint"`
}

// Array is the index expression of a job array, such as 0-15:4,20%2. Its size
// does not depend on the number of tasks. Methods never change the receiver's
// ranges in place, so copies may share them.
type Array struct {
	// Ranges ascend and their spans do not overlap; Last is an index itself.
	Ranges []Range `cbor:"1,keyasint"`
	// Throttle is the most tasks that run at once; 0 = no limit.
	Throttle uint32 `cbor:"2,keyasint,omitempty"`
}

func (r Range) countTasks() int64 { return int64((r.Last-r.First)/r.Step) + 1 }

func (r Range) hasTask(i uint32) bool {
	return i >= r.First && i <= r.Last && (i-r.First)%r.Step == 0
}

// ParseArray reads 0-15, 0-15:4, 1,3,7-9, each with an optional %N, which
// limits the whole array wherever it stands; brackets around all are allowed.
// The caller checks Max against MaxArraySize.
func ParseArray(s string) (Array, error) {
	const what = "array index expression"
	text := s
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = text[1 : len(text)-1]
	}
	if text == "" {
		return Array{}, badInput(what, s, "it is empty")
	}
	var array Array
	throttled := false
	for part := range strings.SplitSeq(text, ",") {
		part, limit, percent := strings.Cut(part, "%")
		if percent {
			n, ok := parseDigits(limit, MaxArrayIndex+1)
			switch {
			case !ok:
				return Array{}, badInput(what, s, "expected a number after %%, found %q", limit)
			case throttled && uint32(n) != array.Throttle:
				return Array{}, badInput(what, s, "more than one %% limit")
			}
			array.Throttle, throttled = uint32(n), true
		}
		r, reason := parseRange(part)
		if reason != "" {
			return Array{}, badInput(what, s, reason)
		}
		array.Ranges = append(array.Ranges, r)
	}
	ranges, ok := normal(array.Ranges)
	if !ok {
		return Array{}, badInput(
			what,
			s,
			"its ranges overlap too often or are more than %d",
			maxRanges,
		)
	}
	array.Ranges = ranges
	return array, nil
}

func parseRange(text string) (r Range, reason string) {
	span, step, stepped := strings.Cut(text, ":")
	first, last, ranged := strings.Cut(span, "-")
	if !ranged {
		last = first
	}
	lo, ok1 := parseDigits(first, MaxArrayIndex+1)
	hi, ok2 := parseDigits(last, MaxArrayIndex+1)
	by, ok3 := int64(1), true
	if stepped {
		by, ok3 = parseDigits(step, MaxArrayIndex+1)
	}
	switch {
	case text == "":
		return r, "an index is missing"
	case !ok1 || !ok2 || !ok3:
		return r, strconv.Quote(text) + " is not n, n-m or n-m:step with numbers up to " +
			strconv.Itoa(MaxArrayIndex)
	case stepped && !ranged:
		return r, strconv.Quote(text) + " has a step but no range"
	case hi < lo:
		return r, "range " + span + " runs backwards"
	case by == 0:
		return r, "the step of " + strconv.Quote(text) + " is 0"
	}
	return tidy(Range{uint32(lo), uint32(hi), uint32(by)}), ""
}

// tidy makes Last an index and gives single indices step 1.
func tidy(r Range) Range {
	r.Last -= (r.Last - r.First) % r.Step
	if r.Last == r.First {
		r.Step = 1
	}
	return r
}

// normal sorts ranges and removes overlap and duplicates. It reports false if
// the result needs too many ranges.
func normal(in []Range) ([]Range, bool) {
	slices.SortFunc(in, func(a, b Range) int { return int(int64(a.First) - int64(b.First)) })
	for i := 1; i < len(in); i++ {
		if in[i].First <= in[i-1].Last {
			return rebuild(in)
		}
	}
	ranges := make([]Range, 0, min(len(in), maxRanges+2))
	for _, r := range in {
		if len(ranges) > maxRanges {
			return nil, false
		}
		if r.countTasks() <= 2 {
			ranges = extend(ranges, r.First)
			if r.First != r.Last {
				ranges = extend(ranges, r.Last)
			}
			continue
		}
		ranges = append(split(ranges), r)
		for k := len(ranges) - 1; k > 0; k-- {
			m, ok := join(ranges[k-1], ranges[k])
			if !ok {
				break
			}
			ranges = append(ranges[:k-1], m)
		}
	}
	ranges = split(ranges)
	return slices.Clip(ranges), len(ranges) <= maxRanges
}

// join makes one range of two neighbours if they continue each other.
func join(a, b Range) (Range, bool) {
	gap := b.First - a.Last
	one, two := a.First == a.Last, b.First == b.Last
	switch {
	case one && two:
		return Range{a.First, b.Last, 1}, gap == 1
	case one:
		return Range{a.First, b.Last, b.Step}, gap == b.Step
	case two || a.Step == b.Step:
		return Range{a.First, b.Last, a.Step}, gap == a.Step
	}
	return Range{}, false
}

// rebuild handles spans that overlap through a bitmap, which is at most
// MaxArrayIndex bits and short-lived.
func rebuild(in []Range) ([]Range, bool) {
	top, work := uint32(0), int64(0)
	for _, r := range in {
		top = max(top, r.Last)
		work += r.countTasks()
	}
	if work > 8*MaxArrayIndex {
		return nil, false // the same indices again and again: not what anyone means
	}
	set := make([]uint64, top/64+1)
	for _, r := range in {
		for i := r.First; i <= r.Last; i += r.Step {
			set[i/64] |= 1 << (i % 64)
		}
	}
	var ranges []Range
	for i := uint32(0); i <= top; i++ {
		if set[i/64]&(1<<(i%64)) == 0 {
			continue
		}
		ranges = extend(ranges, i)
		if len(ranges) > maxRanges+2 {
			return nil, false
		}
	}
	ranges = split(ranges)
	return ranges, len(ranges) <= maxRanges
}

// extend adds index i, larger than all before, to the last range if it fits.
// While it grows, a pair of indices is a range whose step is their distance.
func extend(ranges []Range, i uint32) []Range {
	if k := len(ranges) - 1; k >= 0 {
		r := &ranges[k]
		switch {
		case r.First == r.Last:
			r.Last, r.Step = i, i-r.First
			return ranges
		case i-r.Last == r.Step:
			r.Last = i
			return ranges
		case r.Last-r.First == r.Step && r.Step > 1:
			// A pair that did not go on: its second index may start a range.
			second := r.Last
			r.Last, r.Step = r.First, 1
			return append(ranges, Range{second, i, i - second})
		}
	}
	return append(ranges, Range{i, i, 1})
}

// split turns a last pair that is no neighbourhood into two single indices.
func split(ranges []Range) []Range {
	if k := len(ranges) - 1; k >= 0 && ranges[k].Step > 1 &&
		ranges[k].Last-ranges[k].First == ranges[k].Step {
		last := ranges[k].Last
		ranges[k].Last, ranges[k].Step = ranges[k].First, 1
		ranges = append(ranges, Range{last, last, 1})
	}
	return ranges
}

// Count is the number of tasks.
func (a Array) Count() int64 {
	n := int64(0)
	for _, r := range a.Ranges {
		n += r.countTasks()
	}
	return n
}

// Min is the smallest index; 0 if there is none.
func (a Array) Min() uint32 {
	if len(a.Ranges) == 0 {
		return 0
	}
	return a.Ranges[0].First
}

// Max is the largest index; 0 if there is none.
func (a Array) Max() uint32 {
	if len(a.Ranges) == 0 {
		return 0
	}
	return a.Ranges[len(a.Ranges)-1].Last
}

// Step is the distance of the indices if it is the same for all, else 1. It is
// the value of SLURM_ARRAY_TASK_STEP.
func (a Array) Step() uint32 {
	if len(a.Ranges) == 1 {
		return a.Ranges[0].Step
	}
	return 1
}

// Contains reports whether i is an index of the array.
func (a Array) Contains(i uint32) bool {
	k := a.rangeAt(i)
	return k < len(a.Ranges) && a.Ranges[k].hasTask(i)
}

// rangeAt is the first range whose Last is not below i.
func (a Array) rangeAt(i uint32) int {
	k, _ := slices.BinarySearchFunc(
		a.Ranges,
		i,
		func(r Range, i uint32) int { return int(int64(r.Last) - int64(i)) },
	)
	return k
}

// Next is the smallest index that is not below from.
func (a Array) Next(from uint32) (uint32, bool) {
	k := a.rangeAt(from)
	if k == len(a.Ranges) {
		return 0, false
	}
	r := a.Ranges[k]
	if from <= r.First {
		return r.First, true
	}
	return from + (r.Step-(from-r.First)%r.Step)%r.Step, true
}

// All yields the indices in ascending order.
func (a Array) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, r := range a.Ranges {
			for i := r.First; ; i += r.Step {
				if !yield(i) {
					return
				}
				if i == r.Last {
					break
				}
			}
		}
	}
}

// Without is the array minus one index; taking the smallest or largest index
// of a range does not add ranges.
func (a Array) Without(i uint32) Array {
	k := a.rangeAt(i)
	if k == len(a.Ranges) || !a.Ranges[k].hasTask(i) {
		return a
	}
	r := a.Ranges[k]
	ranges := make([]Range, 0, len(a.Ranges)+1)
	ranges = append(ranges, a.Ranges[:k]...)
	if i > r.First {
		ranges = append(ranges, tidy(Range{r.First, i - r.Step, r.Step}))
	}
	if i < r.Last {
		ranges = append(ranges, tidy(Range{i + r.Step, r.Last, r.Step}))
	}
	a.Ranges = append(ranges, a.Ranges[k+1:]...)
	return a
}

// With is the array plus one index.
func (a Array) With(i uint32) Array {
	if a.Contains(i) {
		return a
	}
	k := a.rangeAt(i)
	ranges := make([]Range, 0, len(a.Ranges)+2)
	ranges = append(ranges, a.Ranges[:k]...)
	one := Range{i, i, 1}
	if k < len(a.Ranges) && a.Ranges[k].First < i { // inside the span of a stepped range
		r := a.Ranges[k]
		below := i - (i-r.First)%r.Step
		ranges = append(
			ranges,
			tidy(Range{r.First, below, r.Step}),
			one,
			tidy(Range{below + r.Step, r.Last, r.Step}),
		)
		k++
	} else {
		ranges = append(ranges, one)
	}
	ranges = append(ranges, a.Ranges[k:]...)
	a.Ranges, _ = normal(ranges)
	return a
}

// String prints the expression so that ParseArray gives the same array.
func (a Array) String() string { return a.printRanges(0) }

// minSteps and minStepSpan are the fewest indices, and the least distance of the last from the
// first, that squeue writes as first-last:step. Fewer are listed.
const (
	minSteps    = 6
	minStepSpan = 11
)

// Display prints the indices as squeue does inside "_[…]": steps only if all
// indices have the same distance and are many, and not more than limit bytes (0 = no limit;
// squeue cuts at 64) before "...".
func (a Array) Display(limit int) string {
	if limit <= 0 {
		limit = 1 << 30
	}
	if len(a.Ranges) == 1 {
		only := a.Ranges[0]
		wide := only.countTasks() >= minSteps && only.Last-only.First >= minStepSpan
		if only.Step == 1 || wide {
			return a.printRanges(limit)
		}
	}
	flat := Array{Throttle: a.Throttle}
	size := 0
	add := func(r Range) {
		if last := len(flat.Ranges) - 1; last >= 0 && flat.Ranges[last].Last+1 == r.First {
			flat.Ranges[last].Last = r.Last
			return
		}
		flat.Ranges = append(flat.Ranges, r)
	}
	for _, r := range a.Ranges {
		if r.Step == 1 {
			add(r)
			continue
		}
		for i := r.First; i <= r.Last; i += r.Step {
			add(Range{i, i, 1})
			size += 2
			if size > limit {
				break
			}
		}
	}
	return flat.printRanges(limit)
}

// printRanges writes the ranges; with a limit it stops after the part that would
// pass it, and says so.
func (a Array) printRanges(limit int) string {
	var buffer []byte
	for k, r := range a.Ranges {
		mark := len(buffer)
		if k > 0 {
			buffer = append(buffer, ',')
		}
		buffer = strconv.AppendUint(buffer, uint64(r.First), 10)
		if r.Last != r.First {
			buffer = append(buffer, '-')
			buffer = strconv.AppendUint(buffer, uint64(r.Last), 10)
			if r.Step > 1 {
				buffer = append(buffer, ':')
				buffer = strconv.AppendUint(buffer, uint64(r.Step), 10)
			}
		}
		if limit > 0 && len(buffer) > limit && k > 0 {
			buffer = append(buffer[:mark], ",..."...)
			break
		}
	}
	if a.Throttle > 0 {
		buffer = append(buffer, '%')
		buffer = strconv.AppendUint(buffer, uint64(a.Throttle), 10)
	}
	return string(buffer)
}
