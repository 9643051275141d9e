//go:build linux && (amd64 || arm64)

package readas

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	user  = 65534
	other = 65533
)

// world is a folder that the user may enter.
func world(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "readas")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string, mode fs.FileMode, uid int) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRefused: the agent is root, and reads nothing for a user that is not a regular
// file of his which he may read himself.
func TestRefused(t *testing.T) {
	dir := world(t)
	own := write(t, filepath.Join(dir, "own"), "mine", 0o600, user)
	open := write(t, filepath.Join(dir, "open"), "of root", 0o644, 0)
	write(t, filepath.Join(dir, "secret"), "of root", 0o600, 0)
	write(t, filepath.Join(dir, "others"), "of another", 0o666, other)
	write(t, filepath.Join(dir, "unreadable"), "mine", 0o000, user)
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(closed, "own"), "mine, behind a closed door", 0o600, user)
	for name, target := range map[string]string{"link": own, "link2": "/etc/shadow", "link3": open} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(filepath.Join(dir, name), user, user); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dir, filepath.Join(dir, "folder")); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(fifo, user, user); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "secret"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"own":        nil,
		"folder/own": nil, // a home may be behind a link
		"open":       ErrOwner,
		"secret":     ErrOwner,
		"hard":       ErrOwner,
		"others":     ErrOwner,
		"unreadable": unix.EACCES,
		"closed/own": unix.EACCES,
		"link":       ErrKind,
		"link2":      ErrKind,
		"link3":      ErrKind,
		"fifo":       ErrKind,
		"":           ErrKind, // the folder
		"absent":     unix.ENOENT,
		"own/below":  unix.ENOTDIR,
	} {
		part, err := New().Read(t.Context(), Ask{Path: filepath.Join(dir, name), UID: user, GID: user, From: -1})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if (want == nil) != (string(part.Data) == "mine") {
			t.Errorf("%s gives %q", name, part.Data)
		}
	}
	if _, err := New().Read(t.Context(), Ask{Path: "/dev/zero", UID: user, GID: user}); !errors.Is(err, ErrKind) {
		t.Errorf("/dev/zero: %v", err)
	}
	if _, err := New().Read(t.Context(), Ask{Path: "own", UID: user, GID: user}); err == nil {
		t.Error("a relative path is read")
	}
	// The process is root as before.
	if _, err := os.ReadFile(filepath.Join(dir, "secret")); err != nil {
		t.Error(err)
	}
}

// TestParts: the last bytes, those from a place on, and never more than the bound.
func TestParts(t *testing.T) {
	dir := world(t)
	text := strings.Repeat("0123456789", 20_000)
	path := write(t, filepath.Join(dir, "f"), text, 0o600, user)
	for _, c := range []struct {
		from       int64
		most       int
		wantFrom   int64
		wantLength int
	}{
		{-1, 10, 199_990, 10},
		{-1, 0, 200_000 - MaxBytes, MaxBytes},
		{0, 1 << 30, 0, MaxBytes},
		{199_995, 100, 199_995, 5},
		{200_000, 100, 200_000, 0},
		{300_000, 100, 300_000, 0},
	} {
		part, err := New().Read(t.Context(), Ask{Path: path, UID: user, GID: user, From: c.from, Most: c.most})
		if err != nil {
			t.Fatal(err)
		}
		if part.From != c.wantFrom || len(part.Data) != c.wantLength || part.Size != 200_000 {
			t.Errorf("%+v: %d bytes from %d of %d", c, len(part.Data), part.From, part.Size)
		}
		if len(part.Data) > 0 && string(part.Data) != text[part.From:part.From+int64(len(part.Data))] {
			t.Errorf("%+v: other bytes", c)
		}
	}
}
