package attrib

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Errors of a Book; each is wrapped with the account it is about.
var (
	ErrRunning = errors.New("the account is already open")
	ErrUnknown = errors.New("there is no such account")
	ErrState   = errors.New("the saved GPU accounts cannot be read")
)

// gpuState is what the book knows about one GPU.
type gpuState struct {
	GPU    string       `json:"gpu"`
	At     spec.Instant `json:"at"`               // of the last observation
	Energy *int64       `json:"energy,omitempty"` // counter at At
	Open   []*Account   `json:"open,omitempty"`   // by job then attempt
}

// Book is the set of open accounts of a node. It belongs to one goroutine.
type Book struct {
	parts map[string]Part // MIG instances, by UUID
	gap   spec.Span
	gpus  []*gpuState // by UUID
}

// NewBook makes an empty book. Readings further apart than gap leave the time
// between them unobserved; three collection periods are a good gap.
func NewBook(gap spec.Span) *Book { return &Book{gap: gap} }

func (b *Book) findGPU(gpu string) (int, bool) {
	return slices.BinarySearchFunc(
		b.gpus,
		gpu,
		func(g *gpuState, u string) int { return cmp.Compare(g.GPU, u) },
	)
}

// gpuStateOf gives the state of a GPU, new when it was not known.
func (b *Book) gpuStateOf(uuid string) *gpuState {
	i, ok := b.findGPU(uuid)
	if !ok {
		b.gpus = slices.Insert(b.gpus, i, &gpuState{GPU: uuid})
	}
	return b.gpus[i]
}

func (g *gpuState) accountOf(key Key) (int, bool) {
	return slices.BinarySearchFunc(g.Open, key, func(account *Account, k Key) int {
		return cmp.Or(cmp.Compare(account.Job, k.Job), cmp.Compare(account.Attempt, k.Attempt))
	})
}

// Start opens an account. share is the job's part of the GPU in thousandths;
// 0 means all of it. ErrRunning when it is open already.
func (b *Book) Start(key Key, at spec.Instant, share int64) error {
	gpu := b.gpuStateOf(key.GPU)
	i, ok := gpu.accountOf(key)
	if ok {
		return fmt.Errorf("job %d attempt %d on %s: %w", key.Job, key.Attempt, key.GPU, ErrRunning)
	}
	if share <= 0 || share > 1000 {
		share = 1000
	}
	gpu.Open = slices.Insert(gpu.Open, i, &Account{Key: key, From: at, To: at, Share: share})
	return nil
}

// Observe counts the time since the last observation of a GPU for every job on
// it. An observation that is not after the last one adds nothing.
func (b *Book) Observe(gpu string, observation Observation) {
	g := b.gpuStateOf(gpu)
	if observation.At <= g.At {
		return
	}
	since := g.At
	watched := since > 0 && observation.At.Sub(since) <= b.gap
	var grown int64
	metered := watched && observation.EnergyMJ != nil && g.Energy != nil
	if metered {
		grown = *observation.EnergyMJ - *g.Energy
		if grown < 0 { // the counter began anew
			grown = *observation.EnergyMJ
		}
	}
	for _, account := range g.Open {
		if account.To >= observation.At {
			continue
		}
		begin := account.To
		seen := &observation
		if observation.At.Sub(begin) > b.gap {
			seen = nil
		}
		account.spendTime(int64(observation.At-begin), seen)
		if metered {
			begin = max(begin, since) // nothing is known of the time before
			account.EnergyMJ += shareOf(
				growthPortion(grown, begin, observation.At, since),
				account.Share,
			)
			account.EnergySeen += int64(observation.At - begin)
		}
	}
	g.At = observation.At
	g.Energy = observation.EnergyMJ
}

// growthPortion gives the part of a counter's growth over (since, until] that falls
// into (begin, until]. The parts of adjoining stretches add up to the whole.
func growthPortion(grown int64, begin, until, since spec.Instant) int64 {
	var before Integral
	before.addProduct(grown, int64(begin-since), int64(until-since))
	return grown - before.Whole
}

// shareOf gives so many thousandths of a figure, rounded down.
func shareOf(n, thousandths int64) int64 {
	return n/1000*thousandths + n%1000*thousandths/1000
}

