package archive_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/archive"
)

// written makes an archive of a history and returns its newest link.
func written(t testing.TB, dir string, hs []rec, segBytes int64) archive.Link {
	t.Helper()
	a := open(t, dir, segBytes)
	put(t, a, 1, hs)
	sealedAll(a)
	head, err := a.Chain()
	if err != nil {
		t.Fatal(err)
	}
	closed(t, a)
	return head
}

// verified returns what VerifyChain finds.
func verified(t testing.TB, dir string, expected ...archive.Link) (archive.ChainReport, []error) {
	t.Helper()
	var found []error
	rep, err := archive.VerifyChain(dir, expected, func(err error) { found = append(found, err) })
	if err != nil {
		t.Fatal(err)
	}
	return rep, found
}

// TestChainIsTheSameEverywhere: the value depends on the history alone, not on segments, on
// restarts or on how often links were written.
func TestChainIsTheSameEverywhere(t *testing.T) {
	hs := history(300, 3)
	want := written(t, t.TempDir(), hs, 1<<20)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "a")
		if err != nil {
			rt.Fatal(err)
		}
		segBytes := int64(rapid.SampledFrom([]int{20_000, 1 << 20}).Draw(rt, "segment"))
		for done := 0; done < len(hs); {
			a, err := archive.Open(
				dir,
				archive.Options{SegmentBytes: segBytes, ChainEvery: 10 * time.Millisecond},
			)
			if err != nil {
				rt.Fatal(err)
			}
			n := min(rapid.IntRange(50, 300).Draw(rt, "run"), len(hs)-done)
			again := rapid.IntRange(0, done).Draw(rt, "again")
			put(t, a, done-again+1, hs[done-again:done+n])
			done += n
			if rapid.Bool().Draw(rt, "wait") {
				if _, err := a.Chain(); err != nil {
					rt.Fatal(err)
				}
			}
			closed(t, a)
			if rep, found := verified(t, dir); len(found) > 0 || rep.Behind > 0 {
				rt.Fatalf("behind %d, found %v", rep.Behind, found)
			}
		}
		rep, found := verified(t, dir, want)
		if len(found) > 0 || rep.Head != want || rep.Expected != 1 {
			rt.Fatalf("%+v, want the head %v; found %v", rep, want, found)
		}
	})
}

