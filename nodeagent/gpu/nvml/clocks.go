//go:build linux && cgo

package nvml

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

// ask calls a function of the library, which is loaded already: one with the
// device, room and numbers, or with a frequency of the memory before those.
static int ask(const char *library, const char *function, void *device, unsigned int memory, unsigned int *n, unsigned int *out) {
	void *lib = dlopen(library, RTLD_LAZY | RTLD_NOLOAD), *f = lib ? dlsym(lib, function) : NULL;
	int ret = 13; // NVML_ERROR_FUNCTION_NOT_FOUND
	if (f)
		ret = memory ? ((int (*)(void *, unsigned int, unsigned int *, unsigned int *))f)(device, memory, n, out)
		             : ((int (*)(void *, unsigned int *, unsigned int *))f)(device, n, out);
	if (lib) dlclose(lib);
	return ret;
}
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// ListClocks implements gpu.Clocks.
func (p *Provider) ListClocks(ctx context.Context, uuid string) ([]device.Clocks, error) {
	var out []device.Clocks
	err := p.runClocked(ctx, uuid, func(h nvml.Device) error {
		memory, ret := p.listNumbers("nvmlDeviceGetSupportedMemoryClocks", h, 0)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("asking which memory clocks there are: %w", ret)
		}
		for _, m := range memory {
			graphics, ret := p.listNumbers("nvmlDeviceGetSupportedGraphicsClocks", h, m)
			if ret != nvml.SUCCESS {
				return fmt.Errorf("asking which clocks there are at %d MHz of memory: %w", m, ret)
			}
			for _, g := range graphics {
				out = append(out, device.Clocks{Memory: m, Graphics: g})
			}
		}
		return nil
	})
	return out, err
}

// SetClocks implements gpu.Clocks: by application clocks, or where the device
// has none, by locking the clocks.
func (p *Provider) SetClocks(
	ctx context.Context,
	uuid string,
	c device.Clocks,
) (before device.Clocks, err error) {
	err = p.runClocked(ctx, uuid, func(h nvml.Device) error {
		before = p.applicationClocks(h, nvml.Device.GetApplicationsClock)
		if before == p.applicationClocks(h, nvml.Device.GetDefaultApplicationsClock) {
			before = device.Clocks{}
		}
		ret := nvml.ERROR_NOT_SUPPORTED
		if hasSymbol(p.lib, "nvmlDeviceSetApplicationsClocks") {
			ret = h.SetApplicationsClocks(c.Memory, c.Graphics)
		}
		if ret != nvml.ERROR_NOT_SUPPORTED || !hasSymbol(p.lib, "nvmlDeviceSetGpuLockedClocks") {
			return refusal(ret)
		}
		before = device.Clocks{Locked: true}
		if ret = h.SetGpuLockedClocks(c.Graphics, c.Graphics); ret != nvml.SUCCESS ||
			!hasSymbol(p.lib, "nvmlDeviceSetMemoryLockedClocks") {
			return refusal(ret)
		}
		if ret = h.SetMemoryLockedClocks(c.Memory, c.Memory); ret == nvml.ERROR_NOT_SUPPORTED {
			return nil // the memory of the device has one clock only
		}
		return refusal(ret)
	})
	return before, err
}

// ResetClocks implements gpu.Clocks.
func (p *Provider) ResetClocks(ctx context.Context, uuid string, before device.Clocks) error {
	return p.runClocked(ctx, uuid, func(h nvml.Device) error {
		switch {
		case before.Locked:
			ret := h.ResetGpuLockedClocks()
			if ret == nvml.SUCCESS && hasSymbol(p.lib, "nvmlDeviceResetMemoryLockedClocks") {
				if ret = h.ResetMemoryLockedClocks(); ret == nvml.ERROR_NOT_SUPPORTED {
					ret = nvml.SUCCESS
				}
			}
			return refusal(ret)
		case before.Graphics != 0 && before.Memory != 0:
			return refusal(h.SetApplicationsClocks(before.Memory, before.Graphics))
		}
		return refusal(h.ResetApplicationsClocks())
	})
}

// refusal says what the driver means.
func refusal(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NO_PERMISSION:
		return errors.New(
			"the driver does not permit it: the agent must be root, or application clocks be unrestricted (nvidia-smi -acp 0)",
		)
	case nvml.ERROR_NOT_SUPPORTED:
		return errors.New("the device cannot set its clocks")
	}
	return ret
}

// applicationClocks reads the application clocks; zero where there are none.
func (p *Provider) applicationClocks(
	h nvml.Device,
	read func(nvml.Device, nvml.ClockType) (uint32, nvml.Return),
) device.Clocks {
	if !hasSymbol(p.lib, "nvmlDeviceGetApplicationsClock") ||
		!hasSymbol(p.lib, "nvmlDeviceGetDefaultApplicationsClock") {
		return device.Clocks{}
	}
	m, ret := read(h, nvml.CLOCK_MEM)
	g, also := read(h, nvml.CLOCK_GRAPHICS)
	if ret != nvml.SUCCESS || also != nvml.SUCCESS {
		return device.Clocks{}
	}
	return device.Clocks{Memory: m, Graphics: g}
}

// runClocked runs f on a whole device.
func (p *Provider) runClocked(ctx context.Context, uuid string, f func(nvml.Device) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkUsable(ctx); err != nil {
		return err
	}
	i := slices.IndexFunc(p.parts, func(x part) bool { return x.uuid == uuid })
	switch {
	case i < 0:
		return fmt.Errorf("GPU %s is not on this node", uuid)
	case p.parts[i].mig:
		return errors.New("an instance of a device has no clocks of its own")
	}
	return f(p.parts[i].handle)
}

// listNumbers asks for a list of numbers. The binding has room for one, with which
// no driver answers, so the library is asked itself.
func (p *Provider) listNumbers(symbol string, h nvml.Device, memory uint32) ([]uint32, nvml.Return) {
	name := p.library
	if name == "" {
		name = "libnvidia-ml.so.1"
	}
	field := reflect.ValueOf(h).FieldByName("Handle")
	if !field.IsValid() {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	library, function := C.CString(name), C.CString(symbol)
	defer C.free(unsafe.Pointer(library))
	defer C.free(unsafe.Pointer(function))
	var list [256]uint32
	count := uint32(len(list))
	ret := C.ask(
		library,
		function,
		field.UnsafePointer(),
		C.uint(memory),
		(*C.uint)(unsafe.Pointer(&count)),
		(*C.uint)(unsafe.Pointer(&list[0])),
	)
	if ret != 0 {
		return nil, nvml.Return(ret)
	}
	return slices.Clone(list[:min(int(count), len(list))]), nvml.SUCCESS
}
