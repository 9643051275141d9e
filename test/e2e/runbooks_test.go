package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// refused is how a tool of Muster says that it did not take what was typed,
// where a pipe hides its exit code.
var refused = regexp.MustCompile(`(?im)unrecogni[sz]ed|^\w+: error:|^Try "`)

// ours tells a command of Muster, or of Slurm's names.
func ours(command string) bool {
	return slices.Contains(pageTools(), strings.Fields(command)[0])
}

// TestRunbooks types every command of the alerts' runbooks in a lab: those of
// Muster are taken and answer, those of others are at least shell.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	books, err := filepath.Glob("../../alerts/runbooks/Muster*.md")
	if err != nil || len(books) < 50 {
		t.Fatalf("%d runbooks, %v", len(books), err)
	}
	c, bins := pagesLab(t, "--conf", "Licenses=ansys:2")
	c.must("sacctmgr", "-i", "add", "account", "ml")
	c.must("sacctmgr", "-i", "add", "user", "root", "account=ml", "defaultaccount=ml")
	if err := os.WriteFile(filepath.Join(c.dir, "pages", "job.sh"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	partition := c.must("sinfo", "-h", "-o", "%R")
	runs := c.must("sbatch", "--parsable", "--gres=gpu:1", "--time=30", "--wrap", "sleep 600")
	c.until("R", "squeue", "-h", "-j", runs, "-o", "%t")
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", c.must("sbatch", "--parsable", "--wrap", "true"), "-o", "State")
	typed, shell := 0, 0
	for _, book := range books {
		data, err := os.ReadFile(book)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			command, is := strings.CutPrefix(line, "    ")
			if !is || command == "" || command[0] == ' ' {
				continue
			}
			where := fmt.Sprintf("%s:%d: %s", filepath.Base(book), i+1, command)
			if !ours(command) {
				shell++
				if out, err := exec.Command("bash", "-n", "-c", command).CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", where, err, out)
				}
				continue
			}
			typed++
			job := runs
			if verb := strings.Fields(command); strings.Contains(command, "JOB") && slices.Contains([]string{"scancel", "requeue", "hold", "release", "update"}, verb[min(1, len(verb)-1)]) || verb[0] == "scancel" {
				job = c.must("sbatch", "--parsable", "--begin=now+1hour", "--wrap", "true")
				if strings.Contains(command, "requeue") {
					job = c.must("sbatch", "--parsable", "--wrap", "sleep 600")
					c.until("R", "squeue", "-h", "-j", job, "-o", "%t")
				}
			}
			text := strings.NewReplacer("JOB", job, "NODES", "node[1-2]", "NODE", "node1", "PARTITION", partition, "ACCOUNT", "ml", "USER", "root",
				"qos NAME", "qos normal", "user NAME", "user root", "/etc/muster/muster.yaml", filepath.Join(c.dir, "muster.yaml")).Replace(command)
			if strings.Contains(text, "state=resume") {
				c.must("scontrol", "update", "nodename=node[1-2]", "state=drain", "reason=test")
			}
			if out, err := c.typed(bins, text); err != nil || refused.MatchString(out) {
				t.Errorf("%s\n%v: %s", where, err, out)
			}
			if strings.HasPrefix(text, "sbatch") || strings.Contains(text, "requeue") {
				c.run("scancel", "-n", "job.sh")
			}
			if strings.Contains(text, "state=drain") {
				c.must("scontrol", "update", "nodename=node1", "state=resume")
			}
			if strings.Contains(text, "maxsubmitjobs") {
				c.must("sacctmgr", "-i", "modify", "account", "ml", "set", "maxsubmitjobs=-1")
			}
		}
	}
	t.Logf("%d commands were typed, %d of others are shell", typed, shell)
	if typed < 100 {
		t.Errorf("only %d commands were typed", typed)
	}
}

// typed is what a line prints at a shell with the tools of a lab. The first
// command of a line with pipes decides: grep that finds nothing is no mistake.
func (c *cluster) typed(bins, line string) (string, error) {
	first, rest, piped := strings.Cut(line, " | ")
	if piped {
		line = first + " > piped && { cat piped | " + rest + "; true; }"
	}
	cmd := exec.Command("timeout", "-k", "1", "30", "bash", "-c", line)
	cmd.WaitDelay = time.Second
	cmd.Dir = filepath.Join(c.dir, "pages")
	cmd.Env = append(os.Environ(), "PATH="+bins+":"+os.Getenv("PATH"), "MUSTER_SOCKET="+filepath.Join(c.dir, "run", "muster.sock"), "TZ=UTC")
	out, err := cmd.CombinedOutput()
	return plain(string(out)), err
}
