package sysfs_test

import (
	"errors"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/sysfs"
)

func TestPlace(t *testing.T) {
	sys := fstest.MapFS{
		"bus/pci/devices/0000:1b:00.0/numa_node":     {Data: []byte("1\n")},
		"bus/pci/devices/0000:1b:00.0/local_cpulist": {Data: []byte("8-10,24\n")},
		"bus/pci/devices/10000:3c:00.0/numa_node":    {Data: []byte("-1\n")},
	}
	for bus, want := range map[string]device.Device{
		"00000000:1B:00.0": {NUMA: 1, CPUs: []int{8, 9, 10, 24}},
		"00010000:3C:00.0": {NUMA: device.Unknown},
		"00000000:FF:00.0": {NUMA: device.Unknown},
		"nonsense":         {NUMA: device.Unknown},
	} {
		d := device.Device{PCIBusID: bus, NUMA: 5, CPUs: []int{1}}
		want.PCIBusID = bus
		if sysfs.Place(sys, &d); !reflect.DeepEqual(d, want) {
			t.Errorf("%s: %+v, want %+v", bus, d, want)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "3-1", "1,1", "x", "0-99999999999", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cpus, err := sysfs.ParseCPUs(s)
		if err != nil {
			if !errors.Is(err, sysfs.ErrList) {
				t.Fatal(err)
			}
			return
		}
		for i := 1; i < len(cpus); i++ {
			if cpus[i] <= cpus[i-1] {
				t.Fatalf("%q gives %v", s, cpus)
			}
		}
	})
}
