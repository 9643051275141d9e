// Package sysfs finds what the kernel knows about a GPU's place in the node:
// its NUMA node, the CPUs near it and its device file. It serves the providers
// whose libraries do not say, or say it only in some driver versions.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// ErrList is wrapped by ParseCPUs.
var ErrList = errors.New("bad CPU list")

// Place fills NUMA and CPUs of a device from /sys, given as sys. What the
// kernel does not say stays Unknown and nil.
func Place(sys fs.FS, gpu *device.Device) {
	gpu.NUMA, gpu.CPUs = device.Unknown, nil
	dir := path.Join("bus/pci/devices", kernelBusID(gpu.PCIBusID))
	if text, err := fs.ReadFile(sys, path.Join(dir, "numa_node")); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && n >= 0 {
			gpu.NUMA = n
		}
	}
	if text, err := fs.ReadFile(sys, path.Join(dir, "local_cpulist")); err == nil {
		if cpus, err := ParseCPUs(strings.TrimSpace(string(text))); err == nil && len(cpus) > 0 {
			gpu.CPUs = cpus
		}
	}
}

// kernelBusID turns "00000000:1B:00.0" into the kernel's "0000:1b:00.0".
func kernelBusID(bus string) string {
	bus = strings.ToLower(bus)
	domain, rest, ok := strings.Cut(bus, ":")
	if !ok {
		return bus
	}
	if n, err := strconv.ParseUint(domain, 16, 64); err == nil {
		domain = fmt.Sprintf("%04x", n)
	}
	return domain + ":" + rest
}

// maxCPU bounds a list, so that a damaged file cannot fill the memory.
const maxCPU = 1 << 16

// ParseCPUs reads a kernel list such as "0-3,8,10-11", ascending.
func ParseCPUs(list string) ([]int, error) {
	var out []int
	if list == "" {
		return nil, nil
	}
	for _, part := range strings.Split(list, ",") {
		first, last, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		b := a
		if err == nil && ranged {
			b, err = strconv.Atoi(last)
		}
		if err != nil || a < 0 || b < a || b > maxCPU || (len(out) > 0 && a <= out[len(out)-1]) {
			return nil, fmt.Errorf("%w: %q", ErrList, list)
		}
		for c := a; c <= b; c++ {
			out = append(out, c)
		}
	}
	return out, nil
}
