package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keyFile are the keys that sign credentials, with their times in nanoseconds.
type keyFile struct {
	Format int              `json:"format"`
	Keys   []map[string]any `json:"keys"`
}

// credentialKeys finds the file of the keys.
func (c *cluster) credentialKeys() string {
	c.t.Helper()
	var found string
	err := filepath.WalkDir(c.dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Name() == "credential.keys" {
			found = path
		}
		return nil
	})
	if err != nil || found == "" {
		c.t.Fatalf("no credential.keys below %s (%v)", c.dir, err)
	}
	return found
}

func (c *cluster) readKeys() keyFile {
	c.t.Helper()
	data, err := os.ReadFile(c.credentialKeys())
	if err != nil {
		c.t.Fatal(err)
	}
	var keys keyFile
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&keys); err != nil {
		c.t.Fatal(err)
	}
	return keys
}

func (c *cluster) writeKeys(keys keyFile) {
	c.t.Helper()
	data, err := json.Marshal(keys)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(c.credentialKeys(), data, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// TestCredentialKeysRotate walks the life of a key on a running lab, by keys whose times are
// moved: the first is older than tls.rotate_keys, so that a second one is made; both verify;
// the first one's time ends, and it is forgotten. A job runs through all of that, its steps
// are reached, and new jobs and steps start each time.
func TestCredentialKeysRotate(t *testing.T) {
	c := start(t)
	job := c.must("sbatch", "--parsable", "-N2", "--wrap", bin("muster")+" srun -n2 --overlap sh -c 'echo begun; sleep 1000'")
	c.until("RUNNING", "squeue", "-h", "-j", job, "-o", "%T")
	c.untilShell("test $(grep -c begun " + filepath.Join(c.dir, "slurm-"+job+".out") + ") -eq 2")
	works := func(when string) {
		t.Helper()
		if out, errs, code := c.run("srun", "-N2", "-n2", "true"); code != 0 {
			t.Errorf("%s a new job: %d %s %s", when, code, out, errs)
		}
		if out, errs, code := c.run("srun", "--jobid="+job, "--overlap", "-n2", "true"); code != 0 {
			t.Errorf("%s a new step of the old job: %d %s %s", when, code, out, errs)
		}
		if state := c.must("squeue", "-h", "-j", job, "-o", "%T"); state != "RUNNING" {
			t.Errorf("%s the old job is %s", when, state)
		}
	}
	restart := func(change func(keys *keyFile)) {
		t.Helper()
		c.kill9("musterd")
		keys := c.readKeys()
		change(&keys)
		c.writeKeys(keys)
		c.must("up", "--dir", c.dir)
	}
	works("before")
	first := c.readKeys()
	if len(first.Keys) != 1 {
		t.Fatalf("%d keys in a new lab", len(first.Keys))
	}
	const day = 24 * time.Hour
	restart(func(keys *keyFile) { keys.Keys[0]["from"] = time.Now().Add(-100 * day).UnixNano() })
	until(t, "there is a second key", func() bool { return len(c.readKeys().Keys) == 2 })
	works("with two keys")
	second := c.readKeys().Keys[1]
	restart(func(keys *keyFile) {
		keys.Keys[0]["until"] = time.Now().Add(-time.Hour).UnixNano()
		keys.Keys[1]["from"] = time.Now().Add(-31 * day).UnixNano()
	})
	until(t, "the first key is forgotten", func() bool { return len(c.readKeys().Keys) == 1 })
	left := c.readKeys().Keys[0]
	for name, value := range second {
		if name != "from" && name != "until" && left[name] != value {
			t.Errorf("the key that is left differs from the second one in %s", name)
		}
	}
	works("after the first key")
	c.must("scancel", job)
	c.until("", "squeue", "-h", "-j", job)
}
