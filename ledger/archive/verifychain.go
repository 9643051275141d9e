package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// ChainReport is what VerifyChain has compared.
type ChainReport struct {
	Report
	Begin   Link   // the start value, before the first batch of the chain
	Dropped Link   // where retention has cut the past; zero if it has not
	Head    Link   // the newest link
	Behind  uint64 // batches that are newer than the chain
	// Expected are the given links that were compared, Unknown those whose batch is not there.
	Expected, Unknown int
}

// ErrNoChain: the archive was written by a release without one, and no newer one has opened it.
var ErrNoChain = errors.New("the archive has no hash chain")

// VerifyChain reads an archive without changing it, also one that is being written, and hands
// on each place that differs from what the chain says was written. expected are links that were
// kept elsewhere.
func VerifyChain(dir string, expected []Link, damage func(error)) (ChainReport, error) {
	head, err := readHead(dir)
	if err != nil {
		damage(err)
	}
	// The head is read first: what follows it may have grown meanwhile.
	lines, whole, err := readChainFile(dir)
	absent := errors.Is(err, os.ErrNotExist)
	if head == (Link{}) && (absent || err == nil && len(lines) == 0) {
		return ChainReport{}, fmt.Errorf("%w: %s", ErrNoChain, filepath.Join(dir, chainFolder))
	}
	if err != nil && !absent {
		damage(err)
	}
	verifier := &chainVerifier{damage: damage, path: filepath.Join(dir, chainFolder, linksFile)}
	verifier.rep.Head = head
	verifier.readLines(lines, whole)
	verifier.expect(expected)
	decoder, err := zstd.NewReader(
		nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(256<<20),
	)
	if err != nil {
		return verifier.rep, err
	}
	defer decoder.Close()
	x := &examiner{
		a: &Archive{dir: dir, dec: decoder}, damage: verifier.noteDamage, visit: verifier.visit,
	}
	if err := x.examineSegments(); err != nil {
		return verifier.rep, err
	}
	verifier.finish(x.a.segDir())
	if err := x.examineSnapshots(); err != nil {
		return verifier.rep, err
	}
	verifier.verifySnapshots(x.a)
	verifier.rep.Report = x.rep
	return verifier.rep, nil
}

// chainVerifier computes the chain again.
type chainVerifier struct {
	damage    func(error)
	path      string
	rep       ChainReport
	links     map[uint64]Link
	starts    map[uint64]Link // values from which the chain may be computed: begin and dropped
	snapshots []Link
	kept      map[uint64][]Link // kept elsewhere, by position

	at      Link
	started bool
	broken  bool // what follows cannot be computed until the next link
	// span is where the first batch behind the last link lies.
	spanFile  string
	spanAt    int64
	spanFirst uint64
}

// readLines sorts the lines and checks that they follow each other: links have dense positions,
// so one that somebody took away is missed.
func (v *chainVerifier) readLines(lines []chainLine, size int64) {
	v.links = map[uint64]Link{}
	v.starts = map[uint64]Link{}
	var last Link
	for i, line := range lines {
		link := line.link
		switch line.word {
		case wordBegin:
			if v.rep.Begin != (Link{}) {
				v.damage(corruptError(v.path, 0, cureChain,
					"line %d: the archive was begun again behind batch %d, and what came before was not kept",
					i+1, last.Pos))
			} else {
				v.rep.Begin = link
			}
			v.starts[link.Pos] = link
			last = link
		case wordDropped:
			v.starts[link.Pos] = link
			v.rep.Dropped = link
		case wordSnapshot:
			v.snapshots = append(v.snapshots, link)
		case wordLink:
			want := last.Pos - last.Pos%batchesPerLink + batchesPerLink
			if link.Pos != want {
				v.damage(corruptError(v.path, 0, cureChain,
					"line %d is the link of batch %d, expected was that of batch %d: a line is missing or moved",
					i+1, link.Pos, want))
			}
			v.links[link.Pos] = link
			last = link
		}
	}
	head := v.rep.Head
	if v.rep.Begin == (Link{}) && (len(v.links) > 0 || head.Pos > 0) {
		// Without it, batches up to the first link could be changed unseen.
		v.damage(corruptError(v.path, 0, cureChain,
			"there is no line that says where the chain begins: it was taken away"))
	}
	if head.Pos >= last.Pos-last.Pos%batchesPerLink+batchesPerLink && head.Pos != last.Pos {
		v.damage(corruptError(v.path, size, cureChain,
			"the links end at batch %d, the head is that of batch %d: links are missing",
			last.Pos, head.Pos))
	}
	if have, ok := v.links[head.Pos]; ok && have != head {
		v.damage(corruptError(v.path, 0, cureChain,
			"the head of batch %d is another than its link", head.Pos))
	}
	if head.Pos > 0 {
		v.links[head.Pos] = head
	}
	if v.rep.Head.Pos < last.Pos {
		v.rep.Head = last
	}
}

