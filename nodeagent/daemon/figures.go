package daemon

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

func overMemory(r *run, used, limit int64) string {
	return fmt.Sprintf(
		"StepId=%d.%s exceeded memory limit (%d > %d), being killed",
		r.facts.ID,
		spec.StepID(r.key.Step),
		used,
		limit,
	)
}

// Reading is one collection of the GPUs.
type Reading struct {
	Sample    device.Sample
	Processes []device.Process
	Listed    bool // the processes could be listed
	Events    []device.Event
	Err       error // nothing was read
}

// Collected takes a collection. Runs whose end it has seen are reported.
func (c *Core) Collected(reading *Reading) {
	if reading.Err == nil {
		c.book.ObserveSample(&reading.Sample, reading.Processes, reading.Listed)
		c.energy.countGPUEnergy(&reading.Sample, c.units)
		for i := range reading.Events {
			if event := &reading.Events[i]; event.Kind == device.EventXID {
				c.book.XID(event.UUID, event.XID)
			}
		}
	}
	c.watchDevices(reading)
	c.makeSamples(reading)
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		if r.phase == measuring && r.awaitsGPUs && r.seenAfterEnd(reading) {
			r.awaitsGPUs = false
			c.finishMeasured(r)
		}
	}
}

// seenAfterEnd tells that a collection was made after the run's end.
func (r *run) seenAfterEnd(reading *Reading) bool {
	return reading.Sample.At >= r.since || reading.Err != nil
}

// Accounts are the open GPU accounts, for metrics.
func (c *Core) Accounts() []attrib.Account { return c.book.Accounts() }

func (c *Core) accountKey(r *run, gpu string) attrib.Key {
	return attrib.Key{Job: r.jobUID(), Attempt: r.key.Attempt, GPU: gpu}
}

// openAccounts begins to count the energy of a run and what it does with its GPUs.
func (c *Core) openAccounts(r *run) {
	c.openEnergy(r)
	if r.from != 0 && !r.isStep() {
		c.sole.noteJob(r.key, r.from >= c.cfg.Started)
	}
	if r.from == 0 || len(r.facts.GPUs)+len(r.facts.Shares) == 0 {
		return
	}
	start := func(gpu string, part int64) {
		if err := c.book.Start(c.accountKey(r, gpu), r.from, part); err != nil &&
			!errors.Is(err, attrib.ErrRunning) {
			c.log.Error("GPU time will be missing", aboutRun(r), "gpu", gpu, "error", err)
		}
	}
	for _, gpu := range r.facts.GPUs {
		start(gpu, 0)
	}
	for i := range r.facts.Shares {
		start(r.facts.Shares[i].UUID, r.facts.Shares[i].inThousandths())
	}
	c.fx.Collect = true
}

// accountsOf lists the open accounts of a run.
func (c *Core) accountsOf(r *run) []attrib.Key {
	var keys []attrib.Key
	for _, gpu := range r.facts.GPUs {
		keys = append(keys, c.accountKey(r, gpu))
	}
	for i := range r.facts.Shares {
		keys = append(keys, c.accountKey(r, r.facts.Shares[i].UUID))
	}
	return keys
}

// closeAccounts drops what is still open of a run.
func (c *Core) closeAccounts(r *run) {
	for _, key := range c.accountsOf(r) {
		_, _ = c.book.End(key, c.clock()) // not open is what is wanted
	}
	if c.energy.book != nil {
		c.energy.book.Drop(energyRun(r.key))
	}
	if !r.isStep() {
		c.sole.take(r.key)
	}
}

// endAccounts closes a run's accounts and gives what it used.
func (c *Core) endAccounts(r *run) []spec.GPUUsage {
	end := c.clock()
	if r.exit != nil && r.exit.End != 0 {
		end = r.exit.End
	} else if r.phase == measuring {
		end = r.since
	}
	var usages []spec.GPUUsage
	for _, key := range c.accountsOf(r) {
		account, err := c.book.End(key, end)
		if err != nil {
			continue // the run never began to hold it
		}
		usages = append(usages, c.gpuUsage(&account))
	}
	return usages
}

