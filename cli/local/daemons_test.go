package local

import "testing"

func TestMachine(t *testing.T) {
	line := "NodeName=n1 CPUs=8 RealMemory=100 Gres=gpu:h100:8,nic:2 TmpDisk=5"
	if got := gresLines(line); got != "Gres Name=gpu Type=h100 Count=8\nGres Name=nic Count=2\n" {
		t.Errorf("%q", got)
	}
	for proc, want := range map[string]string{"3661.25 100.0\n": "UpTime=0-01:01:01\n", "90061.00 1": "UpTime=1-01:01:01\n", "": ""} {
		if got := upTime(proc); got != want {
			t.Errorf("%q: %q, want %q", proc, got, want)
		}
	}
}
