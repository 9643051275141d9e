package ecs

import "testing"

func TestActions(t *testing.T) {
	for kind, action := range map[string]string{"QOSPut": "qos-put", "GPUFaulted": "gpu-faulted", "JobEndRequested": "job-end-requested", "WCKeyPut": "wc-key-put"} {
		if got := actionOf(kind); got != action {
			t.Errorf("%s is %s, want %s", kind, got, action)
		}
	}
}
