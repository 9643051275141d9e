package cli

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tinyITP = "cluster,job_id,submit_s,duration_s,num_gpu\nc1,a,0,50,4\nc1,b,0,50,4\nc1,d,0,50,4\nc2,c,0,70,4\n"

const tinyGraham = "job_unique_id,submit_time,start_time,time_limit_sec,elapsed_time,account_id,req_cpus,gpus\n1,2021-04-24 18:26:01,2021-04-24 18:26:02,60,50,7,4,0\n"

const tinyLog = "; a log\n1 0 5 100 4 -1 -1 4 100 -1 1 7 1 -1 -1 -1 -1 -1\n2 10 5 50 3 -1 -1 3 60 -1 1 7 1 -1 -1 -1 -1 -1\n3 20 5 500 1 -1 -1 1 200 -1 1 7 1 -1 -1 -1 -1 -1\n"

func TestSimulate(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "log.swf"), filepath.Join(dir, "log.swf.gz")
	if err := os.WriteFile(plain, []byte(tinyLog), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(packed)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(tinyLog)); err != nil || z.Close() != nil || f.Close() != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.swf.gz")
	if whole, err := os.ReadFile(packed); err != nil || os.WriteFile(cut, whole[:len(whole)-30], 0o600) != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.swf.gz")
	r := w.run("muster", "simulate", "--swf", packed, "--procs", "4", "--policy", "easy", "-o", out)
	if r.code != 0 || !strings.Contains(r.out, "mean wait              56.7 s") || !strings.Contains(r.out, "makespan               300 s") {
		t.Errorf("%d\n%s\n%s", r.code, r.out, r.errOut)
	}
	r = w.run("muster", "simulate", "--swf", out, "--procs", "4", "--json")
	if r.code != 0 || !strings.Contains(r.out, `"mean_wait": 56.6`) || !strings.Contains(r.out, `"policy": "muster"`) {
		t.Errorf("the schedule that was written cannot be read back: %d\n%s\n%s", r.code, r.out, r.errOut)
	}
	for args, want := range map[string]string{
		"--procs 4":                         "or one to pack with --openb",
		"--swf CUT --procs 4":               "line 3: the file is cut off here",
		"--swf LOG":                         "how large is the cluster",
		"--swf LOG --procs 0":               "--procs=0: expected a number from 1",
		"--swf LOG --procs 4 --cpus 2":      "both say how many",
		"--swf LOG --procs 5 --nodes 2":     "cannot be divided",
		"--swf LOG --itp LOG --procs 4":     "one trace at a time",
		"--swf LOG --procs 4 --policy fair": "fcfs, easy, easy-sjbf, conservative, muster",
		"--itp LOG --procs 4":               "choose --nodes and --gpus",
		"--itp LOG --nodes 1 --gpus 8":      "names no column",
		"--swf /nowhere --procs 4":          "/nowhere: no such file",
		"--swf LOG --procs 4 extra":         "unexpected argument extra",
		"--swf LOG --procs 4 -o /nowhere/x": "--out=/nowhere/x: there is no folder /nowhere",
		"--swf LOG --procs 4 --frobnicate":  "unrecognized option",
	} {
		r := w.shell("muster simulate " + strings.NewReplacer("LOG", plain, "CUT", cut).Replace(args))
		if r.code == 0 || r.out != "" || !strings.Contains(r.errOut, want) {
			t.Errorf("%s: %d %q %q, want %q", args, r.code, r.out, r.errOut, want)
		}
	}
}

const tinyNodes = "sn,cpu_milli,memory_mib,gpu,model\na,8000,1000,2,G\nb,8000,1000,0,\n"
const tinyPods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1000,10,1,600\np2,1000,10,1,400\np3,1000,10,1,1000\np4,8000,10,0,0\n"

// Packing tells how far each order of arrival fills the cluster.
func TestSimulateOpenb(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"openb_node_list_all_node.csv": tinyNodes, "openb_pod_list_default.csv": tinyPods} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := w.run("muster", "simulate", "--openb", dir, "--shuffles", "2", "--inflate", "1")
	if r.code != 0 || !strings.Contains(r.out, "order 2   4 of 4 pods placed, 100.000 % of 2 GPUs allocated") || !strings.Contains(r.out, "mean      100.000 %") {
		t.Errorf("%d\n%s\n%s", r.code, r.out, r.errOut)
	}
	runs := filepath.Join(dir, "itp")
	err := os.WriteFile(runs, []byte("cluster,job_id,submit_s,duration_s,num_gpu\nc1,1,0,50,1\nc1,2,0,90,1\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r = w.run("muster", "simulate", "--openb", dir, "--itp", runs, "--pods", "40", "--load", "50", "--shuffles", "2", "--json")
	var out struct {
		Shuffles []struct {
			Jobs int `json:"jobs"`
		} `json:"shuffles"`
		Mean struct {
			Free     float64 `json:"gpus_free"`
			Stranded float64 `json:"gpus_stranded"`
		} `json:"mean"`
	}
	if err := json.Unmarshal([]byte(r.out), &out); err != nil || r.code != 0 {
		t.Fatalf("%v: %d\n%s\n%s", err, r.code, r.out, r.errOut)
	}
	if len(out.Shuffles) != 2 || out.Shuffles[1].Jobs != 40 || out.Mean.Free < 0.2 || out.Mean.Stranded > out.Mean.Free {
		t.Errorf("with departures: %+v", out)
	}
	r = w.run("muster", "simulate", "--openb", dir, "--itp", runs, "--pods", "40", "--load", "50", "--shuffles", "1")
	if r.code != 0 || !strings.Contains(r.out, "40 pods each, 50 % of the GPU time requested, placed by mix") {
		t.Errorf("with departures: %d\n%s\n%s", r.code, r.out, r.errOut)
	}
	for args, want := range map[string]string{
		"--openb DIR --load 90": "name a trace of run times with --itp", "--openb DIR --itp DIR/itp --inflate 3": "say --load",
		"--openb DIR --itp DIR/itp --load 0": "--load=0: expected", "--openb DIR --itp DIR/nothing": "DIR/nothing: no such file",
		"--openb DIR --procs 4": "--procs does not go with --openb", "--openb DIR --shuffles 0": "--shuffles=0: expected", "--openb DIR --packing x": "mix or best-fit",
		"--openb /nowhere": "/nowhere", "--openb DIR more": "unexpected argument more",
	} {
		r := w.shell("muster simulate " + strings.ReplaceAll(args, "DIR", dir))
		want = strings.ReplaceAll(want, "DIR", dir)
		if r.code == 0 || r.out != "" || !strings.Contains(r.errOut, want) {
			t.Errorf("%s: %d %q %q, want %q", args, r.code, r.out, r.errOut, want)
		}
	}
}
