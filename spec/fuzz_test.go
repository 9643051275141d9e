package spec_test

import (
	"testing"

	"github.com/musterhpc/muster/spec"
)

// FuzzDependency: what is accepted can be written and read back.
func FuzzDependency(f *testing.F) {
	for _, text := range []string{"afterok:12:13,singleton", "after:12+5?afterany:7_3", "aftercorr:1_*", "expand:3", "afternotok:", "singleton?"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := spec.ParseDependency(text)
		if err != nil || d == nil {
			return
		}
		again, err := spec.ParseDependency(d.String())
		if err != nil || again.String() != d.String() {
			t.Fatalf("%q is %q, which is %v, %v", text, d.String(), again, err)
		}
	})
}

// FuzzGPUOptions reads what --gpu-bind and --gpu-freq may say.
func FuzzGPUOptions(f *testing.F) {
	for _, text := range []string{"closest", "single:2", "map_gpu:0,1*2", "mask_gpu:0x3,0xc*4", "per_task:3", "verbose,none", "high,memory=low", "1200,verbose", "medium,memory=high"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if bind, err := spec.ParseGPUBind(text); err == nil {
			gpus := []spec.BindableGPU{{}, {}}
			places, _ := bind.Devices(spec.BoundTask{}, gpus)
			for _, at := range places {
				if at < 0 || at >= len(gpus) {
					t.Fatalf("%q binds a task to GPU %d of %d", text, at, len(gpus))
				}
			}
		}
		if _, err := spec.ParseGPUFreq(text); err != nil && err.Error() == "" {
			t.Fatalf("%q is refused without a word", text)
		}
	})
}