func (v *chainVerifier) expect(links []Link) {
	v.kept = map[uint64][]Link{}
	for _, link := range links {
		v.kept[link.Pos] = append(v.kept[link.Pos], link)
	}
	v.rep.Unknown = len(links)
}

// noteDamage takes what reading finds: behind it the chain continues with the next link.
func (v *chainVerifier) noteDamage(err error) {
	v.broken = true
	v.damage(err)
}

// visit takes the next batch.
func (v *chainVerifier) visit(path string, off int64, record Record) {
	if !v.started {
		v.start(path, record)
	}
	if v.spanFile == "" {
		v.spanFile = path
		v.spanAt = off
		v.spanFirst = record.Pos
	}
	if start, ok := v.starts[record.Pos-1]; ok && v.at != start && v.broken {
		v.at = start
		v.broken = false
	}
	if record.Pos != v.at.Pos+1 {
		v.broken = true // the reader has said that batches are missing
	}
	v.at = v.at.extend(record)
	if v.broken {
		v.at.Pos = record.Pos
	}
	v.compareKept(path, off)
	link, ok := v.links[record.Pos]
	if !ok {
		return
	}
	if !v.broken && v.at.Sum != link.Sum {
		v.damage(corruptError(v.spanFile, v.spanAt, cureChain,
			"batches %d to %d are not those that were written: one of them was changed, replaced or moved",
			v.spanFirst, record.Pos))
	}
	v.at = link
	v.broken = false
	v.spanFile = ""
}

// start finds the value from which the first batch continues.
func (v *chainVerifier) start(path string, record Record) {
	v.started = true
	if start, ok := v.starts[record.Pos-1]; ok {
		v.at = start
		return
	}
	v.broken = true
	v.at = Link{Pos: record.Pos - 1, Seq: record.FirstSeq - 1}
	from := v.rep.Begin
	if v.rep.Dropped.Pos > from.Pos {
		from = v.rep.Dropped
	}
	if record.Pos > from.Pos+1 {
		v.damage(corruptError(path, 0, cureChain,
			"the archive begins with batch %d, the chain with batch %d: the beginning is missing",
			record.Pos, from.Pos+1))
	}
}

// compareKept compares with links that were kept elsewhere.
func (v *chainVerifier) compareKept(path string, off int64) {
	for _, link := range v.kept[v.at.Pos] {
		v.rep.Unknown--
		if v.broken {
			continue // the reason has been told
		}
		v.rep.Expected++
		if v.at.Sum != link.Sum {
			v.damage(corruptError(path, off, cureChain,
				"the past up to batch %d has the value %s, kept elsewhere was %s: a batch up to there was changed, and the chain was made to match",
				link.Pos, v.at.Sum, link.Sum))
		}
	}
}

// finish looks for an end that is missing.
func (v *chainVerifier) finish(dir string) {
	switch {
	case v.at.Pos < v.rep.Head.Pos:
		path, at := v.spanFile, v.spanAt
		if path == "" {
			path = dir
		}
		v.damage(corruptError(path, at, cureChain,
			"the archive ends with batch %d, the chain with batch %d: the end is missing",
			v.at.Pos, v.rep.Head.Pos))
	default:
		v.rep.Behind = v.at.Pos - v.rep.Head.Pos
	}
	for position, links := range v.kept {
		if position > v.at.Pos && position > v.rep.Head.Pos {
			v.damage(corruptError(dir, 0, cureChain,
				"the archive ends with batch %d, a link of batch %s was kept elsewhere: the end is missing",
				v.at.Pos, strconv.FormatUint(links[0].Pos, 10)))
		}
	}
}

// verifySnapshots compares the snapshots that are there with the hashes of their files.
func (v *chainVerifier) verifySnapshots(archive *Archive) {
	newest := map[string]Link{}
	for _, link := range v.snapshots {
		newest[archive.snapPath(link.Pos, link.Seq)] = link
	}
	for path, link := range newest {
		sum, err := hashFile(path)
		switch {
		case errors.Is(err, os.ErrNotExist): // retention has removed it
		case err != nil:
			v.damage(err)
		case sum != link.Sum:
			v.damage(corruptError(path, 0, cureSnapshot,
				"the snapshot is not the one that was written"))
		}
	}
}
