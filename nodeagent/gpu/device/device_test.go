package device_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

func TestFieldsAreAscendingUniqueAndComplete(t *testing.T) {
	names := map[string]bool{}
	var last device.Field
	for _, f := range device.Fields() {
		if f.Field <= last {
			t.Errorf("%s (%d) does not come after %d", f.Name, f.Field, last)
		}
		last = f.Field
		if names[f.Name] {
			t.Errorf("%s is listed twice", f.Name)
		}
		names[f.Name] = true
		if !strings.HasPrefix(f.Name, "DCGM_FI_") || f.Help == "" {
			t.Errorf("%+v: bad name or no help", f)
		}
		if f.Core && f.Kind == device.Counter {
			t.Errorf("%s: a counter cannot carry job labels, so it cannot be core", f.Name)
		}
	}
	for _, want := range []string{"DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_OCCUPANCY"} {
		if !names[want] {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestVisibleEnv(t *testing.T) {
	two := []device.Device{{UUID: "GPU-a", Index: 2}, {UUID: "GPU-b", Index: 5}}
	for _, c := range []struct {
		name    string
		devices []device.Device
		opt     device.EnvOptions
		want    []string
	}{
		{"node numbers", two, device.EnvOptions{}, []string{
			"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=2,5", "GPU_DEVICE_ORDINAL=2,5",
			"ROCR_VISIBLE_DEVICES=2,5", "ZE_AFFINITY_MASK=2,5", "SLURM_JOB_GPUS=2,5"}},
		{"fenced step", two, device.EnvOptions{Fenced: true, Step: true}, []string{
			"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0,1", "GPU_DEVICE_ORDINAL=0,1",
			"ROCR_VISIBLE_DEVICES=0,1", "ZE_AFFINITY_MASK=0,1", "SLURM_JOB_GPUS=2,5", "SLURM_STEP_GPUS=2,5"}},
		{"uuids", two, device.EnvOptions{UUIDs: true, Fenced: true}, []string{
			"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", "GPU_DEVICE_ORDINAL=0,1",
			"ROCR_VISIBLE_DEVICES=0,1", "ZE_AFFINITY_MASK=0,1", "SLURM_JOB_GPUS=2,5"}},
		{"a slice is named by UUID", []device.Device{{UUID: "MIG-x", Index: 3}}, device.EnvOptions{}, []string{
			"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=MIG-x", "GPU_DEVICE_ORDINAL=3",
			"ROCR_VISIBLE_DEVICES=3", "ZE_AFFINITY_MASK=3", "SLURM_JOB_GPUS=3"}},
		{"no device hides all", nil, device.EnvOptions{}, []string{
			"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=", "GPU_DEVICE_ORDINAL=",
			"ROCR_VISIBLE_DEVICES=", "ZE_AFFINITY_MASK="}},
	} {
		if got := device.VisibleEnv(c.devices, c.opt); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestSampleCloneSharesNothing(t *testing.T) {
	var s device.Sample
	s.Resize(2)
	s.Readings[0] = device.Reading{UUID: "a", Values: []device.Value{{device.GPUUtil, 10}}}
	s.Readings[1] = device.Reading{UUID: "b", Values: []device.Value{{device.GPUUtil, 20}, {device.FBUsed, 5}}}
	c := s.Clone()
	s.Readings[1].Values[1].N = 99
	c.Readings[0].Values = append(c.Readings[0].Values, device.Value{Field: device.FBFree, N: 1})
	if n, ok := c.Find("b").Get(device.FBUsed); !ok || n != 5 {
		t.Errorf("clone changed with its source: %d %v", n, ok)
	}
	if n, _ := c.Find("b").Get(device.GPUUtil); n != 20 {
		t.Errorf("growing one reading overwrote another: %d", n)
	}
	if _, ok := c.Find("a").Get(device.SMClock); ok {
		t.Error("an absent field was found")
	}
	if c.Find("zzz") != nil {
		t.Error("an unknown device was found")
	}
}

func TestGresLinks(t *testing.T) {
	d := device.Device{Links: []device.Link{{Kind: device.LinkSelf}, {Kind: device.LinkNVLink, NVLinks: 18}, {Kind: device.LinkSingle}}}
	if got := d.GresLinks(); got != "-1,18,0" {
		t.Errorf("GresLinks = %q", got)
	}
	if got := d.Links[1].String() + " " + d.Links[2].String() + " " + d.Links[0].String(); got != "NV18 PIX X" {
		t.Errorf("links print as %q", got)
	}
}

func TestClassifyXID(t *testing.T) {
	for xid, want := range map[int]device.XIDClass{13: device.XIDApplication, 31: device.XIDApplication,
		48: device.XIDFatal, 79: device.XIDFatal, 94: device.XIDMemory, 74: device.XIDLink, 119: device.XIDDriver, 9999: device.XIDUnknown} {
		if got := device.ClassifyXID(xid); got != want {
			t.Errorf("XID %d is %v, want %v", xid, got, want)
		}
	}
}

// What nodes register of a link says which it is, and orders them.
func TestCloseness(t *testing.T) {
	last := int32(-1)
	for _, l := range []device.Link{{}, {Kind: device.LinkSelf}, {Kind: device.LinkSystem}, {Kind: device.LinkNode}, {Kind: device.LinkHostBridge}, {Kind: device.LinkMultiple},
		{Kind: device.LinkSingle}, {Kind: device.LinkBoard}, {Kind: device.LinkNVLink, NVLinks: 4}, {Kind: device.LinkNVLink, NVLinks: 18}} {
		c := l.Closeness()
		if c <= last || device.LinkOf(c) != l {
			t.Errorf("%v is %d, which is %v; the one before was %d", l, c, device.LinkOf(c), last)
		}
		last = c
	}
	if bad := [...]device.Link{device.LinkOf(-1), device.LinkOf(1 << 30)}; bad != [...]device.Link{{}, {}} {
		t.Errorf("no links at all: %v", bad)
	}
}
