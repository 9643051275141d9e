package log_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// tailDisk returns a disk after a crash, with all of the log in one unsealed segment, and the segment's path and used length.
func tailDisk(t *testing.T) (*logtest.Disk, *history, string, int64) {
	t.Helper()
	disk := logtest.NewDisk(3)
	h := &history{next: 1, acked: map[log.Position]int{}}
	opts := simOptions(disk, &logtest.Machine{})
	opts.SegmentBytes, opts.SnapshotEvery = 1<<20, 1<<40
	l := mustOpen(t, opts)
	for range 200 {
		mustAppend(t, l, h)
	}
	disk.PowerCut()
	_ = l.Close(bg)
	disk.PowerOn()
	path := filesOf(disk, ".wal")[0]
	return disk, h, path, int64(len(bytes.TrimRight(disk.Content(path), "\x00")))
}

// TestLostSector zeroes whole sectors of acknowledged groups, as a disk does that drops a write it had confirmed. Zeros look
// like the end of the log, but later groups prove that it is not.
func TestLostSector(t *testing.T) {
	disk, _, path, used := tailDisk(t)
	for at := int64(0); at < used-10_000; at += 512 * 7 {
		broken := disk.Clone()
		broken.Overwrite(path, at, make([]byte, 512))
		_, err := log.Open(bg, simOptions(broken, &logtest.Machine{}))
		var ce *durable.CorruptError
		if !errors.As(err, &ce) || ce.File != path {
			t.Fatalf("sector at %d lost: %v", at, err)
		}
	}
}

// TestForgedGroup: what an interrupted write leaves may contain what a user wrote. A job script that looks like a group of
// entries must not make the log believe that acknowledged entries follow.
func TestForgedGroup(t *testing.T) {
	disk, h, path, used := tailDisk(t)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	entry := binary.AppendUvarint(nil, 100_000)
	entry = append(entry, 2, 0, 3, 'a', 'b', 'c', 4, 1, 2, 3, 4)
	entry = append(entry, 1, 0, 0, 0, 14, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff)
	group := binary.LittleEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(entry)))
	group = append(group, entry...)
	for len(group)%8 != 0 {
		group = append(group, 0)
	}
	script := append([]byte{3, 0, 0, 0, 9, 9, 9, 9}, group...)
	script = append(script, 3, 0, 0, 0)
	script = binary.LittleEndian.AppendUint32(script, crc32.Checksum(group, castagnoli))
	script = append(script, "the rest of the script\n"...)
	// The sector in which the interrupted group begins did not reach the disk; the one after it did.
	disk.Overwrite(path, (used/512+2)*512, script)
	m := &logtest.Machine{}
	l := mustOpen(t, simOptions(disk, m))
	if err := h.check(m); err != nil || len(m.Batches()) != 200 {
		t.Fatalf("%d batches: %v", len(m.Batches()), err)
	}
	if l.Stats().DroppedTail == 0 {
		t.Fatal("nothing was removed")
	}
	mustClose(t, l)
	if bytes.Contains(disk.Content(path), []byte("the rest of the script")) {
		t.Fatal("the remains are still in the file, where later groups would end in front of them")
	}
}
