package spec_test

import (
	"path"
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

// FuzzContainer reads what --container-image and --container-mounts may say.
func FuzzContainer(f *testing.F) {
	for _, text := range []string{"docker://a/b:c", "registry.example#a/b@sha256:0", "/images/x", "/a:/b:ro+rbind,/c", "x.sqsh", "oci:x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if image, err := spec.ParseImage(text); err == nil {
			if again, err := spec.ParseImage(image); err != nil || again != image {
				t.Fatalf("%q is %q, which is %q, %v", text, image, again, err)
			}
		}
		mounts, err := spec.ParseMounts(text)
		if err != nil {
			return
		}
		for _, m := range mounts {
			if !path.IsAbs(m.Source) || !path.IsAbs(m.Target) {
				t.Fatalf("%q mounts %q at %q", text, m.Source, m.Target)
			}
		}
	})
}