// TestChainFindsAChangedPast plants changes as somebody would who knows the formats: each file
// is whole and each checksum right.
func TestChainFindsAChangedPast(t *testing.T) {
	const segBytes = 40_000
	hs := history(1500, 4)
	src := t.TempDir()
	head := written(t, src, hs, segBytes)
	if _, found := verified(t, src, head); len(found) > 0 {
		t.Fatalf("found without a change: %v", found)
	}
	forge := func(change func(hs []rec) []rec) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			forged := t.TempDir()
			written(t, forged, change(slices.Clone(hs)), segBytes)
			replaceFolder(t, filepath.Join(dir, "segments"), filepath.Join(forged, "segments"))
		}
	}
	segment := func(pick func([]string) string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "segments", "*"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(pick(files)); err != nil {
				t.Fatal(err)
			}
		}
	}
	links := func(change func([]string) []string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, "chain", "links")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := change(strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n"))
			if err := os.WriteFile(path, []byte(strings.Join(lines, "")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	changes := map[string]struct {
		plant func(t *testing.T, dir string)
		says  string
	}{
		"a batch is changed": {forge(func(hs []rec) []rec {
			hs[700].batch = append(slices.Clone(hs[700].batch), 'x')
			return hs
		}), "batches 513 to 768 are not those that were written"},
		"the newest batch is changed": {forge(func(hs []rec) []rec {
			hs[1499].batch = append(slices.Clone(hs[1499].batch), 'x')
			return hs
		}), "batches 1281 to 1500 are not those that were written"},
		"the first batch is changed": {forge(func(hs []rec) []rec {
			hs[0].batch = append(slices.Clone(hs[0].batch), 'x')
			return hs
		}), "batches 1 to 256 are not those that were written"},
		"two batches are exchanged": {forge(func(hs []rec) []rec {
			hs[300].batch, hs[301].batch = hs[301].batch, hs[300].batch
			return hs
		}), "batches 257 to 512 are not those that were written"},
		"a batch is taken away": {forge(func(hs []rec) []rec {
			hs[900].batch = nil
			return hs
		}), "batches 769 to 1024 are not those that were written"},
		"the end is cut off": {forge(func(hs []rec) []rec {
			return hs[:1400]
		}), "the archive ends with batch 1400, the chain with batch 1500: the end is missing"},
		"the oldest file is missing": {segment(func(files []string) string {
			return files[0]
		}), "the beginning is missing"},
		"a file is missing": {segment(func(files []string) string {
			return files[2]
		}), "follows batch"},
		"the newest file is missing": {segment(func(files []string) string {
			return files[len(files)-1]
		}), "the end is missing"},
		"a link is taken away": {links(func(lines []string) []string {
			return slices.Delete(lines, 2, 3)
		}), "line 3 is the link of batch 768, expected was that of batch 512"},
		"the beginning of the chain is taken away": {func(t *testing.T, dir string) {
			forge(func(hs []rec) []rec {
				hs[0].batch = append(slices.Clone(hs[0].batch), 'x')
				return hs
			})(t, dir)
			links(func(lines []string) []string { return lines[1:] })(t, dir)
		}, "no line that says where the chain begins"},
		"all links are taken away": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "chain", "links")); err != nil {
				t.Fatal(err)
			}
		}, "no line that says where the chain begins"},
		"two links are exchanged": {links(func(lines []string) []string {
			lines[2], lines[3] = lines[3], lines[2]
			return lines
		}), "a line is missing or moved"},
		"the last links are cut off": {links(func(lines []string) []string {
			return lines[:len(lines)-1]
		}), "links are missing"},
		"a link is changed": {links(func(lines []string) []string {
			at := len(lines[2]) - 2
			lines[2] = lines[2][:at] + string("01"[lines[2][at]&1^1]) + "\n"
			return lines
		}), "batches 257 to 512 are not those that were written"},
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		change := changes[name]
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
				t.Fatal(err)
			}
			change.plant(t, dir)
			_, found := verified(t, dir)
			text := fmt.Sprint(found)
			if !strings.Contains(text, change.says) || !strings.Contains(text, dir) {
				t.Errorf("found %v, want %q", found, change.says)
			}
			for _, err := range found {
				if !errors.Is(err, archive.ErrCorrupt) {
					t.Errorf("%v does not name a file and an offset", err)
				}
			}
		})
	}
}

// TestChainThatWasMadeAnew: who computes the chain again after a change is found by a link that
// was kept elsewhere.
func TestChainThatWasMadeAnew(t *testing.T) {
	hs := history(600, 5)
	kept := written(t, t.TempDir(), hs[:500], 1<<20)
	hs[250].batch = append(slices.Clone(hs[250].batch), 'x')
	dir := t.TempDir()
	written(t, dir, hs, 1<<20)
	if _, found := verified(t, dir); len(found) > 0 {
		t.Fatalf("the forgery is not whole: %v", found)
	}
	rep, found := verified(t, dir, kept)
	if len(found) != 1 || rep.Expected != 1 || !strings.Contains(found[0].Error(), "the past up to batch 500") {
		t.Errorf("%d compared, found %v", rep.Expected, found)
	}
	dir = t.TempDir()
	written(t, dir, hs[:400], 1<<20)
	_, found = verified(t, dir, kept)
	if len(found) != 1 || !strings.Contains(found[0].Error(), "ends with batch 400, a link of batch 500") {
		t.Errorf("a shorter past with a chain of its own: found %v", found)
	}
}

