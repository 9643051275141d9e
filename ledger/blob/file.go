package blob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/internal/durable"
)

// A blob file begins with "MUSTBLOB", version u32, salt u32, number u32, CRC32C of these 20
// bytes u32. A record is: length u32, CRC32C started from the salt over length and hash and
// bytes u32, hash, bytes.
const (
	formatVersion = 1
	fileMagic     = "MUSTBLOB"
	fileHeader    = 24
	recordHeader  = 40
	indexMagic    = "MUSTBIDX"
	indexEntry    = 40
	maxBlob       = 64 << 20
)

// file is one blob file. Only the active one grows.
type file struct {
	id   uint32
	path string
	f    *os.File
	salt uint32
	size int64
	// sealed means that the file is complete and synced, and its index written.
	sealed  bool
	entries []entry // until then
}

// place is where a blob is.
type place struct {
	file uint32
	off  uint32 // of the record
	n    uint32 // bytes of the blob
}

type entry struct {
	hash Hash
	at   place
}

func blobPath(dir string, id uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%010d.blobs", id))
}

func indexPath(dir string, id uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%010d.index", id))
}

func recordSum(salt uint32, head, data []byte) uint32 {
	sum := durable.ExtendChecksum(salt, head[:4])
	sum = durable.ExtendChecksum(sum, head[8:recordHeader])
	return durable.ExtendChecksum(sum, data)
}

func appendRecord(buffer []byte, salt uint32, hash Hash, data []byte) []byte {
	start := len(buffer)
	buffer = binary.LittleEndian.AppendUint32(buffer, uint32(len(data)))
	buffer = append(buffer, 0, 0, 0, 0)
	buffer = append(buffer, hash[:]...)
	buffer = append(buffer, data...)
	binary.LittleEndian.PutUint32(buffer[start+4:], recordSum(salt, buffer[start:], data))
	return buffer
}

// readRecord returns the hash and length of the record at the start of b; n is the length of
// the blob.
func readRecord(b []byte, salt uint32) (hash Hash, n int, ok bool) {
	if len(b) < recordHeader {
		return hash, 0, false
	}
	size := binary.LittleEndian.Uint32(b)
	if size > maxBlob || int64(size) > int64(len(b)-recordHeader) {
		return hash, 0, false
	}
	data := b[recordHeader : recordHeader+size]
	if recordSum(salt, b, data) != binary.LittleEndian.Uint32(b[4:]) {
		return hash, 0, false
	}
	copy(hash[:], b[8:])
	return hash, int(size), true
}

func newFile(dir string, id, salt uint32) (*file, error) {
	path := blobPath(dir, id)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	buffer := binary.LittleEndian.AppendUint32([]byte(fileMagic), formatVersion)
	buffer = binary.LittleEndian.AppendUint32(buffer, salt)
	buffer = binary.LittleEndian.AppendUint32(buffer, id)
	buffer = binary.LittleEndian.AppendUint32(buffer, durable.Checksum(buffer))
	if _, err := f.WriteAt(buffer, 0); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return &file{id: id, path: path, f: f, salt: salt, size: fileHeader}, nil
}

const cureFile = "move it away: blobs that jobs still need are reported by name and come again from the archive or another controller"

// openFile opens a blob file and reads its header. It returns nil for one whose header never
// reached the disk.
func openFile(dir string, id uint32) (*file, error) {
	path := blobPath(dir, id)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	var b [fileHeader]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	salt, err := checkHeader(path, id, b[:n])
	if errors.Is(err, errNoHeader) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{id: id, path: path, f: f, salt: salt, size: st.Size()}, nil
}

// scanRecords finds the records of a file. Bytes between two records are damage and counted; bytes
// behind the last one are what a crash left, and end is where they begin. The salt keeps a
// blob's own bytes from passing for a record.
func (f *file) scanRecords() (found []entry, damaged, end int64, err error) {
	data := make([]byte, f.size)
	if n, err := f.f.ReadAt(data, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(data)) {
		return nil, 0, 0, err
	}
	at, end := int64(fileHeader), int64(fileHeader)
	for at < int64(len(data)) {
		if at+8 <= int64(len(data)) && binary.LittleEndian.Uint64(data[at:]) == 0 {
			at++ // the usual kind of hole, and no record begins like this
			continue
		}
		hash, n, ok := readRecord(data[at:], f.salt)
		if !ok {
			at++
			continue
		}
		damaged += at - end
		found = append(found, entry{hash, place{f.id, uint32(at), uint32(n)}})
		at += recordHeader + int64(n)
		end = at
	}
	return found, damaged, end, nil
}

// writeIndex makes a sealed file's index durable.
func writeIndex(dir string, id uint32, entries []entry) error {
	buffer := binary.LittleEndian.AppendUint32([]byte(indexMagic), formatVersion)
	buffer = binary.LittleEndian.AppendUint32(buffer, uint32(len(entries)))
	for _, e := range entries {
		buffer = append(buffer, e.hash[:]...)
		buffer = binary.LittleEndian.AppendUint32(buffer, e.at.off)
		buffer = binary.LittleEndian.AppendUint32(buffer, e.at.n)
	}
	buffer = binary.LittleEndian.AppendUint32(buffer, durable.Checksum(buffer))
	return durable.WriteFile(indexPath(dir, id), buffer, 0o600)
}

// readIndex returns the entries of a sealed file, nil when there is no usable index.
func readIndex(dir string, id uint32) []entry {
	data, err := os.ReadFile(indexPath(dir, id))
	le := binary.LittleEndian
	if err != nil || len(data) < 20 || string(data[:8]) != indexMagic ||
		le.Uint32(data[8:]) != formatVersion {
		return nil
	}
	n, body := int(le.Uint32(data[12:])), data[:len(data)-4]
	if durable.Checksum(body) != le.Uint32(data[len(data)-4:]) || len(body) != 16+n*indexEntry {
		return nil
	}
	entries := make([]entry, n)
	for i := range entries {
		e := body[16+i*indexEntry:]
		copy(entries[i].hash[:], e)
		entries[i].at = place{id, le.Uint32(e[32:]), le.Uint32(e[36:])}
	}
	return entries
}

// fileIDs lists the numbers of the blob files and removes unfinished ones of other kinds.
func fileIDs(dir string) ([]uint32, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), durable.TempSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return listFiles(dir)
}

// listFiles lists the numbers of the blob files, in order.
func listFiles(dir string) ([]uint32, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, e := range entries {
		var id uint32
		if _, err := fmt.Sscanf(e.Name(), "%010d.blobs", &id); err == nil &&
			strings.HasSuffix(e.Name(), ".blobs") {
			ids = append(ids, id)
		}
	}
	return ids, nil // names sort by number
}
