package energy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// ErrState is wrapped by Unmarshal.
var ErrState = errors.New("the saved energy accounts cannot be read")

// Book is the energy of a node and its runs. It belongs to one goroutine.
type Book struct {
	cpus int64 // of the node
	gap  spec.Span
	idle int64 // configured power of the idle node in milliwatts; 0 = learn it
	s    state
}

// state is what a Book remembers over a restart.
type state struct {
	Version int       `json:"version"`
	Meter   meter     `json:"meter"`
	Busy    int64     `json:"busy"` // CPU time of the whole node at the last reading; -1 = not known
	Node    int64     `json:"node"` // all that was counted, in millijoules
	Nobody  int64     `json:"nobody"`
	Power   int64     `json:"power,omitempty"` // mean power between the last two readings, in milliwatts
	Open    []Account `json:"open,omitempty"`

	// Learned is the lowest mean power, over stretches of learnOver; LearnMJ and
	// LearnNS are the stretch that has begun.
	Learned int64 `json:"learned,omitempty"`
	LearnMJ int64 `json:"learn_mj,omitempty"`
	LearnNS int64 `json:"learn_ns,omitempty"`
	// Peak is the highest mean power, in milliwatts: no advance exceeds it.
	Peak int64 `json:"peak,omitempty"`
	// PerCPU is what a second of CPU time costs beyond the idle power, in millijoules.
	PerCPU int64 `json:"per_cpu,omitempty"`

	// What ended runs were advanced since the last reading, and before it as far as
	// it is not paid back.
	AdvancedStatic  int64 `json:"advanced_static,omitempty"`
	AdvancedDynamic int64 `json:"advanced_dynamic,omitempty"`
	// What these runs had of the time since the last reading.
	EndedHeld int64 `json:"ended_held,omitempty"` // CPUs x time
	EndedCPU  int64 `json:"ended_cpu,omitempty"`  // CPU time
}

const version = 1

// minLearn is the shortest time between two readings that says what power is.
const minLearn = 100 * int64(spec.Millisecond)

// learnOver is the shortest stretch whose mean power is believed: a counter that
// steps coarsely shows nothing in a short one.
const learnOver = 10 * int64(spec.Second)

// NewBook makes a book of a node with so many CPUs. Readings further apart than
// gap leave the time between them unknown: a counter may have wrapped twice.
// idleMilliWatts is the power of the idle node; 0 learns it.
func NewBook(cpus int64, gap spec.Span, idleMilliWatts int64) *Book {
	return &Book{
		cpus: max(cpus, 1),
		gap:  gap,
		idle: idleMilliWatts,
		s:    state{Version: version, Busy: -1},
	}
}

// Totals are the node's figures.
type Totals struct {
	NodeMJ     int64 // all that the meter counted, without GPUs
	NobodyMJ   int64 // of it, what belongs to no run
	AdvancedMJ int64 // what runs were given ahead of the meter
	MilliWatts int64 // mean power between the last two readings
	IdleMilliW int64 // what the idle node is taken to use
	Known      bool  // there were two readings
}

// Totals gives the node's figures.
func (b *Book) Totals() Totals {
	return Totals{
		NodeMJ:     b.s.Node,
		NobodyMJ:   b.s.Nobody,
		AdvancedMJ: b.advanced(),
		MilliWatts: b.s.Power,
		IdleMilliW: b.idlePower(),
		Known:      b.s.Power > 0 || b.s.Node > 0,
	}
}

func (b *Book) advanced() int64 { return b.s.AdvancedStatic + b.s.AdvancedDynamic }

func (b *Book) idlePower() int64 {
	if b.idle > 0 {
		return b.idle
	}
	return b.s.Learned
}

func (b *Book) find(run Run) (int, bool) {
	return slices.BinarySearchFunc(
		b.s.Open,
		run,
		func(a Account, r Run) int { return a.Run.Compare(r) },
	)
}

// Start opens an account; one that is open already keeps what it has, but learns
// how many CPUs it was given.
func (b *Book) Start(run Run, at spec.Instant, cpus int64) {
	i, open := b.find(run)
	if open {
		b.s.Open[i].CPUs = cpus
		return
	}
	b.s.Open = slices.Insert(b.s.Open, i, Account{Run: run, From: at, To: at, CPUs: cpus})
}

