package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/durable"
)

// The chain makes a changed past visible. Checksums protect against disks; somebody who may
// write the files can make them anew. The value of the chain after a batch is
//
//	SHA-256( value before ‖ position ‖ first event ‖ last event ‖ batch )
//
// so it depends on every byte of the history up to there. It does not depend on segments, on
// compression or on when a batch was archived: all controllers of a group and all backups whose
// archives begin with the same batch have the same values. The file chain/links has a link, the
// value after a batch, for each 256 batches; chain/head has the newest one.
//
// Whoever can change the archive can also compute the chain again. Such a change is found by
// comparing with a value that was kept elsewhere; the other controllers and the backups have
// the same ones.

// batchesPerLink is how many batches lie between two links, so how exactly a change is located.
const batchesPerLink = 256

const (
	chainFolder = "chain"
	linksFile   = "links"
	headFile    = "head"
	chainWord   = "muster-archive-chain-1"
)

// Sum is a value of the chain.
type Sum [sha256.Size]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// Link is the chain after a batch.
type Link struct {
	Pos uint64 // of the batch
	Seq uint64 // its last event
	Sum Sum
}

// String is how a link is written to a file, a record and a command line.
func (l Link) String() string { return fmt.Sprintf("%d:%d:%s", l.Pos, l.Seq, l.Sum) }

// ParseLink reads what String has written.
func ParseLink(text string) (Link, error) {
	var link Link
	parts := strings.Split(strings.TrimSpace(text), ":")
	if len(parts) != 3 {
		return link, errBadLink(text)
	}
	if _, err := fmt.Sscanf(parts[0]+" "+parts[1], "%d %d", &link.Pos, &link.Seq); err != nil {
		return link, errBadLink(text)
	}
	sum, err := hex.DecodeString(parts[2])
	if err != nil || len(sum) != len(link.Sum) {
		return link, errBadLink(text)
	}
	copy(link.Sum[:], sum)
	if link.String() != strings.TrimSpace(text) {
		return link, errBadLink(text)
	}
	return link, nil
}

func errBadLink(text string) error {
	return fmt.Errorf("invalid link %q: expected BATCH:EVENT:SHA256", text)
}

// chainStart is the value before the first batch of an archive.
func chainStart(position, firstSeq uint64) Link {
	buffer := binary.LittleEndian.AppendUint64([]byte(chainWord), position)
	buffer = binary.LittleEndian.AppendUint64(buffer, firstSeq)
	return Link{Pos: position - 1, Seq: firstSeq - 1, Sum: sha256.Sum256(buffer)}
}

// extend returns the chain after one more batch.
func (l Link) extend(record Record) Link {
	h := sha256.New()
	var head [24]byte
	binary.LittleEndian.PutUint64(head[:], record.Pos)
	binary.LittleEndian.PutUint64(head[8:], record.FirstSeq)
	binary.LittleEndian.PutUint64(head[16:], record.LastSeq)
	h.Write(l.Sum[:])
	h.Write(head[:])
	h.Write(record.Batch)
	link := Link{Pos: record.Pos, Seq: record.LastSeq}
	h.Sum(link.Sum[:0])
	return link
}

// chainLine is a line of the file chain/links:
//
//	begin LINK       the chain's start value, before the first batch
//	link LINK        the chain after a batch whose position is a multiple of 256
//	dropped LINK     retention has removed everything up to this batch
//	snapshot POSITION:EVENT:SHA256   a snapshot with the hash of its file
type chainLine struct {
	word string
	link Link
}

const (
	wordBegin    = "begin"
	wordLink     = "link"
	wordDropped  = "dropped"
	wordSnapshot = "snapshot"
)

