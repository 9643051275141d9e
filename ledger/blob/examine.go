package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"

	"github.com/musterhpc/muster/internal/durable"
)

// Report is what Examine has read.
type Report struct {
	Files int
	Blobs int   // whole, each record counted
	Bytes int64 // of these
}

// Examine reads a whole store without changing it: every record of every file, whose
// bytes are hashed again, and every index. It goes on behind each damage and hands it
// on, and it needs no open store, so that it also works where Open refuses. A lost or
// damaged index is no damage: Open makes it again from the file. It fails
// with os.ErrNotExist where there is no store.
func Examine(dir string, damage func(error)) (Report, error) {
	x := &examiner{dir: dir, damage: damage}
	ids, err := listFiles(dir)
	if err != nil {
		return x.rep, err
	}
	for i, id := range ids {
		x.examineFile(id, i == len(ids)-1)
	}
	return x.rep, nil
}

// examiner collects what can be read.
type examiner struct {
	dir    string
	damage func(error)
	rep    Report
}

const cureBlob = "the jobs that need it are reported by name when it is used; copy the file back from a backup"

func (x *examiner) noteDamage(path string, off int64, format string, args ...any) {
	x.damage(corruptError(path, off, cureBlob, format, args...))
}

// examineFile reads one file. What stands behind the last whole record of the newest one is
// what a crash left; the log brings it again.
func (x *examiner) examineFile(id uint32, newest bool) {
	path := blobPath(x.dir, id)
	data, err := os.ReadFile(path)
	if err != nil {
		x.damage(err)
		return
	}
	salt, err := checkHeader(path, id, data)
	switch {
	case errors.Is(err, errNoHeader) && newest:
		return
	case errors.Is(err, errNoHeader):
		x.noteDamage(path, 0, "the file has no header, and others follow")
		return
	case err != nil:
		x.damage(err)
		return
	}
	x.rep.Files++
	found, end := x.findRecords(path, data, salt)
	entries := readIndex(x.dir, id)
	if entries == nil {
		if end < int64(len(data)) && !newest {
			x.noteDamage(
				path,
				end,
				"%d bytes that are no record, and another file follows",
				int64(len(data))-end,
			)
		}
		return
	}
	for _, e := range entries {
		if found[int64(e.at.off)] != e.hash {
			x.noteDamage(
				path,
				int64(e.at.off),
				"the index has %s here, and no whole record of it is there",
				e.hash,
			)
		}
	}
}

// findRecords finds the records of a file by offset. Bytes between two records are
// damage; end is where those behind the last one begin.
func (x *examiner) findRecords(
	path string,
	b []byte,
	salt uint32,
) (found map[int64]Hash, end int64) {
	found = map[int64]Hash{}
	end = fileHeader
	for at := end; at < int64(len(b)); {
		hash, n, ok := readRecord(b[at:], salt)
		if !ok {
			at++
			continue
		}
		if at > end {
			x.noteDamage(path, end, "%d bytes that are no record", at-end)
		}
		data := b[at+recordHeader:][:n]
		if got := Sum(data); got != hash {
			x.noteDamage(path, at, "%s has the bytes of %s", hash, got)
		} else {
			found[at] = hash
			x.rep.Blobs++
			x.rep.Bytes += int64(n)
		}
		at += recordHeader + int64(n)
		end = at
	}
	return found, end
}

// errNoHeader tells a file whose header never reached the disk.
var errNoHeader = errors.New("the file has no header")

// checkHeader reads the header at the start of a file and gives its salt.
func checkHeader(path string, id uint32, data []byte) (salt uint32, err error) {
	data = data[:min(len(data), fileHeader)]
	le := binary.LittleEndian
	switch {
	case len(data) < fileHeader || bytes.Equal(data, make([]byte, fileHeader)):
		return 0, errNoHeader
	case string(data[:8]) == fileMagic && le.Uint32(data[8:]) > formatVersion:
		return 0, &durable.VersionError{
			Store: ErrNewerVersion,
			Where: path,
			Found: int(le.Uint32(data[8:])),
			Known: formatVersion,
			Cure:  "install the newer release",
		}
	case string(data[:8]) != fileMagic || durable.Checksum(data[:20]) != le.Uint32(data[20:]) ||
		le.Uint32(data[16:]) != id:
		return 0, corruptError(path, 0, cureFile, "the header does not match its checksum")
	}
	return le.Uint32(data[12:]), nil
}
