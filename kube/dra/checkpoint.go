package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
	"github.com/musterhpc/muster/spec"
)

// checkpointVersion is that of the file's form. A file of a newer one is refused.
const checkpointVersion = 1

// prepared is a claim whose devices a pod may use.
type prepared struct {
	Claim   types.NamespacedName `json:"claim"`
	Pod     types.NamespacedName `json:"pod"`
	PodUID  types.UID            `json:"podUID"`
	Devices []given              `json:"devices"`
	Since   spec.Instant         `json:"since"`
}

// given is one device of a claim.
type given struct {
	Request    string   `json:"request"`
	Device     string   `json:"device"` // name in the pool
	UUID       string   `json:"uuid"`
	Env        string   `json:"env"`
	Files      []string `json:"files,omitempty"` // of the device, where no other CDI spec has them
	CDI        []string `json:"cdi"`             // names of CDI devices
	Containers []string `json:"containers,omitempty"`
}

// checkpoint is what the program remembers over its restart: kubelet asks for the end
// of a claim by its UID alone, maybe after the claim and its pod are gone.
type checkpoint struct {
	Version int                     `json:"version"`
	Claims  map[types.UID]*prepared `json:"claims"`
}

// readCheckpoint reads a file; one that is not there is empty.
func readCheckpoint(file string) (*checkpoint, error) {
	c := &checkpoint{Version: checkpointVersion, Claims: map[types.UID]*prepared{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; remove it after all pods with GPUs have left the node", file, err)
	}
	if c.Version != checkpointVersion {
		return nil, fmt.Errorf("%s has version %d, and this program knows version %d: run the release that wrote it",
			file, c.Version, checkpointVersion)
	}
	if c.Claims == nil {
		c.Claims = map[types.UID]*prepared{}
	}
	return c, nil
}

// write replaces the file at once, and returns when it is on disk.
func (c *checkpoint) write(file string) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	temporary, err := os.CreateTemp(dir, ".checkpoint-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // it is not there any more if all went well
	_, err = temporary.Write(data)
	if err == nil {
		err = temporary.Sync()
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary.Name(), file); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// holder finds the claim that has a device.
func (c *checkpoint) holder(device string) (types.UID, *prepared) {
	for uid, p := range c.Claims {
		if slices.ContainsFunc(p.Devices, func(g given) bool { return g.Device == device }) {
			return uid, p
		}
	}
	return "", nil
}

// pods lists who has which device, by device.
func (c *checkpoint) pods() []podapi.Pod {
	var out []podapi.Pod
	for _, uid := range slices.Sorted(maps.Keys(c.Claims)) {
		p := c.Claims[uid]
		for _, g := range p.Devices {
			pod := podapi.Pod{UUID: g.UUID, Namespace: p.Pod.Namespace, Pod: p.Pod.Name, From: p.Since}
			if len(g.Containers) == 1 {
				pod.Container = g.Containers[0]
			}
			out = append(out, pod)
		}
	}
	return out
}