// Account gives an open account as it is counted until now.
func (b *Book) Account(run Run) (Account, bool) {
	i, open := b.find(run)
	if !open {
		return Account{}, false
	}
	return b.s.Open[i], true
}

// Accounts lists the open accounts.
func (b *Book) Accounts() []Account { return slices.Clone(b.s.Open) }

// Observe shares out what the node used since the last reading. gpus is the energy
// of the node's GPUs as far as it is counted, busy the CPU time of the whole node,
// -1 where it is not known, and uses the CPU time of the runs.
func (b *Book) Observe(reading *Reading, gpus, busy int64, uses []Use) {
	since := b.s.Meter.At
	if reading.At <= since && since.Sub(reading.At) <= b.gap {
		return // not a clock that was set back: an old reading
	}
	mj, known := b.s.Meter.grow(reading, gpus, b.gap)
	spent := make([]int64, len(b.s.Open)) // CPU time since the last reading
	for _, use := range uses {
		i, open := b.find(use.Run)
		if !open {
			continue
		}
		spent[i] = max(use.CPU-b.s.Open[i].CPU, 0)
		b.s.Open[i].CPU = max(use.CPU, b.s.Open[i].CPU)
	}
	all := int64(0)
	if before := b.s.Busy; before >= 0 && busy >= 0 {
		all = max(busy-before, 0)
	}
	b.s.Busy = busy
	if known {
		b.learn(mj, int64(reading.At-since), all)
		b.share(mj, since, reading.At, all, spent)
	} else {
		// Nobody can tell what this time used: what was advanced in it stands for it.
		b.s.Node += b.advanced()
		b.s.AdvancedStatic = 0
		b.s.AdvancedDynamic = 0
	}
	b.s.EndedHeld = 0
	b.s.EndedCPU = 0
	for i := range b.s.Open {
		b.s.Open[i].To = max(b.s.Open[i].To, reading.At)
	}
}

// learn takes the mean power of a stretch.
func (b *Book) learn(mj, ns, busy int64) {
	if ns < minLearn {
		return
	}
	b.s.Power = mulDiv(mj, int64(spec.Second), ns)
	b.s.Peak = max(b.s.Peak, b.s.Power)
	b.s.LearnMJ += mj
	b.s.LearnNS += ns
	if b.s.LearnNS >= learnOver {
		mean := mulDiv(b.s.LearnMJ, int64(spec.Second), b.s.LearnNS)
		if mean > 0 && (b.s.Learned == 0 || mean < b.s.Learned) {
			b.s.Learned = mean
		}
		b.s.LearnMJ, b.s.LearnNS = 0, 0
	}
	// Below a hundredth of a CPU the noise of the meter is larger than the work.
	if busy < ns/100 {
		return
	}
	dynamic := max(mj-mulDiv(b.idlePower(), ns, int64(spec.Second)), 0)
	cost := mulDiv(dynamic, int64(spec.Second), busy)
	if b.s.PerCPU == 0 {
		b.s.PerCPU = cost
	}
	b.s.PerCPU = (3*b.s.PerCPU + cost) / 4
}

// share gives what the node used from since until now to the open accounts; the
// rest is nobody's.
func (b *Book) share(mj int64, since, now spec.Instant, busy int64, spent []int64) {
	passed := int64(now - since)
	b.s.Node += mj
	static := min(mj, mulDiv(b.idlePower(), passed, int64(spec.Second)))
	dynamic := mj - static
	static, b.s.AdvancedStatic = payBack(static, b.s.AdvancedStatic)
	dynamic, b.s.AdvancedDynamic = payBack(dynamic, b.s.AdvancedDynamic)
	// What one part could not pay, the other does.
	static, b.s.AdvancedDynamic = payBack(static, b.s.AdvancedDynamic)
	dynamic, b.s.AdvancedStatic = payBack(dynamic, b.s.AdvancedStatic)

	var held, worked int64
	for i := range b.s.Open {
		held += b.s.Open[i].CPUs * b.s.Open[i].within(since, now)
		worked += spent[i]
	}
	// Jobs that share CPUs hold more than there are: then nothing is nobody's.
	held = max(b.cpus*passed-b.s.EndedHeld, held)
	worked = max(busy-b.s.EndedCPU, worked)
	given := int64(0)
	for first := 0; first < len(b.s.Open); {
		behind := first + 1
		for behind < len(b.s.Open) && b.s.Open[behind].sameJob(b.s.Open[first].Run) {
			behind++
		}
		given += b.shareJob(b.s.Open[first:behind], spent[first:behind], since, now, static, held)
		first = behind
	}
	for i := range b.s.Open {
		account := &b.s.Open[i]
		part := mulDiv(dynamic, spent[i], worked)
		account.MJ += part
		account.Seen += account.within(since, now)
		given += part
	}
	b.s.Nobody += static + dynamic - given
}

