package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// powered is a lab whose node2 and node3 are powered up by a program that starts
// their agents, and down by one that ends them. Each writes down that it ran;
// ResumeProgram waits while there is a file "wait", and does nothing for node3.
func powered(t *testing.T) *cluster {
	t.Helper()
	need(t)
	c := &cluster{t: t, dir: shortDir(t), port: freePorts(t)}
	c.must("init", "--dir", c.dir, "--nodes", "3", "--gpus", "2", "--port", strconv.Itoa(c.port))
	said := "echo \"$0 $1\" | sed 's,.*/,,' >> " + filepath.Join(c.dir, "said") + "\n"
	for name, body := range map[string]string{
		"resume":  "[ -s \"$SLURM_RESUME_FILE\" ] && cp \"$SLURM_RESUME_FILE\" " + c.dir + "/for.json\n" + said + "while [ -e " + c.dir + "/wait ]; do sleep 0.1; done\n[ $1 = node3 ] || exec " + bin("muster") + " up --dir " + c.dir + " --nodes \"$1\"\n",
		"suspend": said + "exec " + bin("muster") + " down --jobs --dir " + c.dir + " --nodes \"$1\"\n",
		"failed":  said,
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte("#!/bin/sh\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(c.dir, "slurm.conf")
	data, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "NodeName=") {
			lines = append(lines, strings.Replace(line, "node[1-3]", "node1", 1), strings.Replace(strings.Replace(line, "node[1-3]", "node[2-3]", 1), "State=UNKNOWN", "State=CLOUD", 1))
			continue
		}
		lines = append(lines, line)
	}
	for key, value := range map[string]string{"SuspendProgram": c.dir + "/suspend", "ResumeProgram": c.dir + "/resume", "ResumeFailProgram": c.dir + "/failed",
		"SuspendTime": "3", "SuspendTimeout": "5", "ResumeTimeout": "120", "SuspendExcNodes": "node1"} {
		lines = append(lines, key+"="+value+"\n")
	}
	lines = append(lines, "PartitionName=bad Nodes=node3 ResumeTimeout=2 DefMemPerCPU=500\n")
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	c.must("up", "--dir", c.dir)
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(c.dir, "wait"))
		c.run("down", "--dir", c.dir, "--jobs")
	})
	return c
}

func (c *cluster) said() string {
	data, err := os.ReadFile(filepath.Join(c.dir, "said"))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// TestPowerSave: a job on a node that is powered down starts once ResumeProgram
// has started its agent, also when the controller is killed while it boots; the
// program is not run again for that. Idle nodes are powered down. A node that
// does not come up is set aside, and its job is queued again.
func TestPowerSave(t *testing.T) {
	c := powered(t)
	state := func(node string) []string { return []string{"sinfo", "-h", "-N", "-p", "gpu", "-n", node, "-o", "%t"} }
	c.until("idle~", state("node2")...)
	out := filepath.Join(c.dir, "out-%j")
	id := c.must("sbatch", "--parsable", "-w", "node2", "--gpus=1", "-o", out, "--wrap", "echo on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES; sleep 2")
	c.until("COMPLETED|node2", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State,NodeList")
	if data, err := os.ReadFile(filepath.Join(c.dir, "out-"+id)); err != nil || string(data) != "on node2 with 0\n" {
		t.Errorf("the job says %q, %v", data, err)
	}
	if data, err := os.ReadFile(filepath.Join(c.dir, "for.json")); err != nil || !strings.Contains(string(data), `"all_nodes_resume":"node2"`) || !strings.Contains(string(data), `"job_id":`+id) {
		t.Errorf("SLURM_RESUME_FILE says %s, %v", data, err)
	}
	c.until("idle~", state("node2")...)
	if got := c.said(); got != "resume node2\nsuspend node2" {
		t.Errorf("the programs that ran: %q", got)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "wait"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	id = c.must("sbatch", "--parsable", "-w", "node2", "--wrap", "true")
	c.until("mix#", state("node2")...)
	c.until("CF", "squeue", "-h", "-j", id, "-o", "%t")
	if why := c.must("why", id); !strings.Contains(why, "waits for node2 to boot") {
		t.Errorf("why says %q", why)
	}
	for n := 0; strings.Count(c.said(), "resume") < 2; n++ {
		if n > 1000 {
			t.Fatalf("ResumeProgram was not run: %q", c.said())
		}
		c.must("ping")
	}
	c.kill9("musterd")
	c.must("up", "--dir", c.dir)
	c.until("CF", "squeue", "-h", "-j", id, "-o", "%t")
	if err := os.Remove(filepath.Join(c.dir, "wait")); err != nil {
		t.Fatal(err)
	}
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	if got := strings.Count(c.said(), "resume node2"); got != 2 {
		t.Errorf("ResumeProgram ran %d times for node2, want 2: %q", got, c.said())
	}
	id = c.must("sbatch", "--parsable", "-p", "bad", "--wrap", "true")
	c.until("down~", state("node3")...)
	c.until(fmt.Sprintf("%s|PD|(ReqNodeNotAvail, UnavailableNodes:node3)", id), "squeue", "-h", "-j", id, "-o", "%i|%t|%R")
	c.until("ResumeTimeout reached", "sinfo", "-h", "-R", "-o", "%E")
	if got := c.said(); !strings.Contains(got, "failed node3") {
		t.Errorf("ResumeFailProgram was not run: %q", got)
	}
	c.must("scancel", id)
	if _, errs, code := c.run("scontrol", "power", "down", "node9"); code != 1 || !strings.Contains(errs, "nvalid node name") {
		t.Errorf("a node that does not exist: exit %d, %q", code, errs)
	}
}
