package embedded

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const fetchDir = "../../deploy/engine"

// TestPinnedVersion holds the two places that name the engine's version together.
func TestPinnedVersion(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(fetchDir, "checksums"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		if f := strings.Fields(line); len(f) != 6 || f[2] != EngineVersion {
			t.Errorf("checksums: %q does not pin version %s", line, EngineVersion)
		}
	}
	if lines == 0 {
		t.Error("checksums pins nothing")
	}
}

// TestFindLibrary asks the same environment the same question as fetch.sh --path.
func TestFindLibrary(t *testing.T) {
	cache := t.TempDir()
	for name, value := range map[string]string{"MUSTER_LIBCHDB": "", "MUSTER_CACHE": cache, "XDG_CACHE_HOME": "", "HOME": cache} {
		t.Setenv(name, value)
	}
	if got, err := FindLibrary(); err == nil && strings.HasPrefix(got, cache) || err != nil && !errors.Is(err, ErrNoLibrary) {
		t.Errorf("an empty cache gave %q, %v", got, err)
	}
	out, err := exec.Command(filepath.Join(fetchDir, "fetch.sh"), "--path").Output()
	if err != nil {
		t.Skipf("fetch.sh knows no package for this machine: %v", err)
	}
	want := strings.TrimSpace(string(out))
	if err := os.MkdirAll(filepath.Dir(want), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(want, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := FindLibrary(); err != nil || got != want {
		t.Errorf("found %q, %v; fetch.sh says %q", got, err, want)
	}
	t.Setenv("MUSTER_LIBCHDB", "/no/such/libchdb.so")
	if _, err := FindLibrary(); err == nil {
		t.Error("a MUSTER_LIBCHDB that is not there was taken")
	}
}

// fetcher is a copy of fetch.sh that pins a small package of our own.
type fetcher struct {
	t       *testing.T
	dir     string
	tarball string
}

func newFetcher(t *testing.T) *fetcher {
	t.Helper()
	f := &fetcher{t: t, dir: t.TempDir()}
	library := bytes.Repeat([]byte("engine"), 1000)
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	for name, data := range map[string][]byte{"package/package.json": []byte("{}"), "package/libchdb.so": library} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	f.tarball = filepath.Join(f.dir, "package.tgz")
	f.write("package.tgz", packed.String(), 0o644)
	script, err := os.ReadFile(filepath.Join(fetchDir, "fetch.sh"))
	if err != nil {
		t.Fatal(err)
	}
	f.write("fetch.sh", string(script), 0o755)
	f.write("checksums", fmt.Sprintf("%s @x/lib 1.2.3 %d %x %x\n", f.machine(), len(library), sha512.Sum512(packed.Bytes()), sha256.Sum256(library)), 0o644)
	return f
}

func (f *fetcher) machine() string {
	out, err := exec.Command("uname", "-m").Output()
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Replace(strings.TrimSpace(string(out)), "arm64", "aarch64", 1)
}

func (f *fetcher) write(name, text string, mode os.FileMode) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

// npm puts a stand-in for npm on the path of the next runs. It does what the real one does for `npm pack`: leave a
// tarball in its working folder.
func (f *fetcher) npm(script string) { f.write("bin/npm", "#!/bin/sh\n"+script+"\n", 0o755) }

// curl puts a stand-in for curl on the path: it is asked for the package when there is no npm.
func (f *fetcher) curl(script string) { f.write("bin/curl", "#!/bin/sh\n"+script+"\n", 0o755) }

// run runs the script with nothing in its environment but PATH (which has an npm or curl only if those were called) and env.
func (f *fetcher) run(env ...string) (stdout, stderr string, status int) {
	f.t.Helper()
	tools := filepath.Join(f.dir, "tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		f.t.Fatal(err)
	}
	for _, tool := range []string{"sh", "dirname", "uname", "grep", "sed", "tr", "wc", "cut", "mkdir", "mktemp", "rm", "mv", "chmod", "tar", "gzip", "sha256sum", "sha512sum", "sleep", "tail", "cat", "cp"} {
		if path, err := exec.LookPath(tool); err == nil {
			_ = os.Symlink(path, filepath.Join(tools, tool)) // there from an earlier run
		}
	}
	cmd := exec.Command("/bin/sh", filepath.Join(f.dir, "fetch.sh"))
	cmd.Env = append([]string{"PATH=" + filepath.Join(f.dir, "bin") + ":" + tools}, env...)
	cmd.Dir = f.dir
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestFetch(t *testing.T) {
	f := newFetcher(t)
	cache := "MUSTER_CACHE=" + filepath.Join(f.dir, "cache")
	want := filepath.Join(f.dir, "cache/engine/1.2.3/libchdb.so")
	fails := func(name, reason string, env ...string) {
		t.Helper()
		out, errs, status := f.run(env...)
		if status != 1 || out != "" || !strings.Contains(errs, reason) || !strings.Contains(errs, "Ways out") || !strings.Contains(errs, "MUSTER_CLICKHOUSE_DSN") {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want 1 and %q", name, status, out, errs, reason)
		}
		if left, _ := filepath.Glob(filepath.Join(f.dir, "cache/engine/1.2.3/*")); len(left) != 0 {
			t.Errorf("%s: left behind %v", name, left)
		}
	}
	works := func(name, path string, env ...string) {
		t.Helper()
		out, errs, status := f.run(env...)
		if status != 0 || out != path {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want %q", name, status, out, errs, path)
		}
	}
	fails("no npm, no curl", "neither npm nor curl is installed", cache)
	f.curl("echo 'curl: (7) no route' >&2; exit 7")
	fails("no npm, no network", "no route", cache)
	f.curl(`[ "$1 $2 $3 $4 $6" = "-fsSL --retry 3 -o https://registry.npmjs.org/@x/lib/-/lib-1.2.3.tgz" ] && cp package.tgz "$5"`)
	works("curl", want+"\n", cache)
	if err := os.Remove(want); err != nil {
		t.Fatal(err)
	}
	f.npm("echo 'npm error network is down' >&2; exit 1")
	fails("no network", "network is down", cache)
	f.npm("echo nothing")
	fails("npm lies", "left no x-lib-1.2.3.tgz", cache)
	f.npm("echo garbage > x-lib-1.2.3.tgz")
	fails("another package", "is pinned: not using it", cache)
	fails("no place", "no place for the cache")
	fails("library not there", "cannot be read", cache, "MUSTER_LIBCHDB=/no/such")
	works("own library", f.tarball+"\n", cache, "MUSTER_LIBCHDB="+f.tarball)
	works("server", "", cache, "MUSTER_CLICKHOUSE_DSN=http://x")
	f.npm(`[ "$1 $2 $3" = "pack --silent @x/lib@1.2.3" ] && cp ../../../../package.tgz x-lib-1.2.3.tgz`)
	works("fetch", want+"\n", cache)
	f.npm("exit 1")
	works("already there", want+"\n", cache)
	if err := os.Truncate(want, 10); err != nil {
		t.Fatal(err)
	}
	works("damaged, from a file", want+"\n", cache, "MUSTER_LIBCHDB_TARBALL=package.tgz")
	if info, err := os.Stat(want); err != nil || info.Size() != 6000 {
		t.Errorf("the library is %v, %v", info, err)
	}
}