// shareJob gives a job its part of the static energy, and gives how much that was.
func (b *Book) shareJob(
	runs []Account,
	spent []int64,
	since, now spec.Instant,
	static, held int64,
) (given int64) {
	var mine, worked int64
	for i := range runs {
		mine += runs[i].CPUs * runs[i].within(since, now)
		worked += spent[i]
	}
	part := mulDiv(static, mine, held)
	for i := 1; i < len(runs); i++ {
		piece := mulDiv(part, spent[i], worked)
		runs[i].MJ += piece
		given += piece
	}
	runs[0].MJ += part - given
	return part
}

// within is how long the account was open from since until now.
func (a *Account) within(since, now spec.Instant) int64 {
	return max(int64(now-max(since, a.From)), 0)
}

// payBack takes a debt off a figure, as far as it goes.
func payBack(figure, debt int64) (left, owed int64) {
	paid := min(figure, debt)
	return figure - paid, debt - paid
}

// End closes an account, with an advance for the time since the last reading; cpu
// is all the CPU time that the run used. ok is false where none is open.
func (b *Book) End(run Run, at spec.Instant, cpu int64) (account Account, ok bool) {
	i, open := b.find(run)
	if !open {
		return Account{}, false
	}
	account = b.s.Open[i]
	b.s.Open = slices.Delete(b.s.Open, i, i+1)
	since := max(b.s.Meter.At, account.From)
	alone := max(int64(at-since), 0)
	spent := max(cpu-account.CPU, 0)
	unknown := b.idlePower() == 0 && b.s.PerCPU == 0
	if b.s.Meter.At == 0 || unknown || at.Sub(b.s.Meter.At) > b.gap {
		return account, true // nothing is known of this node yet, or the meter is silent
	}
	static := mulDiv(mulDiv(b.idlePower(), alone, int64(spec.Second)), account.CPUs, b.cpus)
	dynamic := mulDiv(b.s.PerCPU, spent, int64(spec.Second))
	room := mulDiv(b.s.Peak, int64(at-b.s.Meter.At), int64(spec.Second)) - b.advanced()
	static = min(static, max(room, 0))
	dynamic = min(dynamic, max(room-static, 0))
	account.MJ += static + dynamic
	account.Seen += max(alone, 1)
	account.CPU = max(cpu, account.CPU)
	account.To = max(account.To, at)
	b.s.AdvancedStatic += static
	b.s.AdvancedDynamic += dynamic
	b.s.EndedHeld += account.CPUs * alone
	b.s.EndedCPU += spent
	return account, true
}

// Drop closes an account that is reported nowhere: what it used is nobody's.
func (b *Book) Drop(run Run) {
	i, open := b.find(run)
	if !open {
		return
	}
	b.s.Nobody += b.s.Open[i].MJ
	b.s.Open = slices.Delete(b.s.Open, i, i+1)
}

// Marshal gives what Restore reads.
func (b *Book) Marshal() ([]byte, error) { return json.Marshal(b.s) }

// Restore goes on with what was saved; it errs with ErrState, and then changes nothing.
func (b *Book) Restore(data []byte) error {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if s.Version != version {
		return fmt.Errorf("%w: version %d, this agent reads %d", ErrState, s.Version, version)
	}
	for i := range s.Open {
		if i > 0 && s.Open[i-1].Run.Compare(s.Open[i].Run) >= 0 {
			return fmt.Errorf("%w: account %d is out of order", ErrState, i)
		}
		if s.Open[i].MJ < 0 || s.Open[i].CPUs < 0 {
			return fmt.Errorf("%w: account %d has a negative figure", ErrState, i)
		}
	}
	b.s = s
	return nil
}
