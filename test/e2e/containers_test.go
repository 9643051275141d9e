package e2e

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// pushImage serves a registry on loopback and puts an image there.
func pushImage(t *testing.T) (reference, digest string) {
	t.Helper()
	served := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(served.Close)
	return pushImageTo(t, served.URL, authn.Anonymous)
}

// pushImageTo puts an image into a registry: it has files of its own, and finds the
// programs of this machine where a mount shows /usr.
func pushImageTo(t *testing.T, url string, login authn.Authenticator) (reference, digest string) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	release := "ID=inside\n"
	for _, h := range []tar.Header{
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "work/", Typeflag: tar.TypeDir, Mode: 0o777},
		{Name: "etc/os-release", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(release))},
		{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		{Name: "lib", Typeflag: tar.TypeSymlink, Linkname: "usr/lib"},
		{Name: "lib64", Typeflag: tar.TypeSymlink, Linkname: "usr/lib64"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, release); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, files)
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.Config(image, v1.Config{WorkingDir: "/work", Env: []string{"FROM_IMAGE=yes"}})
	if err != nil {
		t.Fatal(err)
	}
	reference = strings.TrimPrefix(url, "http://") + "/team/tool:1"
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithAuth(login)); err != nil {
		t.Fatal(err)
	}
	hash, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return reference, hash.String()
}

// TestContainers: an image of a registry is what a script and the tasks of a step
// run in, with the user's mounts and the site's TaskProlog and TaskEpilog; another
// step can join, a kill ends all, and the death of agent and shepherd nothing.
func TestContainers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("containers need an agent that is root")
	}
	image, digest := pushImage(t)
	site := shortDir(t)
	if err := os.Chmod(site, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"prolog": "#!/bin/sh\necho export BY_SITE=prolog\n",
		"epilog": "#!/bin/sh\necho epilog $SLURM_STEP_ID.$SLURM_PROCID >> " + site + "/data/epilogs\n",
	} {
		if err := os.WriteFile(filepath.Join(site, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, "TaskProlog="+site+"/prolog", "TaskEpilog="+site+"/epilog")
	data := filepath.Join(site, "data") // seen at its own path too, where the epilog of a script runs
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	in := []string{"--container-image=" + image, "--container-mounts=/usr:/usr:ro," + data + ":/data," + data}
	const look = ". /etc/os-release; echo $ID $PWD $FROM_IMAGE $BY_SITE"
	const seen = "inside /work yes prolog"

	// A step with two tasks, alone.
	step := append(append([]string{"srun", "-n", "2"}, in...), "sh", "-c", look)
	if out := c.must(step...); out != seen+"\n"+seen {
		t.Errorf("tasks in the image see %q, not %q twice", out, seen)
	}
	if got, err := os.ReadFile(filepath.Join(data, "epilogs")); err != nil ||
		strings.Count(string(got), "epilog 0.") != 2 {
		t.Errorf("the TaskEpilogs wrote %q (%v)", got, err)
	}

	// A script, a step within it that has no image of its own, and one that has.
	srun := bin("muster") + " srun --overlap -n 1 "
	script := filepath.Join(c.dir, "script.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+look+"\necho kept > /data/kept\nexit 4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := c.must(append(append([]string{"sbatch", "--parsable", "-o", c.dir + "/%j.out"}, in...), script)...)
	c.until("FAILED|4:0", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State,ExitCode")
	if out, err := os.ReadFile(filepath.Join(c.dir, id+".out")); err != nil || string(out) != seen+"\n" {
		t.Errorf("a script in the image writes %q (%v)", out, err)
	}
	if kept, err := os.ReadFile(filepath.Join(data, "kept")); string(kept) != "kept\n" {
		t.Errorf("a mounted folder has %q (%v)", kept, err)
	}
	pinned := "docker://" + image + "@" + digest
	c.until(pinned, "sacct", "-n", "-X", "-P", "-j", id, "-o", "Container")
	c.until(pinned, "sacct", "-n", "-P", "-j", id+".batch", "-o", "Container")
	if out := c.must("scontrol", "show", "job", id); !strings.Contains(out, "Container="+pinned+"\n") {
		t.Errorf("the job's record lacks %s:\n%s", pinned, out)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+srun+strings.Join(in, " ")+" sh -c '"+look+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id = c.must("sbatch", "--parsable", "-o", c.dir+"/%j.out", script)
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	if out, err := os.ReadFile(filepath.Join(c.dir, id+".out")); err != nil || string(out) != seen+"\n" {
		t.Errorf("a step of a script sees %q (%v)", out, err)
	}

	// Somebody joins a job in its image; agent and shepherd die; the job goes on.
	begin := filepath.Join(data, "go")
	wait := "sh -c 'while [ ! -e /data/go ]; do sleep 0.2; done; " + look + "; exit 5'"
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+wait+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id = c.must(append(append([]string{"sbatch", "--parsable", "-o", c.dir + "/%j.out"}, in...), script)...)
	c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
	join := append(append([]string{"srun", "--jobid=" + id, "--overlap", "-n", "1"}, in...), "cat", "/etc/os-release")
	if out := c.must(join...); out != "ID=inside" {
		t.Errorf("a step that joins reads %q", out)
	}
	node := c.must("squeue", "-h", "-j", id, "-o", "%N")
	c.kill9("agent-" + node)
	for _, path := range c.shepherds() {
		number, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	c.must("up", "--dir", c.dir)
	if out := c.must(join...); out != "ID=inside" { // and the node's programs are there again
		t.Errorf("a step that joins after the restart reads %q", out)
	}
	if err := os.WriteFile(begin, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.until("FAILED|5:0", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State,ExitCode")
	if out := c.must("sacct", "-n", "-X", "-D", "-P", "-j", id, "-o", "State"); out != "FAILED" {
		t.Errorf("it ran more than once: %q", out)
	}
	if out, err := os.ReadFile(filepath.Join(c.dir, id+".out")); err != nil || string(out) != seen+"\n" {
		t.Errorf("a script whose node's programs were killed writes %q (%v)", out, err)
	}

	// A kill ends everything that is in the image.
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsetsid sleep 7654321 &\nsleep 7654321\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id = c.must(append(append([]string{"sbatch", "--parsable"}, in...), script)...)
	c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
	c.must("scancel", id)
	c.until("CANCELLED by 0", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	for _, pid := range processesOf("sleep\x007654321") {
		t.Errorf("process %s of the job is alive", pid)
	}

	// What cannot be had is said.
	absent := strings.Replace(image, "tool:1", "nothing:1", 1)
	if _, errs, code := c.run("srun", "--container-image="+absent, "true"); code == 0 ||
		!strings.Contains(errs, "nothing") {
		t.Errorf("an image that is not there: exit %d, %q", code, errs)
	}
}

// processesOf lists the processes whose command line contains a text.
func processesOf(text string) (pids []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), text) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}
