// Package attrib counts what each job did with each GPU, at the source.
//
// A Book holds one Account per (job, attempt, GPU or MIG instance) that runs on
// the node. It is fed with observations and keeps integers only, so the counts
// are exact, survive a restart of the agent (Marshal, Unmarshal), and add up:
//
//	Allocated = NoProcess + Idle + Busy + Unobserved
//
// A reading speaks for the time since the reading before it, because that is
// what the drivers' utilisation figures mean. Time before the first reading of
// an allocation belongs to that first reading. When readings are further apart
// than the Book's gap (the agent was down), the time between them is
// Unobserved: it is never guessed. Unobserved time is also what a job has that
// was shorter than one collection.
//
// Energy comes from the device's own counter. Its growth between two readings
// is spread evenly over the time between them and divided by share where jobs
// share a device, rounding down so that the parts never exceed the whole.
// Counters that went back (a driver reload) add their new value and nothing
// else.
//
// To have full figures the owner observes the GPU at the start and at the end
// of an allocation: Observe, then Start or End with the same instant.
package attrib

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Key names an account.
type Key struct {
	Job     spec.JobUID `json:"job"`
	Attempt uint32      `json:"attempt"`
	GPU     string      `json:"gpu"` // UUID of the device or MIG instance
}

// Observation is one reading of one GPU. Pointers are absent figures.
type Observation struct {
	At        spec.Instant
	Processes int    // that hold the GPU; negative when the provider cannot say
	Util      *int64 // millionths; nil when unknown
	SM        *int64 // multiprocessor activity, millionths
	Tensor    *int64 // tensor pipe activity, millionths
	MemoryMiB *int64
	EnergyMJ  *int64 // the device's counter
	Thermal   bool   // clocks held down by temperature
	Power     bool   // clocks held down by the power limit
}

// Deciles is the number of classes of utilisation.
const Deciles = 10

// Account is what one job did with one GPU. Times are nanoseconds.
type Account struct {
	Key
	From  spec.Instant `json:"from"`
	To    spec.Instant `json:"to"`    // end, or how far the account is counted
	Share int64        `json:"share"` // of the device, in thousandths

	Allocated  int64 `json:"allocated"`
	NoProcess  int64 `json:"no_process"` // nobody held the GPU
	Idle       int64 `json:"idle"`       // a process held it and it computed nothing
	Busy       int64 `json:"busy"`       // it computed
	Unobserved int64 `json:"unobserved"` // nobody looked
	// Lost is the part of Unobserved in which the driver said that the device was
	// gone. The job could not have used it: it is no idle time of the job's.
	Lost int64 `json:"lost,omitempty"`

	// BusyByUtil splits Busy by utilisation: 1-10 %, 11-20 %, …, 91-100 %.
	BusyByUtil [Deciles]int64 `json:"busy_by_util"`
	Util       Integral       `json:"util"`   // utilisation × time: full-speed ns
	SM         Integral       `json:"sm"`     // multiprocessor activity × time
	Tensor     Integral       `json:"tensor"` // tensor pipe activity × time
	SMSeen     int64          `json:"sm_seen"`
	TensorSeen int64          `json:"tensor_seen"`

	MemoryPeakMiB int64    `json:"memory_peak_mib"`
	MemoryMiBNS   Integral `json:"memory_mib_seconds"` // MiB·s
	EnergyMJ      int64    `json:"energy_mj"`
	EnergySeen    int64    `json:"energy_seen"` // time that EnergyMJ covers
	Thermal       int64    `json:"thermal"`
	Power         int64    `json:"power"`
	XIDs          []XID    `json:"xids,omitempty"` // by number; at most MaxXIDs numbers
	XIDsOther     int64    `json:"xids_other,omitempty"`
}

// XID counts one driver error number.
type XID struct {
	Number int   `json:"number"`
	Count  int64 `json:"count"`
}

// MaxXIDs bounds the numbers an account tells apart.
const MaxXIDs = 16

// Integral is a sum of value × time divided by a unit, with its remainder.
type Integral struct {
	Whole int64 `json:"whole"`
	Rest  int64 `json:"rest"`
}

