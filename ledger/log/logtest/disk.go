package logtest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
)

// ErrPower is what every operation returns after the power is gone, but those that read: raft
// panics where it cannot read what it has committed, and that is no business of a process that
// is gone.
var ErrPower = errors.New("the simulated machine has no power")

const sector = 512

// Disk is a simulated disk that promises no more than POSIX does: bytes survive a power cut
// only if the file was synced after they were written, a name only if its folder was. What was
// not synced survives in part, sector by sector, as chance has it. A Disk can also fill up,
// fail to sync, and flip bits.
type Disk struct {
	mu       sync.Mutex
	rng      *rand.Rand
	boot     int // files opened before the last power cut are dead
	off      bool
	live     map[string]*inode
	durable  map[string]*inode
	gone     map[string]*inode // what was live at the last power cut
	locks    map[string]bool
	capacity uint64
	fuse     int // operations until the power goes, when positive
	// SyncError, when set, is asked before each sync of a file.
	SyncError func(path string) error
}

// inode is a file's content: what is on the platter, and the whole that processes see.
type inode struct {
	data    []byte
	platter []byte
	dirty   map[int64]bool // sectors written since the last sync
}

// NewDisk returns an empty disk whose chances come from seed.
func NewDisk(seed uint64) *Disk {
	return &Disk{
		rng:      rand.New(rand.NewPCG(seed, 1)),
		live:     map[string]*inode{},
		durable:  map[string]*inode{},
		locks:    map[string]bool{},
		capacity: 1 << 40,
	}
}

// SetCapacity sets the size of the disk in bytes.
func (d *Disk) SetCapacity(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = n
}

// Used is the sum of all files' sizes.
func (d *Disk) Used() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.usedBytes()
}

func (d *Disk) usedBytes() uint64 {
	var n uint64
	for _, f := range d.live {
		n += uint64(len(f.data))
	}
	return n
}

// CutAfter makes the power go after n more operations that change something.
func (d *Disk) CutAfter(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fuse = n
}

// burnOperation counts an operation; false means that the power goes with it. The caller holds mu.
func (d *Disk) burnOperation() bool {
	if d.fuse > 0 {
		d.fuse--
		if d.fuse == 0 {
			d.cut()
			return false
		}
	}
	return true
}

// PowerCut ends everything under way: each unsynced sector and each unsynced change of a folder
// is kept or lost by chance. Operations fail with ErrPower until PowerOn.
func (d *Disk) PowerCut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut()
}

func (d *Disk) cut() {
	d.fuse = 0
	d.boot++
	d.off = true
	names := map[string]bool{}
	for n := range d.live {
		names[n] = true
	}
	for n := range d.durable {
		names[n] = true
	}
	after := map[string]*inode{}
	for _, name := range sortedKeys(names) {
		f := d.durable[name]
		if l := d.live[name]; l != f && d.rng.IntN(2) == 0 {
			f = l
		}
		if f != nil {
			after[name] = f
		}
	}
	// What is left is new: a process that is dead and does not know it yet may
	// read the files as they were, to the end.
	left := map[*inode]*inode{}
	for _, name := range sortedKeys(after) {
		f := after[name]
		if left[f] == nil {
			left[f] = &inode{data: f.data, platter: slices.Clone(f.platter), dirty: f.dirty}
			left[f].loseUnsynced(d.rng)
		}
		after[name] = left[f]
	}
	d.gone = d.live
	d.live, d.durable = after, map[string]*inode{}
	for n, f := range after {
		d.durable[n] = f
	}
	d.locks = map[string]bool{}
}

// loseUnsynced decides the fate of each unsynced sector.
func (f *inode) loseUnsynced(rng *rand.Rand) {
	dirty := make([]int64, 0, len(f.dirty))
	for s := range f.dirty {
		dirty = append(dirty, s)
	}
	sort.Slice(dirty, func(i, j int) bool { return dirty[i] < dirty[j] })
	luck := rng.IntN(4) // sometimes all, sometimes nothing, mostly some
	for _, s := range dirty {
		if luck == 0 || luck > 1 && rng.IntN(2) == 0 {
			f.flushSector(s)
		}
	}
	f.data = append([]byte{}, f.platter...)
	f.dirty = map[int64]bool{}
}

func (f *inode) flushSector(s int64) {
	from, to := s*sector, min((s+1)*sector, int64(len(f.data)))
	if from >= to {
		return
	}
	if int64(len(f.platter)) < to {
		f.platter = append(f.platter, make([]byte, to-int64(len(f.platter)))...)
	}
	copy(f.platter[from:to], f.data[from:to])
}

// PowerOn lets a new process use what is left.
func (d *Disk) PowerOn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = false
}

// Files lists all files, sorted.
func (d *Disk) Files() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sortedKeys(d.live)
}

// Content returns a copy of a file.
func (d *Disk) Content(path string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.live[path]; f != nil {
		return append([]byte{}, f.data...)
	}
	return nil
}

// Flip inverts one bit of a file, on the platter too.
func (d *Disk) Flip(path string, bit int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.live[path]
	f.data[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(f.platter)) {
		f.platter[bit/8] ^= 1 << (bit % 8)
	}
}

// Overwrite replaces bytes of a file, on the platter too.
func (d *Disk) Overwrite(path string, off int64, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.live[path]
	copy(f.data[off:], data)
	if off < int64(len(f.platter)) {
		copy(f.platter[off:], data)
	}
}

// Clone returns an independent copy of the disk in its present state.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	disk := NewDisk(d.rng.Uint64())
	for name, f := range d.live {
		c := &inode{
			data:    append([]byte{}, f.data...),
			platter: append([]byte{}, f.data...),
			dirty:   map[int64]bool{},
		}
		disk.live[name], disk.durable[name] = c, c
	}
	return disk
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