// XID counts a driver error for every job on the GPU.
func (b *Book) XID(gpu string, number int) {
	if i, ok := b.findGPU(gpu); ok {
		for _, account := range b.gpus[i].Open {
			account.countXID(number)
		}
	}
}

// End closes an account and gives its final figures. Time between the last
// observation and the end is unobserved; time counted after the end is taken
// back. ErrUnknown when the account is not open.
func (b *Book) End(key Key, at spec.Instant) (Account, error) {
	gpu := b.gpuStateOf(key.GPU)
	i, ok := gpu.accountOf(key)
	if !ok {
		return Account{}, fmt.Errorf(
			"job %d attempt %d on %s: %w",
			key.Job,
			key.Attempt,
			key.GPU,
			ErrUnknown,
		)
	}
	account := gpu.Open[i]
	gpu.Open = slices.Delete(gpu.Open, i, i+1)
	account.spendTime(int64(at-account.To), nil)
	account.trimAfter(at)
	return account.cloneAccount(), nil
}

// Accounts gives the open accounts, by GPU, job and attempt, counted up to the
// last observation.
func (b *Book) Accounts() []Account {
	var accounts []Account
	for _, g := range b.gpus {
		for _, account := range g.Open {
			accounts = append(accounts, account.cloneAccount())
		}
	}
	return accounts
}

// saved is the stored form of a Book.
type saved struct {
	Version int         `json:"version"`
	GapNS   int64       `json:"gap_ns"`
	GPUs    []*gpuState `json:"gpus"`
}

const version = 1

// Marshal gives the book as bytes that Unmarshal reads. The same book gives
// the same bytes.
func (b *Book) Marshal() ([]byte, error) {
	return json.Marshal(saved{Version: version, GapNS: int64(b.gap), GPUs: b.gpus})
}

// Unmarshal reads a stored book. Errors wrap ErrState; a book whose sums do
// not add up is refused rather than continued.
func Unmarshal(data []byte) (*Book, error) {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if s.Version != version {
		return nil, fmt.Errorf("%w: version %d, this agent reads %d", ErrState, s.Version, version)
	}
	for i, gpu := range s.GPUs {
		if gpu == nil || (i > 0 && s.GPUs[i-1].GPU >= gpu.GPU) {
			return nil, fmt.Errorf("%w: GPU %d is out of order", ErrState, i)
		}
		for j, account := range gpu.Open {
			if account == nil || account.GPU != gpu.GPU {
				return nil, fmt.Errorf("%w: account %d of %s is not its own", ErrState, j, gpu.GPU)
			}
			if j > 0 && cmp.Or(cmp.Compare(gpu.Open[j-1].Job, account.Job), cmp.Compare(gpu.Open[j-1].Attempt, account.Attempt)) >= 0 {
				return nil, fmt.Errorf("%w: account %d of %s is out of order", ErrState, j, gpu.GPU)
			}
			if err := account.Check(); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrState, err)
			}
		}
	}
	return &Book{gap: spec.Span(s.GapNS), gpus: s.GPUs}, nil
}

// Check tells whether an account adds up.
func (a *Account) Check() error {
	sum := a.NoProcess + a.Idle + a.Busy + a.Unobserved
	var busyNS int64
	for _, ns := range a.BusyByUtil {
		busyNS += ns
	}
	switch {
	case a.Allocated != sum:
		return fmt.Errorf(
			"job %d on %s: allocated %d ns, states sum to %d",
			a.Job,
			a.GPU,
			a.Allocated,
			sum,
		)
	case a.Busy != busyNS:
		return fmt.Errorf(
			"job %d on %s: busy %d ns, classes sum to %d",
			a.Job,
			a.GPU,
			a.Busy,
			busyNS,
		)
	case a.Allocated != max(0, int64(a.To-a.From)):
		return fmt.Errorf(
			"job %d on %s: allocated %d ns from %d to %d",
			a.Job,
			a.GPU,
			a.Allocated,
			a.From,
			a.To,
		)
	case min(a.Util.Whole, a.Util.Rest, a.MemoryMiBNS.Rest, a.EnergyMJ, a.SM.Rest, a.Tensor.Rest) < 0:
		return fmt.Errorf("job %d on %s: a figure is negative", a.Job, a.GPU)
	}
	return nil
}
