package spec_test

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/spec"
)

func bits(list ...int) (b spec.Bitset) {
	for _, i := range list {
		b = b.Set(i)
	}
	return b
}

func TestGPUBind(t *testing.T) {
	// Two sockets of two devices each; the second socket has the first devices.
	sockets := []spec.BindableGPU{{0, bits(4, 5, 6, 7)}, {1, bits(4, 5, 6, 7)}, {2, bits(0, 1, 2, 3)}, {3, bits(0, 1, 2, 3)}}
	flat := []spec.BindableGPU{{Number: 2}, {Number: 5}, {Number: 7}, {Number: 8}}
	for _, c := range []struct {
		text   string
		local  int
		cpus   spec.Bitset
		gpus   []spec.BindableGPU
		want   []int
		missed bool
	}{
		{"none", 3, bits(0), sockets, []int{0, 1, 2, 3}, false},
		{"closest", 0, bits(0, 1), sockets, []int{2, 3}, false},
		{"closest", 0, bits(3, 4), sockets, []int{0, 1, 2, 3}, false},
		{"closest", 0, bits(99), sockets, []int{0, 1, 2, 3}, false},
		{"Closest", 1, bits(0), flat, []int{0, 1, 2, 3}, false},
		{"single:1", 0, bits(0), sockets, []int{2}, false},
		{"single:1", 1, bits(1), sockets, []int{3}, false},
		{"single:2", 1, bits(1), sockets, []int{2}, false},
		{"single:2", 2, bits(1), sockets, []int{3}, false},
		{"single:2", 4, bits(1), sockets, []int{2}, false},
		{"single:1", 3, bits(1), flat, []int{3}, false},
		{"per_task:1", 0, bits(0), sockets, []int{2}, false},
		{"per_task:2", 0, bits(0), sockets, []int{2, 3}, false},
		{"per_task:2", 1, bits(4), sockets, []int{0, 1}, false},
		{"per_task:3", 1, bits(4), flat, []int{0, 1, 3}, false},
		{"per_task:9", 1, bits(4), flat, []int{0, 1, 2, 3}, false},
		{"map_gpu:5,2", 0, bits(0), flat, []int{1}, false},
		{"map_gpu:5,2", 1, bits(0), flat, []int{0}, false},
		{"map_gpu:5,2", 2, bits(0), flat, []int{1}, false},
		{"map_gpu:2*2,5*2", 1, bits(0), flat, []int{0}, false},
		{"map_gpu:2*2,5*2", 2, bits(0), flat, []int{1}, false},
		{"map_gpu:6", 0, bits(0), flat, []int{0}, true},
		{"mask_gpu:0x24,0x180", 0, bits(0), flat, []int{0, 1}, false},
		{"mask_gpu:24,180", 1, bits(0), flat, []int{2, 3}, false},
		{"mask_gpu:0x25", 0, bits(0), flat, []int{0, 1}, true},
		{"mask_gpu:0x1", 0, bits(0), flat, []int{0}, true},
		{"closest", 0, bits(0), nil, nil, false},
	} {
		b, err := spec.ParseGPUBind(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, missed := b.Devices(spec.BoundTask{Local: c.local, CPUs: c.cpus}, c.gpus)
		if !slices.Equal(got, c.want) || missed != c.missed {
			t.Errorf("%s, task %d: %v %v, want %v %v", c.text, c.local, got, missed, c.want, c.missed)
		}
	}
	if b, err := spec.ParseGPUBind("verbose,map_gpu:0"); err != nil || !b.Verbose || b.Kind != spec.BindMap {
		t.Errorf("%+v %v", b, err)
	}
	if b, err := spec.ParseGPUBind("v"); err != nil || !b.Verbose || b.Kind != spec.BindNone {
		t.Errorf("%+v %v", b, err)
	}
	for _, bad := range []string{"", "near", "closest:1", "none:0", "single", "single:", "single:0", "per_task:x", "map_gpu", "map_gpu:", "map_gpu:a", "map_gpu:1,,2",
		"map_gpu:1*0", "map_gpu:1*9999999", "mask_gpu:0xg", "verbose,", "map_gpu:-1"} {
		if b, err := spec.ParseGPUBind(bad); err == nil {
			t.Errorf("%q was taken for %+v", bad, b)
		}
	}
}

// TestGPUBindPerTaskShares: as long as there are devices, no two tasks get the
// same one, wherever the tasks run.
func TestGPUBindPerTaskShares(t *testing.T) {
	gpus := []spec.BindableGPU{{0, bits(8)}, {1, bits(0)}, {2, bits(8)}, {3, bits(0)}, {4, bits(4)}, {5, bits(4)}}
	for n := 1; n <= 3; n++ {
		b := spec.GPUBind{Kind: spec.BindPerTask, N: n}
		seen := map[int]bool{}
		for task := range len(gpus) / n {
			got, _ := b.Devices(spec.BoundTask{Local: task, CPUs: bits(task)}, gpus)
			if len(got) != n {
				t.Errorf("per_task:%d gives task %d %v", n, task, got)
			}
			for _, p := range got {
				if seen[p] {
					t.Errorf("per_task:%d gives device %d twice", n, p)
				}
				seen[p] = true
			}
		}
	}
}

func TestGPUFreq(t *testing.T) {
	have := []uint32{1980, 1965, 1950, 210, 345}
	for text, want := range map[string][2]uint32{
		"low": {210, 0}, "high": {1980, 0}, "medium": {1950, 0}, "highm1": {1965, 0}, "450": {345, 0}, "gpu=1957": {1950, 0}, "1958": {1965, 0},
		"memory=low": {0, 210}, "medium,memory=high": {1950, 1980}, "high,memory=1,verbose": {1980, 210}, "gpu=99999": {1980, 0}, "verbose": {0, 0}, "HIGH": {1980, 0},
	} {
		f, err := spec.ParseGPUFreq(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := [2]uint32{f.GPU.Pick(have), f.Memory.Pick(have)}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	// Of two that are equally near the higher.
	if got := (spec.FreqAsk{Level: spec.FreqExact, MHz: 150}).Pick([]uint32{100, 200}); got != 200 {
		t.Errorf("150 of 100 and 200: %d", got)
	}
	if got := (spec.FreqAsk{Level: spec.FreqHighM1}).Pick([]uint32{100}); got != 100 {
		t.Errorf("the highest but one of one: %d", got)
	}
	for _, bad := range []string{"", "fast", "sm=high", "gpu=", "0", "high,low", "memory=high,memory=low", "-5", "1e3", "high;low"} {
		if f, err := spec.ParseGPUFreq(bad); err == nil {
			t.Errorf("%q was taken for %+v", bad, f)
		}
	}
}
func TestRanges(t *testing.T) {
	for _, text := range []string{"", "0", "0-3,8", "5,7,9-64,70"} {
		b, ok := spec.ParseRanges(text, 128)
		if !ok || b.Ranges() != text {
			t.Errorf("%q is %v and written %q", text, b.Members(), b.Ranges())
		}
	}
	for _, bad := range []string{",", "1,", "a", "3-1", "-1", "0-128", "128", "1-2-3"} {
		if b, ok := spec.ParseRanges(bad, 128); ok {
			t.Errorf("%q was taken for %v", bad, b.Members())
		}
	}
}