// addProduct adds value × ns / unit; the remainder is kept for the next time. A sum
// that no 64 bits hold stays at the largest value: a driver that answers with
// garbage must not stop the agent.
func (g *Integral) addProduct(value, ns, unit int64) {
	hi, lo := bits.Mul64(uint64(max(0, value)), uint64(max(0, ns)))
	lo, carry := bits.Add64(lo, uint64(g.Rest), 0)
	hi += carry
	if hi >= uint64(unit) {
		g.Whole, g.Rest = math.MaxInt64, 0
		return
	}
	whole, rest := bits.Div64(hi, lo, uint64(unit))
	if whole > uint64(math.MaxInt64-g.Whole) {
		g.Whole, g.Rest = math.MaxInt64, 0
		return
	}
	g.Whole += int64(whole)
	g.Rest = int64(rest)
}

// state is what a GPU did during a stretch of time.
type state uint8

const (
	unobserved state = iota
	noProcess
	idle
	busy
)

// stateOf judges an observation. Activity proves use even where the process
// list is empty (another container's processes are not always visible).
func stateOf(observation *Observation) state {
	active := (observation.Util != nil && *observation.Util > 0) ||
		(observation.SM != nil && *observation.SM > 0)
	switch {
	case active:
		return busy
	case observation.Processes == 0:
		return noProcess
	case observation.Processes < 0 && observation.Util == nil && observation.SM == nil:
		return unobserved
	}
	return idle
}

// spendTime counts a stretch of time of an account. An observation of nil means
// that nobody looked.
func (a *Account) spendTime(ns int64, observation *Observation) {
	if ns <= 0 {
		return
	}
	a.Allocated += ns
	a.To = a.To.Add(spec.Span(ns))
	if observation == nil {
		a.Unobserved += ns
		return
	}
	switch stateOf(observation) {
	case noProcess:
		a.NoProcess += ns
	case idle:
		a.Idle += ns
	case busy:
		a.Busy += ns
		a.BusyByUtil[decileOf(observation)] += ns
	case unobserved:
		a.Unobserved += ns
	}
	const millionths = 1_000_000
	if observation.Util != nil {
		a.Util.addProduct(min(*observation.Util, millionths), ns, millionths)
	}
	if observation.SM != nil {
		a.SM.addProduct(min(*observation.SM, millionths), ns, millionths)
		a.SMSeen += ns
	}
	if observation.Tensor != nil {
		a.Tensor.addProduct(min(*observation.Tensor, millionths), ns, millionths)
		a.TensorSeen += ns
	}
	if observation.MemoryMiB != nil {
		a.MemoryPeakMiB = max(a.MemoryPeakMiB, *observation.MemoryMiB)
		a.MemoryMiBNS.addProduct(*observation.MemoryMiB, ns, int64(spec.Second))
	}
	if observation.Thermal {
		a.Thermal += ns
	}
	if observation.Power {
		a.Power += ns
	}
}

// decileOf gives the class of a busy observation: 0 for up to 10 %.
func decileOf(observation *Observation) int {
	u := observation.Util
	if u == nil || *u <= 0 {
		u = observation.SM
	}
	d := (min(*u, 1_000_000) - 1) * Deciles / 1_000_000
	return int(min(max(d, 0), Deciles-1))
}

// trimAfter takes back time that was counted after the account had ended. A GPU
// after its job has no process, so that state gives first and Busy last.
func (a *Account) trimAfter(end spec.Instant) {
	end = max(end, a.From)
	over := int64(a.To - end)
	if over <= 0 {
		return
	}
	a.Allocated -= over
	a.To = end
	give := func(from *int64) int64 {
		n := min(over, *from)
		*from -= n
		over -= n
		return n
	}
	give(&a.NoProcess)
	give(&a.Idle)
	give(&a.Unobserved)
	a.Lost = min(a.Lost, a.Unobserved)
	busy := give(&a.Busy)
	for i := range a.BusyByUtil {
		n := min(busy, a.BusyByUtil[i])
		a.BusyByUtil[i] -= n
		busy -= n
	}
}

// countXID counts a driver error.
func (a *Account) countXID(number int) {
	i, found := slices.BinarySearchFunc(
		a.XIDs,
		number,
		func(x XID, n int) int { return cmp.Compare(x.Number, n) },
	)
	switch {
	case found:
		a.XIDs[i].Count++
	case len(a.XIDs) < MaxXIDs:
		a.XIDs = slices.Insert(a.XIDs, i, XID{Number: number, Count: 1})
	default:
		a.XIDsOther++
	}
}

// cloneAccount copies an account.
func (a *Account) cloneAccount() Account {
	account := *a
	account.XIDs = slices.Clone(a.XIDs)
	return account
}
