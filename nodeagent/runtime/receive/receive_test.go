//go:build linux

package receive_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/runtime/receive"
	"golang.org/x/sys/unix"
)

func sent(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return append([]byte(text), sum[:]...)
}

// TestReceive: a file is there whole, with its mode and time, or not at all, and
// nothing is left of one that did not arrive.
func TestReceive(t *testing.T) {
	when := time.Unix(1_000_000, 5000)
	for name, tc := range map[string]struct {
		file  receive.File
		input []byte
		there bool // a file of that name is there before
		want  error
		left  string
	}{
		"new":            {receive.File{Size: 5, Mode: 0o750, Modified: when}, sent("words"), false, nil, "words"},
		"empty":          {receive.File{Mode: 0o640}, sent(""), false, nil, ""},
		"there already":  {receive.File{Size: 5, Mode: 0o600}, sent("words"), true, fs.ErrExist, "old"},
		"replaced":       {receive.File{Size: 5, Mode: 0o600, Force: true}, sent("words"), true, nil, "words"},
		"cut off":        {receive.File{Size: 50, Mode: 0o600, Force: true}, []byte("wor"), true, receive.ErrDamaged, "old"},
		"without a sum":  {receive.File{Size: 5, Mode: 0o600}, []byte("words"), false, receive.ErrDamaged, ""},
		"another sum":    {receive.File{Size: 5, Mode: 0o600}, append([]byte("Words"), sent("words")[5:]...), false, receive.ErrDamaged, ""},
		"not to be made": {receive.File{Path: "/proc/none/file", Size: 5}, sent("words"), false, fs.ErrNotExist, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := tc.file
			if f.Path == "" {
				f.Path = filepath.Join(dir, "file")
			}
			if tc.there {
				if err := os.WriteFile(f.Path, []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Receive(bytes.NewReader(tc.input)); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			data, _ := os.ReadFile(f.Path)
			if string(data) != tc.left {
				t.Errorf("it has %q, want %q", data, tc.left)
			}
			names, _ := filepath.Glob(filepath.Join(dir, ".*"))
			if len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
			if info, err := os.Stat(f.Path); tc.want == nil && (err != nil || info.Mode() != f.Mode || (!f.Modified.IsZero() && !info.ModTime().Equal(when))) {
				t.Errorf("%v (%v)", info, err)
			}
		})
	}
	full := receive.File{Path: filepath.Join(t.TempDir(), "file"), Size: 1 << 59, Mode: 0o600}
	if err := full.Receive(nil); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EFBIG) { // nothing is read for it
		t.Errorf("a file that is larger than the disk: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Dir(full.Path) + "/.*"); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	var said bytes.Buffer
	file := receive.File{Path: filepath.Join(t.TempDir(), "-x y"), Size: 5, Mode: 0o700, Force: true, Modified: when}
	if code := receive.Main(file.Args()[1:], bytes.NewReader(sent("words")), &said); code != 0 || said.Len() > 0 {
		t.Errorf("exit %d: %s", code, said.String())
	}
	if info, err := os.Stat(file.Path); err != nil || info.Mode() != 0o700 || !info.ModTime().Equal(when) {
		t.Errorf("%v (%v)", info, err)
	}
	if code := receive.Main(file.Args()[1:], bytes.NewReader(nil), &said); code != 1 || !bytes.Contains(said.Bytes(), []byte("sbcast: error: ")) {
		t.Errorf("exit %d: %s", code, said.String())
	}
}

// TestTold: who is told to end while the file comes leaves nothing of it.
func TestTold(t *testing.T) {
	dir := t.TempDir()
	f := receive.File{Path: filepath.Join(dir, "file"), Size: 100, Mode: 0o600}
	from, to := io.Pipe()
	defer func() { _ = to.Close() }()
	var said bytes.Buffer
	done := make(chan int, 1)
	go func() { done <- receive.Main(f.Args()[1:], from, &said) }()
	if _, err := to.Write([]byte("some")); err != nil { // it is there, and waits for the rest
		t.Fatal(err)
	}
	for {
		if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) == 1 {
			break
		}
		runtime.Gosched()
	}
	if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 1 || !strings.Contains(said.String(), "told to end") {
		t.Errorf("exit %d: %s", code, said.String())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}
