//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// served is a registry on loopback that counts who asks for layers.
type served struct {
	host   string
	blobs  atomic.Int64
	server *httptest.Server
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			s.blobs.Add(1)
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.server.Close)
	s.host = strings.TrimPrefix(s.server.URL, "http://")
	return s
}

// layer makes one of entries; a regular file holds its own name.
func layer(t *testing.T, entries ...tar.Header) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// push puts an image of layers under a name and gives its digest.
func (s *served) push(t *testing.T, as string, layers ...v1.Layer) string {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.Config(image, v1.Config{Env: []string{"PATH=/opt/bin", "IN=image"}, WorkingDir: "/work"})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(s.host + "/" + as)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// Layers are laid over each other: what a later one removes is not there.
func TestFetchUnpacksLayers(t *testing.T) {
	s := serve(t)
	digest := s.push(t, "team/app:1",
		layer(t, tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "bin/tool", Typeflag: tar.TypeReg, Mode: 0o4755},
			tar.Header{Name: "etc/gone", Typeflag: tar.TypeReg, Mode: 0o644}, tar.Header{Name: "closed/", Typeflag: tar.TypeDir, Mode: 0o500},
			tar.Header{Name: "closed/in", Typeflag: tar.TypeReg, Mode: 0o400}),
		layer(t, tar.Header{Name: "etc/.wh.gone", Typeflag: tar.TypeReg}, tar.Header{Name: "usr", Typeflag: tar.TypeSymlink, Linkname: "bin"},
			tar.Header{Name: "bin/same", Typeflag: tar.TypeLink, Linkname: "bin/tool"}, tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}))
	c, err := New(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(context.Background(), Request{Image: "docker://" + s.host + "/team/app:1", Holder: "1.1.batch"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != digest || got.WorkDir != "/work" || strings.Join(got.Env, " ") != "PATH=/opt/bin IN=image" {
		t.Errorf("%+v, want digest %s", got, digest)
	}
	for path, want := range map[string]fs.FileMode{"bin/tool": 0o755, "bin/same": 0o755, "closed": fs.ModeDir | 0o500, "closed/in": 0o400, "usr": fs.ModeSymlink | 0o777} {
		st, err := os.Lstat(filepath.Join(got.Root, path))
		if err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, st, err, want)
		}
	}
	for _, path := range []string{"etc/gone", "etc/.wh.gone", "dev/null"} {
		if _, err := os.Lstat(filepath.Join(got.Root, path)); err == nil {
			t.Errorf("%s is there", path)
		}
	}
}

// However many ask at once, the files come once; a name that means something else
// later is another image; and what a killed agent left half done is gone.
func TestFetchOncePerNode(t *testing.T) {
	s := serve(t)
	s.push(t, "app", layer(t, tar.Header{Name: "one", Typeflag: tar.TypeReg, Mode: 0o644}))
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, partial+"x", rootName), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := New(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := c.Fetch(context.Background(), Request{Image: "docker://" + s.host + "/app", Holder: "1.1.batch"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	layers := s.blobs.Load()
	if _, err := c.Fetch(context.Background(), Request{Image: "docker://" + s.host + "/app", Holder: "1.1.batch"}); err != nil {
		t.Fatal(err)
	}
	if now := s.blobs.Load(); now != layers || layers > 17 { // configurations may be asked for by each
		t.Errorf("%d blobs were asked for, then %d", layers, now)
	}
	folders, _ := filepath.Glob(filepath.Join(dir, "sha256-*"))
	if len(folders) != 1 {
		t.Errorf("folders: %v", folders)
	}
	s.push(t, "app", layer(t, tar.Header{Name: "two", Typeflag: tar.TypeReg, Mode: 0o644}))
	next, err := c.Fetch(context.Background(), Request{Image: "docker://" + s.host + "/app", Holder: "1.1.batch"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(next.Root, "two")); err != nil {
		t.Error(err)
	}
}

// An image cannot write outside of its own folder, whatever its entries say.
func TestImageStaysInItsFolder(t *testing.T) {
	s := serve(t)
	outside := t.TempDir()
	for what, entries := range map[string][]tar.Header{
		"symlink": {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "out/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"dots":    {{Name: "../../../../../../" + outside + "/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"link":    {{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../../../../../etc/shadow"}},
	} {
		s.push(t, what, layer(t, entries...))
		c, err := New(t.TempDir(), 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Fetch(context.Background(), Request{Image: "docker://" + s.host + "/" + what, Holder: "1.1.batch"})
		if what == "link" && err == nil {
			t.Errorf("%s: it was unpacked to %s", what, got.Root)
		}
		if _, err := os.Lstat(filepath.Join(outside, "evil")); err == nil {
			t.Errorf("%s: it has written outside", what)
		}
		if left, _ := filepath.Glob(filepath.Join(c.dir, partial+"*")); len(left) != 0 {
			t.Errorf("%s: left %v", what, left)
		}
	}
}

func TestFetchSaysWhatFailed(t *testing.T) {
	s := serve(t)
	c, err := New(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{"docker://" + s.host + "/nowhere:1": "nowhere", "docker://UPPER/x": "UPPER", "docker://127.0.0.1:9/xx": "refused"} {
		if _, err := c.Fetch(context.Background(), Request{Image: image, Holder: "1.1.batch"}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), image) {
			t.Errorf("%s: %v", image, err)
		}
	}
}