// gpuUsage writes an account as a fact. Unobserved time is no process; see
// the package's comment. Time in which the device was lost is left out: the
// three states then add up to less than the time held. Of a device that the run had a part of,
// it has that part: the energy is divided in the book.
func (c *Core) gpuUsage(account *attrib.Account) spec.GPUUsage {
	usage := spec.GPUUsage{
		UUID: account.GPU, NoProcess: spec.Span(account.NoProcess + account.Unobserved - account.Lost), Idle: spec.Span(account.Idle), Busy: spec.Span(account.Busy),
		UtilNS: spec.Span(
			account.Util.Whole,
		), SMNS: spec.Span(account.SM.Whole), TensorNS: spec.Span(account.Tensor.Whole),
		PeakMem: account.MemoryPeakMiB << 20, MemMiBS: account.MemoryMiBNS.Whole, EnergyMJ: account.EnergyMJ,
		Throttled: spec.Span(
			min(account.Thermal+account.Power, account.Allocated),
		), XIDs: account.XIDsOther, Has: account.Allocated > account.Unobserved,
	}
	for _, xid := range account.XIDs {
		usage.XIDs += xid.Count
	}
	switch {
	case account.Share < whole:
		usage.Method = spec.GPUByShare
		usage.Share = account.Share
		usage.PeakMem = 0
		usage.XIDs = 0
		for _, t := range [...]*spec.Span{&usage.NoProcess, &usage.Idle, &usage.Busy, &usage.UtilNS, &usage.SMNS, &usage.TensorNS, &usage.Throttled} {
			*t = spec.Span(partOf(int64(*t), account.Share))
		}
		usage.MemMiBS = partOf(usage.MemMiBS, account.Share)
	case c.units[account.GPU].profile != "":
		usage.Method = spec.GPUBySlices
	}
	return usage
}

// partOf is some thousandths of a number, rounded down, without overflow.
func partOf(n, share int64) int64 { return n/whole*share + n%whole*share/whole }

// Jobs lists what holds the node, for metrics.
func (c *Core) Jobs() []JobOnNode {
	var nodes []JobOnNode
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		present := r.phase == living || r.phase == held || r.phase == closing
		if !present || r.from == 0 || r.isStep() {
			continue
		}
		f := &r.facts
		nodes = append(
			nodes,
			JobOnNode{
				UID:       r.jobUID(),
				Attempt:   key.Attempt,
				ID:        spec.JobID(f.ID),
				User:      f.User,
				Account:   f.Account,
				Partition: f.Partition,
				From:      r.from,
				CPUs:      f.CPUs,
				MemoryMiB: f.MemoryMiB,
				GPUs:      slices.Clone(f.GPUs),
				Shares:    partsOf(f.Shares),
			},
		)
	}
	return nodes
}

// Assignments lists who holds the simulated devices; a run that is measured
// still does, so that its last reading is its own.
func (c *Core) Assignments() []Assignment {
	var assignments []Assignment
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		if len(r.facts.GPUs)+len(r.facts.Shares) == 0 || r.from == 0 || r.phase < living ||
			r.phase > measuring {
			continue
		}
		if len(r.facts.GPUs) > 0 {
			assignments = append(
				assignments,
				Assignment{
					Job:     r.jobUID(),
					Attempt: key.Attempt,
					From:    r.from,
					Load:    r.facts.Load,
					UUIDs:   slices.Clone(r.facts.GPUs),
				},
			)
		}
		for _, part := range partsOf(r.facts.Shares) {
			assignments = append(
				assignments,
				Assignment{
					Job:     r.jobUID(),
					Attempt: key.Attempt,
					From:    r.from,
					Load:    r.facts.Load,
					UUIDs:   []string{part.UUID},
					Share:   part.Share,
				},
			)
		}
	}
	return assignments
}

// saved is the spool's content.
type saved struct {
	Version int             `json:"version"`
	Cluster string          `json:"cluster,omitempty"` // UUID in hexadecimal
	Boot    string          `json:"boot"`
	Book    json.RawMessage `json:"book"`
	Runs    []savedRun      `json:"runs,omitempty"`
	Seen    position        `json:"seen"` // of the controller's ledger
	// Energy is the book of the node's energy, GPUEnergy and GPUCounters what its
	// devices have counted.
	Energy      json.RawMessage  `json:"energy,omitempty"`
	GPUEnergy   int64            `json:"gpu_energy,omitempty"`
	GPUCounters map[string]int64 `json:"gpu_counters,omitempty"`
	Sole        *savedSole       `json:"sole,omitempty"`
}

