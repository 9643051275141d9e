package spawn

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestThreadActsAsTheUserAndComesBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(open, 65534, 65533); err != nil {
		t.Fatal(err)
	}
	errc := make(chan error, 1)
	go func() { errc <- asNobody(dir, open) }()
	if err := <-errc; err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(open, "f"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Uid != 65534 || st.Gid != 65533 || st.Mode&0o777 != 0o640 {
		t.Errorf("file is %d:%d %o, want 65534:65533 640", st.Uid, st.Gid, st.Mode&0o777)
	}
	// The rest of the process kept its mask and directory.
	if m := unix.Umask(0o22); m != 0o22 {
		unix.Umask(m)
		t.Errorf("the process's umask became %o", m)
	}
}

func asNobody(dir, open string) error {
	th, err := NewThread()
	if err != nil {
		return err
	}
	err = th.As(&Cred{UID: 65534, GID: 65533}, 0o027, func() error {
		if err := os.WriteFile(filepath.Join(dir, "forbidden"), nil, 0o666); !errors.Is(err, fs.ErrPermission) {
			return errors.New("the user could write root's folder")
		}
		return os.WriteFile(filepath.Join(open, "f"), nil, 0o666)
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "root"), nil, 0o666)
}