// readChainFile reads the lines of a chain, and the length of the whole ones. A file whose last
// line has no end was being written.
func readChainFile(dir string) (lines []chainLine, whole int64, err error) {
	path := filepath.Join(dir, chainFolder, linksFile)
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	in := bufio.NewReader(file)
	for {
		text, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return lines, whole, nil
		}
		if err != nil {
			return lines, whole, err
		}
		word, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		link, err := ParseLink(rest)
		known := word == wordBegin || word == wordLink || word == wordDropped || word == wordSnapshot
		if err != nil || !known {
			return lines, whole, corruptError(path, whole, cureChain, "invalid line %q", text)
		}
		lines = append(lines, chainLine{word, link})
		whole += int64(len(text))
	}
}

// readHead reads the newest link; zero where there is none yet.
func readHead(dir string) (Link, error) {
	path := filepath.Join(dir, chainFolder, headFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Link{}, nil
	}
	if err != nil {
		return Link{}, err
	}
	head, err := ParseLink(string(text))
	if err != nil {
		return Link{}, corruptError(path, 0, cureChain, "%v", err)
	}
	return head, nil
}

// chain extends the files of the chain behind the archive.
type chain struct {
	mu     sync.Mutex
	usable bool     // neither damaged nor closed
	path   string   // of chain/links
	file   *os.File // of chain/links, once there is something to write
	at     Link     // how far it is; Sum is zero before it begins
	head   Link     // what chain/head holds
	loose  bool     // lines were written since the last sync
	it     *Iterator
	stop   chan struct{} // closed when the archive is being closed
	halt   sync.Once
}

// openChain finds out where the chain continues. What it cannot read it leaves as it is, for
// VerifyChain to name.
func (a *Archive) openChain() error {
	lines, whole, err := readChainFile(a.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	head, err := readHead(a.dir)
	if err != nil {
		return err
	}
	a.chain.head = head
	for _, line := range lines {
		if line.word == wordBegin || line.word == wordLink {
			a.chain.at = line.link
		}
	}
	if len(lines) > 0 && head.Pos > a.chain.at.Pos {
		a.chain.at = head
	}
	a.chain.path = filepath.Join(a.dir, chainFolder, linksFile)
	if err := os.Truncate(a.chain.path, whole); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	a.chain.usable = true
	return nil
}

// keepChain links new batches from time to time.
func (a *Archive) keepChain() {
	defer a.wg.Done()
	tick := time.NewTicker(a.opts.ChainEvery)
	defer tick.Stop()
	failed := false
	for {
		err := a.linkUp(a.chain.stop, math.MaxInt)
		if err != nil && !errors.Is(err, ErrClosed) && !failed {
			a.opts.Logger.Warn(
				"the archive's hash chain cannot be continued; it is tried again",
				"error", err,
			)
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-a.chain.stop:
			return
		}
	}
}

// Chain brings the chain to the archive's end and returns its newest link; zero while the
// archive is empty.
func (a *Archive) Chain() (Link, error) {
	if err := a.linkUp(nil, math.MaxInt); err != nil {
		return Link{}, err
	}
	a.chain.mu.Lock()
	defer a.chain.mu.Unlock()
	return a.chain.head, nil
}

// linksAtEnd is how many batches are linked while an archive is closed. Usually it is what 10 s
// have brought; the first start of a release with a chain may leave more for the next one.
const linksAtEnd = 1 << 16

// linkUp extends the chain over what is durable, until it is told to stop or has linked enough.
func (a *Archive) linkUp(stop <-chan struct{}, most int) error {
	c := &a.chain
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.usable {
		return nil
	}
	if first, last := a.Bounds(); last == 0 || last <= c.at.Pos && first <= c.at.Pos+1 {
		return nil
	}
	// A link to what a power failure takes away again would be a false alarm.
	synced, err := a.Sync()
	if err != nil {
		return err
	}
	if err := a.beginChain(); err != nil {
		return err
	}
	for n := 0; c.at.Pos < synced && n < most; n++ {
		select {
		case <-stop:
			return c.putHead(a.dir)
		default:
		}
		record, err := c.it.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			c.it = nil
			return err
		}
		c.at = c.at.extend(record)
		if c.at.Pos%batchesPerLink != 0 {
			continue
		}
		if err := c.putLine(wordLink, c.at); err != nil {
			c.it = nil
			return err
		}
	}
	return c.putHead(a.dir)
}