// TestChainAndRetention: what retention drops is noted with the chain's value, from which the
// rest is verified; somebody who removes more is found.
func TestChainAndRetention(t *testing.T) {
	hs := history(1200, 6)
	dir := t.TempDir()
	a := open(t, dir, 20_000)
	put(t, a, 1, hs)
	sealedAll(a)
	if err := a.PutSnapshot(600, hs[599].last, strings.NewReader("state")); err != nil {
		t.Fatal(err)
	}
	head, err := a.Chain()
	if err != nil {
		t.Fatal(err)
	}
	dropped, err := a.Retain(hs[1199].last, time.Now().Add(time.Hour))
	if err != nil || dropped == 0 {
		t.Fatalf("dropped %d segments: %v", dropped, err)
	}
	first, _ := a.Bounds()
	closed(t, a)
	rep, found := verified(t, dir, head)
	if len(found) > 0 || rep.Dropped.Pos != first-1 || rep.Expected != 1 {
		t.Fatalf("%+v, the first batch is %d; found %v", rep, first, found)
	}

	// A changed snapshot, with checksums of its own.
	snaps, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.snap"))
	if err != nil || len(snaps) != 1 {
		t.Fatalf("snapshots: %v %v", snaps, err)
	}
	other := t.TempDir()
	b := open(t, other, 20_000)
	if err := b.PutSnapshot(600, hs[599].last, strings.NewReader("other")); err != nil {
		t.Fatal(err)
	}
	closed(t, b)
	replaceFolder(t, filepath.Join(dir, "snapshots"), filepath.Join(other, "snapshots"))
	if _, found := verified(t, dir); len(found) != 1 || !strings.Contains(found[0].Error(), "not the one that was written") {
		t.Errorf("a changed snapshot: found %v", found)
	}

	segs, err := filepath.Glob(filepath.Join(dir, "segments", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segs[0]); err != nil {
		t.Fatal(err)
	}
	if _, found := verified(t, dir); !strings.Contains(fmt.Sprint(found), "the beginning is missing") {
		t.Errorf("a segment that retention had kept is gone: found %v", found)
	}
}

// TestChainWhileWriting: an archive that is being written, and sealed, is never called changed.
func TestChainWhileWriting(t *testing.T) {
	dir := t.TempDir()
	a, err := archive.Open(
		dir,
		archive.Options{SegmentBytes: 20_000, ChainEvery: 10 * time.Millisecond},
	)
	if err != nil {
		t.Fatal(err)
	}
	hs := history(1000, 7)
	put(t, a, 1, hs[:1])
	if _, err := a.Chain(); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for i, r := range hs[1:] {
			if err := a.Append(uint64(i+2), r.first, r.last, r.batch); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for done := false; !done; {
		select {
		case <-wrote:
			done = true
		default:
		}
		if _, found := verified(t, dir); len(found) > 0 {
			t.Fatalf("found %v", found)
		}
	}
	closed(t, a)
}

func TestNoChain(t *testing.T) {
	dir := t.TempDir()
	hs := history(300, 8)
	want := written(t, dir, hs, 3000)
	if err := os.RemoveAll(filepath.Join(dir, "chain")); err != nil {
		t.Fatal(err)
	}
	_, err := archive.VerifyChain(dir, nil, func(err error) { t.Error(err) })
	if !errors.Is(err, archive.ErrNoChain) {
		t.Errorf("without a chain: %v", err)
	}
	a := open(t, dir, 3000) // as the first start of a release that has chains
	closed(t, a)
	if rep, found := verified(t, dir); len(found) > 0 || rep.Head != want {
		t.Errorf("made afterwards: %+v, found %v", rep, found)
	}
	// A line that a crash has left unfinished is cut off.
	path := filepath.Join(dir, "chain", "links")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("link 51"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, dir, 3000)
	put(t, a, 301, []rec{{hs[299].last + 1, hs[299].last + 1, []byte("more")}})
	closed(t, a)
	if rep, found := verified(t, dir); len(found) > 0 || rep.Head.Pos != 301 {
		t.Errorf("behind a torn line: %+v, found %v", rep, found)
	}
}

func replaceFolder(t *testing.T, dir, by string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(by)); err != nil {
		t.Fatal(err)
	}
}