type savedRun struct {
	Key    string       `json:"key"`
	Launch spec.Hash    `json:"launch"`
	Seq    uint64       `json:"seq,omitempty"`
	User   uint32       `json:"user,omitempty"`
	Held   bool         `json:"held,omitempty"`
	From   spec.Instant `json:"from"`
	Facts  facts        `json:"facts"`
	At     spec.Instant `json:"mem_at,omitempty"`
	RSS    int64        `json:"mem_rss,omitempty"`
	Peak   int64        `json:"mem_peak,omitempty"`
	Seen   bool         `json:"mem_seen,omitempty"`
	VM     int64        `json:"vm_peak,omitempty"`
	KHz    int64        `json:"cpu_khz,omitempty"`
	Whole  int64        `json:"mem_mib_s,omitempty"`
	Rest   int64        `json:"mem_rest,omitempty"`
	Signal uint64       `json:"signal,omitempty"`
	Env    []string     `json:"env,omitempty"` // of prolog and epilog
	Steps  spec.Usage   `json:"steps,omitzero"`
	Summed int64        `json:"summed,omitempty"`
	Extern *spec.Usage  `json:"extern,omitempty"`
	Next   int32        `json:"next_step,omitempty"`
}

const savedVersion = 1

// Save gives what a restart needs to go on counting.
func (c *Core) Save(boot string) ([]byte, error) {
	book, err := c.book.Marshal()
	if err != nil {
		return nil, fmt.Errorf("save GPU accounts: %w", err)
	}
	s := saved{Version: savedVersion, Boot: boot, Book: book, Seen: c.seen}
	if err := c.saveEnergy(&s); err != nil {
		return nil, err
	}
	s.Sole = c.sole.saveState()
	if c.cluster != ([16]byte{}) {
		s.Cluster = hex.EncodeToString(c.cluster[:])
	}
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		// A held part whose epilog runs is held again after a restart: nothing
		// else would remember that it is not clean.
		hold := r.phase == held || (r.phase == cleaning || r.phase == closing) && r.exit == nil
		if r.phase != living && !hold && (r.phase != cleaning || r.unborn) {
			continue
		}
		use := &r.memory
		s.Runs = append(
			s.Runs,
			savedRun{
				Key:    key.String(),
				Launch: r.launch,
				Seq:    r.seq,
				User:   r.user,
				Held:   hold,
				Env:    r.env,
				From:   r.from,
				Facts:  r.facts,
				At:     use.at,
				RSS:    use.rss,
				Peak:   use.peak,
				Seen:   use.seen,
				VM:     use.vm,
				KHz:    use.khz,
				Whole:  use.whole,
				Rest:   use.rest,
				Signal: r.signal,
				Steps:  r.steps,
				Summed: r.summed,
				Extern: r.extern,
				Next:   r.next,
			},
		)
	}
	return json.Marshal(s)
}

// Restore takes up what was saved. What another boot left is over; only the
// cluster the node belongs to stays true. An error means that figures of
// running jobs are lost, and nothing else.
func (c *Core) Restore(data []byte, boot string) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the agent's spool cannot be read: %w", err)
	}
	if s.Version != savedVersion {
		return fmt.Errorf(
			"the agent's spool is of version %d, this release reads %d",
			s.Version,
			savedVersion,
		)
	}
	if s.Cluster != "" {
		id, err := hex.DecodeString(s.Cluster)
		if err != nil || len(id) != len(c.cluster) {
			return fmt.Errorf("the agent's spool names no cluster: %q", s.Cluster)
		}
		copy(c.cluster[:], id)
	}
	c.seen = s.Seen
	if s.Boot != boot {
		return nil
	}
	book, err := attrib.Unmarshal(s.Book)
	if err != nil {
		return err
	}
	c.book = book
	if err := c.restoreEnergy(&s); err != nil {
		return err
	}
	if err := c.sole.restoreState(s.Sole); err != nil {
		return err
	}
	for i := range s.Runs {
		sr := &s.Runs[i]
		key, err := plan.ParseRunKey(sr.Key)
		if err != nil {
			return err
		}
		r := &run{
			key:    key,
			launch: sr.Launch,
			seq:    sr.Seq,
			user:   sr.User,
			phase:  living,
			from:   sr.From,
			facts:  sr.Facts,
			signal: sr.Signal,
			env:    sr.Env,
			steps:  sr.Steps,
			summed: sr.Summed,
			extern: sr.Extern,
			next:   sr.Next,
			memory: memoryUse{
				at:    sr.At,
				rss:   sr.RSS,
				peak:  sr.Peak,
				seen:  sr.Seen,
				vm:    sr.VM,
				khz:   sr.KHz,
				whole: sr.Whole,
				rest:  sr.Rest,
			},
		}
		if sr.Held {
			r.phase = held
		}
		c.runs[key] = r
	}
	return nil
}
