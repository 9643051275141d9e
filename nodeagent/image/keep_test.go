//go:build linux

package image

import (
	"archive/tar"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// fetch gets an image for a holder and makes it look as if it had been used then.
func fetch(t *testing.T, c *Cache, s *served, name, holder string, used time.Time) *Image {
	t.Helper()
	image := "docker://" + s.host + "/" + name
	got, err := c.Fetch(context.Background(), Request{Image: image, Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(filepath.Dir(got.Root), imageName), used, used); err != nil {
		t.Fatal(err)
	}
	return got
}

// pushFile serves an image with one file, whose size is the length of its name.
func pushFile(t *testing.T, s *served, as, file string) (digest string) {
	t.Helper()
	return s.push(t, as, layer(t, tar.Header{Name: file, Typeflag: tar.TypeReg, Mode: 0o644}))
}

// TestTrim: what was used least lately goes first, what somebody holds stays
// whatever it takes, and a use outlives the agent.
func TestTrim(t *testing.T) {
	s := serve(t)
	oldest := pushFile(t, s, "oldest", "0123456789")
	older := pushFile(t, s, "older", "012345678a")
	pushFile(t, s, "newest", "012345678b")
	dir := t.TempDir()
	c, err := New(dir, 25)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	held := fetch(t, c, s, "oldest", "1.1.batch", now.Add(-3*time.Hour))
	middle := fetch(t, c, s, "older", "2.1.batch", now.Add(-2*time.Hour))
	if c.IsFull() {
		t.Error("two images of 10 bytes fill 25")
	}
	last := fetch(t, c, s, "newest", "3.1.0", now.Add(-time.Hour))
	if !c.IsFull() {
		t.Error("three images of 10 bytes do not fill 25")
	}

	// All are held: nothing goes.
	done, err := c.Trim()
	if err != nil || len(done.Removed) != 0 || done.Size != 30 || done.Limit != 25 {
		t.Errorf("a trim with all held: %+v, %v", done, err)
	}

	// The agent begins again, and knows of all three.
	c, err = New(dir, 25)
	if err != nil {
		t.Fatal(err)
	}
	holders, err := c.Holders()
	if err != nil || !slices.Equal(holders, []string{"1.1.batch", "2.1.batch", "3.1.0"}) {
		t.Errorf("holders %v, %v", holders, err)
	}

	// Forgetting counts as a use: the newest is now the least lately used.
	if err := c.Forget([]string{"2.1.batch", "3.1.0", "9.9.batch"}); err != nil {
		t.Fatal(err)
	}
	past := now.Add(-30 * time.Minute)
	if err := os.Chtimes(filepath.Join(filepath.Dir(last.Root), imageName), past, past); err != nil {
		t.Fatal(err)
	}
	done, err = c.Trim()
	if err != nil || done.Freed != 10 || done.Size != 20 || len(done.Removed) != 1 {
		t.Errorf("a trim: %+v, %v", done, err)
	}
	for root, want := range map[string]bool{held.Root: true, middle.Root: true, last.Root: false} {
		if _, err := os.Stat(root); (err == nil) != want {
			t.Errorf("%s is there: %v, not %v", root, err == nil, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, partial+"*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}

	// One that was removed is fetched again.
	again := fetch(t, c, s, "newest", "4.1.batch", now)
	if _, err := os.Stat(filepath.Join(again.Root, "012345678b")); err != nil {
		t.Error(err)
	}
	done, err = c.Trim()
	if err != nil || !slices.Equal(done.Removed, []string{older}) {
		t.Errorf("a trim beside %s: %+v, %v, not %s", oldest, done, err, older)
	}
}

// TestTooLargeImage: one that alone takes more than all may is refused, and leaves
// nothing.
func TestTooLargeImage(t *testing.T) {
	s := serve(t)
	pushFile(t, s, "large", "0123456789")
	c, err := New(t.TempDir(), 9)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Fetch(context.Background(), Request{Image: "docker://" + s.host + "/large", Holder: "1.1.batch"})
	expect(t, err, ErrTooLarge.Error())
	if left, _ := filepath.Glob(filepath.Join(c.dir, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestPinnedDigest: an image that was pinned is fetched as it was, whatever its
// name means by now.
func TestPinnedDigest(t *testing.T) {
	s := serve(t)
	before := pushFile(t, s, "app:1", "before")
	pushFile(t, s, "app:1", "after")
	c, err := New(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	request := Request{Image: "docker://" + s.host + "/app:1", Digest: before, Holder: "1.2.batch"}
	got, err := c.Fetch(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != before || got.Meant != before {
		t.Errorf("digest %s, the name meant %s, not %s", got.Digest, got.Meant, before)
	}
	if _, err := os.Stat(filepath.Join(got.Root, "before")); err != nil {
		t.Error(err)
	}
}

// TestIndexDigest: where a name means an index of images for several kinds of
// machines, the index is what is pinned: each kind finds its own image by it.
func TestIndexDigest(t *testing.T) {
	s := serve(t)
	image, err := mutate.AppendLayers(empty.Image,
		layer(t, tar.Header{Name: "ours", Typeflag: tar.TypeReg, Mode: 0o644}))
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add:        image,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}},
	})
	ref, err := name.ParseReference(s.host + "/many:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, pinned := range []string{"", want.String()} {
		request := Request{Image: "docker://" + s.host + "/many:1", Digest: pinned, Holder: "1.1.batch"}
		got, err := c.Fetch(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		if got.Meant != want.String() || got.Digest == got.Meant {
			t.Errorf("pinned %q: the name meant %s, not %s", pinned, got.Meant, want)
		}
		if _, err := os.Stat(filepath.Join(got.Root, "ours")); err != nil {
			t.Error(err)
		}
	}
}
