package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSeveralClusters types -M at a cluster that knows another one: both answer, a job goes to
// the one that starts it first, and when one is away the other still answers.
func TestSeveralClusters(t *testing.T) {
	t.Parallel()
	north := start(t, "ClusterName=north")
	south := start(t, "ClusterName=south")
	socket := filepath.Join(south.dir, "run", "muster.sock")

	north.fails("No cluster 'south' known by database.", "squeue", "-M", "south")
	north.must("sacctmgr", "-i", "add", "cluster", "south", "socket="+socket, "controlhost=s1", "controlport=7000")
	want := "south|s1|7000|" + socket
	if got := north.must("sacctmgr", "-nP", "list", "cluster", "south", "format=cluster,controlhost,controlport,socket"); got != want {
		t.Errorf("sacctmgr list cluster: %q, want %q", got, want)
	}

	// The whole of north is taken for two hours.
	north.must("sbatch", "--exclusive", "-N2", "-t", "2:00:00", "--wrap", "sleep 7200")
	north.until("RUNNING", "squeue", "-h", "-o", "%T")
	if got, want := north.must("sbatch", "-M", "north,south", "-t", "2:00:00", "--wrap", "sleep 7200"), "Submitted batch job 1 on cluster south"; got != want {
		t.Errorf("sbatch -M north,south: %q, want %q", got, want)
	}
	if got := north.must("sbatch", "--parsable", "-M", "north", "--wrap", "true"); got != "2;north" {
		t.Errorf("sbatch --parsable -M north: %q", got)
	}
	south.until("RUNNING", "squeue", "-h", "-o", "%T")
	both := north.must("squeue", "-M", "all", "-o", "%i %T", "-t", "R")
	if want := "CLUSTER: north\nJOBID STATE\n1 RUNNING\n\nCLUSTER: south\nJOBID STATE\n1 RUNNING"; both != want {
		t.Errorf("squeue -M all: %q, want %q", both, want)
	}
	if got := north.must("squeue", "-M", "all", "-h", "-o", "%i %T", "-t", "R"); got != "1 RUNNING\n1 RUNNING" {
		t.Errorf("squeue -M all -h: %q, want no headers", got)
	}
	if got, want := north.must("sinfo", "-M", "south,north", "-o", "%P"), "CLUSTER: south\nPARTITION\ngpu*\n\nCLUSTER: north\nPARTITION\ngpu*"; got != want {
		t.Errorf("sinfo -M south,north: %q, want %q", got, want)
	}
	if got := north.must("scontrol", "-M", "south", "show", "job", "1"); !strings.Contains(got, "JobId=1 JobName=wrap") {
		t.Errorf("scontrol -M south show job 1: %s", got)
	}
	north.fails("Only one cluster can be used at a time", "scontrol", "-M", "all", "show", "job", "1")
	if got := north.must("srun", "-M", "south", "--overlap", "-t", "1", "sh", "-c", "echo $SLURM_CLUSTER_NAME"); got != "south" {
		t.Errorf("srun -M south: %q", got)
	}
	north.until("1|north|RUNNING\n1|south|RUNNING", "sacct", "-M", "all", "-X", "-nP", "-s", "R", "-o", "jobid,cluster,state")

	// An account of another cluster is changed there, and the refusal says how.
	north.fails("MUSTER_SOCKET="+socket, "sacctmgr", "-i", "add", "account", "a", "cluster=south")

	north.must("scancel", "-M", "south", "1")
	south.until("CANCELLED", "squeue", "-h", "-j", "1", "-t", "all", "-o", "%T")
	if got := north.must("squeue", "-h", "-j", "1", "-o", "%T"); got != "RUNNING" {
		t.Errorf("scancel -M south 1: job 1 of north is %q", got)
	}

	// One of several is away.
	south.must("down", "--dir", south.dir, "--jobs")
	out, errs, code := north.run("squeue", "-M", "south,north", "-h", "-o", "%i", "-t", "R")
	if out != "1\n" || code != 1 {
		t.Errorf("squeue with one cluster away: rc %d, %q", code, out)
	}
	if !strings.Contains(errs, "sacctmgr modify cluster south set socket=PATH") {
		t.Errorf("no cure for a cluster that is away: %s", errs)
	}
	out, errs, code = north.run("sbatch", "-M", "all", "--wrap", "true")
	if out != "Submitted batch job 3 on cluster north\n" || code != 0 || !strings.Contains(errs, "cluster south is left out") {
		t.Errorf("sbatch with one cluster away: rc %d, %q %q", code, out, errs)
	}

	// A socket that leads elsewhere is not believed.
	own := filepath.Join(north.dir, "run", "muster.sock")
	north.must("sacctmgr", "-i", "modify", "cluster", "south", "set", "socket="+own)
	north.fails("belongs to cluster north", "squeue", "-M", "south")
	north.must("sacctmgr", "-i", "delete", "cluster", "south")
	north.fails("No cluster 'south'", "squeue", "-M", "south")
}
