package dra

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// Names of the CDI devices that this program makes: one spec for each claim, since a
// container runtime may remember what a name meant, and a claim's UID never comes again.
const (
	cdiVendor = "musterhpc.github.io"
	cdiClass  = "gpu"
	cdiKind   = cdiVendor + "/" + cdiClass
)

// control are the device files that every container with an NVIDIA GPU needs.
var control = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// specs writes and finds CDI specs.
type specs struct {
	cache  *cdi.Cache
	dir    string
	vendor string // kind of the specs that NVIDIA's toolkit writes; empty: not looked for
}

// newSpecs uses a folder for the specs of claims, and further ones in which the
// vendor's are.
func newSpecs(dir string, further []string, vendor string) (*specs, error) {
	// Of several folders the last one has the highest priority, and is written to.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(append(further, dir)...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the folder of CDI specs: %w", err)
	}
	return &specs{cache: cache, dir: dir, vendor: vendor}, nil
}

// vendorDevice is the vendor's own CDI device of a UUID, which brings the libraries of
// the driver too; empty: there is none.
func (s *specs) vendorDevice(uuid string) string {
	if s.vendor == "" {
		return ""
	}
	// What is wrong with the specs of others is theirs; ours are checked as they are written.
	_ = s.cache.Refresh()
	name := s.vendor + "=" + uuid
	if s.cache.GetDevice(name) == nil {
		return ""
	}
	return name
}

func specName(claim types.UID) string {
	return cdi.GenerateTransientSpecName(cdiVendor, cdiClass, string(claim))
}

// file is where the spec of a claim lies.
func (s *specs) file(claim types.UID) string {
	return filepath.Join(s.dir, specName(claim)+".yaml")
}

// write makes the spec of a claim.
func (s *specs) write(claim types.UID, devices []given) error {
	raw := &cdispec.Spec{Kind: cdiKind}
	for _, g := range devices {
		edits := cdispec.ContainerEdits{
			// The runtime of NVIDIA adds all devices to a container that does not say this.
			Env: []string{"NVIDIA_VISIBLE_DEVICES=void", g.Env + "=" + g.UUID},
		}
		for _, file := range g.Files {
			edits.DeviceNodes = append(edits.DeviceNodes, &cdispec.DeviceNode{Path: file})
		}
		raw.Devices = append(raw.Devices, cdispec.Device{Name: cdiDevice(claim, g.Device), ContainerEdits: edits})
	}
	version, err := cdi.MinimumRequiredVersion(raw)
	if err != nil {
		return err
	}
	raw.Version = version
	return s.cache.WriteSpec(raw, specName(claim))
}

func cdiDevice(claim types.UID, device string) string { return string(claim) + "-" + device }

// remove takes the spec of a claim away. One that is not there has been.
func (s *specs) remove(claim types.UID) error {
	err := os.Remove(s.file(claim))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// sweep removes specs of claims that are not prepared, which a crash has left.
func (s *specs) sweep(keep map[types.UID]*prepared) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	prefix := specName("")
	for _, e := range entries {
		claim, ours := strings.CutPrefix(e.Name(), prefix)
		claim, isSpec := strings.CutSuffix(claim, ".yaml")
		if !ours || !isSpec || keep[types.UID(claim)] != nil {
			continue
		}
		if err := s.remove(types.UID(claim)); err != nil {
			return err
		}
	}
	return nil
}

// filesOf are the files of a device that a container gets: its own, and those that the
// vendor's driver needs beside it.
func filesOf(d *device.Device) []string {
	out := append([]string(nil), d.Files...)
	if len(out) == 0 {
		return nil
	}
	for _, file := range control {
		if _, err := os.Stat(file); err == nil {
			out = append(out, file)
		}
	}
	return out
}