// beginChain writes the start value where there is none, or where the archive has begun anew
// behind the chain's end, and prepares the iterator.
func (a *Archive) beginChain() error {
	c := &a.chain
	first, _ := a.Bounds()
	if c.at.Sum == (Sum{}) || first > c.at.Pos+1 {
		a.mu.RLock()
		start := chainStart(a.segs[0].first, a.segs[0].firstSeq)
		a.mu.RUnlock()
		if err := c.putLine(wordBegin, start); err != nil {
			return err
		}
		c.at = start
		c.it = nil
	}
	if c.it == nil || c.it.next != c.at.Pos+1 {
		c.it = a.ReadFrom(c.at.Pos + 1)
	}
	return nil
}

// putLine appends a line and makes it durable. The caller holds mu.
func (c *chain) putLine(word string, link Link) error {
	if c.file == nil {
		file, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		c.file = file
	}
	before, err := c.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.file, "%s %s\n", word, link)
	c.loose = true
	if err == nil && word != wordLink {
		err = c.syncLines()
	}
	if err != nil {
		return errors.Join(err, c.file.Truncate(before))
	}
	return nil
}

// syncLines makes the lines durable.
func (c *chain) syncLines() error {
	if !c.loose {
		return nil
	}
	if err := c.file.Sync(); err != nil {
		return err
	}
	c.loose = false
	return nil
}

// putHead replaces the head in one step. The links come first: a head without them would look
// like links that somebody has removed.
func (c *chain) putHead(dir string) error {
	if c.at == c.head {
		return nil
	}
	if err := c.syncLines(); err != nil {
		return err
	}
	path := filepath.Join(dir, chainFolder, headFile)
	if err := durable.WriteFile(path, []byte(c.at.String()+"\n"), 0o600); err != nil {
		return err
	}
	c.head = c.at
	return nil
}

// linkDropped notes that retention drops a segment, with the chain's value behind it, from which
// the rest is verified. It reports false where the chain has not come that far.
func (a *Archive) linkDropped(s *segment) (bool, error) {
	if err := a.linkUp(a.chain.stop, math.MaxInt); err != nil {
		return false, err
	}
	c := &a.chain
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.usable {
		return true, nil // a damaged chain must not fill the disk
	}
	if c.at.Pos < s.last {
		return false, nil
	}
	lines, _, err := readChainFile(a.dir)
	if err != nil {
		return false, err
	}
	var at Link
	for _, line := range lines {
		if line.word != wordSnapshot && line.link.Pos <= s.last {
			at = line.link
		}
	}
	for it := a.ReadFrom(at.Pos + 1); at.Pos < s.last; {
		record, err := it.Next()
		if err != nil {
			return false, err
		}
		at = at.extend(record)
	}
	return true, c.putLine(wordDropped, at)
}

// linkSnapshot notes a snapshot's hash.
func (a *Archive) linkSnapshot(position, seq uint64, path string) error {
	sum, err := hashFile(path)
	if err != nil {
		return err
	}
	c := &a.chain
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.usable {
		return nil
	}
	return c.putLine(wordSnapshot, Link{Pos: position, Seq: seq, Sum: sum})
}

func hashFile(path string) (sum Sum, err error) {
	file, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// closeChain links what has come since the last time.
func (a *Archive) closeChain() error {
	a.mu.RLock()
	usable := a.checkUsable() == nil
	a.mu.RUnlock()
	a.chain.halt.Do(func() { close(a.chain.stop) })
	if !usable {
		return a.chain.close()
	}
	return errors.Join(a.linkUp(nil, linksAtEnd), a.chain.close())
}

func (c *chain) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.usable = false
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	return err
}
