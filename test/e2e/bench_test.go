package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

// TestBenchPasses: the cluster that `muster bench passes` makes is one that the
// controller takes over, schedules and accepts jobs on, and nothing of it stays.
func TestBenchPasses(t *testing.T) {
	need(t)
	dir := shortDir(t)
	cmd := exec.Command(bin("muster"), "bench", "passes", "--nodes", "20", "--pending", "400", "--seconds", "3", "--dir", dir, "--json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var res struct {
		Pending     int `json:"pending"`
		Tested      int `json:"jobs_tested_in_a_pass"`
		Passes      int `json:"passes"`
		Submissions int `json:"submissions"`
		During      int `json:"submissions_during_a_pass"`
	}
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatal(err)
	}
	if res.Pending < 300 || res.Pending > 400 || res.Passes == 0 || res.Tested < res.Pending || res.Submissions < 10 || res.During == 0 {
		t.Errorf("%s", out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
