//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// Mode is the kind of control groups a host has.
type Mode string

// The modes, best first.
const (
	V2     Mode = "v2"
	Hybrid Mode = "hybrid"
	V1     Mode = "v1"
	None   Mode = "none"
)

// Options choose where groups are made.
type Options struct {
	Base  string // name of the folder that holds the runs' groups, unique on this host
	Under string // parent group, absolute within the hierarchy; empty means the caller's own group
	Force Mode   // use this mode or None instead of the best one
	// CloneInto says that processes can be made inside a v2 group, so that
	// none needs to move itself.
	CloneInto bool
}

// Host makes groups. Its fields do not change after Detect.
type Host struct {
	mode      Mode
	cloneInto bool
	track     string            // folder whose children hold the processes; v1: of the freezer
	v1        map[string]string // v1 controller -> our folder
	v2        map[string]bool   // controllers enabled for our groups
	notes     []string
	// devicePrograms says that GPU devices are fenced by eBPF: the v2 hierarchy
	// tracks the processes and there is no v1 devices controller.
	devicePrograms bool
}

// supervisor is the leaf that the shepherd moves itself to, because a v2 group
// cannot hold both processes and limited children.
const supervisor = "muster-shepherd"

// ownTree is the group, at the top of the v2 hierarchy, that holds the runs of
// all nodes on this host whose agents are services.
const ownTree = "muster"

// Detect finds the best mode that works for this process. It never fails:
// what does not work is named in Notes.
func Detect(options Options) *Host {
	host := &Host{
		mode:      None,
		v1:        map[string]string{},
		v2:        map[string]bool{},
		cloneInto: options.CloneInto,
	}
	mounts, err := readMounts("/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		host.note("control groups cannot be read (%v)", err)
		return host
	}
	best := V2
	switch {
	case mounts.unified == nil && len(mounts.v1) == 0:
		best = None
	case mounts.unified == nil:
		best = V1
	case len(mounts.v1) > 0:
		best = Hybrid
	}
	if options.Force != "" && options.Force != best {
		if (options.Force == V1 || options.Force == V2) && best == Hybrid || options.Force == None {
			best = options.Force
		} else {
			host.note("control groups are %s here, %s was demanded", best, options.Force)
			best = None
		}
	}
	if err := host.setUp(best, mounts, options); err != nil {
		host.note("no control groups: %v", err)
		host.mode = None
	}
	if host.mode == None {
		host.note(
			"processes are tracked by session and parent only: one that hides can outlive its job",
		)
	}
	return host
}

func (h *Host) note(
	format string,
	a ...any,
) {
	h.notes = append(h.notes, fmt.Sprintf(format, a...))
}

// Mode gives the mode in force.
func (h *Host) Mode() Mode { return h.mode }

// Notes lists what is weaker than it should be, one sentence each.
func (h *Host) Notes() []string { return slices.Clone(h.notes) }

// Tree gives the group of the v2 hierarchy below which those of the runs lie, and how
// many levels deeper; empty where there is none.
func (h *Host) Tree() (dir string, depth int) {
	switch h.mode {
	case V2:
		return h.track, 2 // in a group of the job
	case Hybrid:
		return h.track, 1
	}
	return "", 0
}

// Enforces says which limits hold.
func (h *Host) Enforces() plan.Enforces {
	if h.mode == None {
		return plan.Enforces{}
	}
	has := func(c string) bool { return h.v2[c] || h.v1[c] != "" }
	return plan.Enforces{Memory: has("memory"), Pids: has("pids"), Cores: has("cpuset"),
		Devices: h.v1["devices"] != "" || h.devicePrograms, Tree: true}
}

func (h *Host) setUp(best Mode, m *mounts, options Options) error {
	if best == None {
		return nil
	}
	parent := func(mt *mount) string {
		if options.Under != "" {
			return filepath.Join(mt.point, options.Under)
		}
		return mt.ownGroup()
	}
	if best == V1 {
		fz := m.v1["freezer"]
		if fz == nil {
			return errors.New("the v1 freezer controller is not mounted")
		}
		h.track = filepath.Join(parent(fz), options.Base)
	} else {
		h.track = filepath.Join(parent(m.unified), options.Base)
	}
	tree := ""
	if best == V2 && options.Under == "" {
		tree = makeOwnTree(m.unified)
	}
	if tree != "" {
		h.track = filepath.Join(tree, options.Base)
	}
	if err := probeFolder(h.track); err != nil {
		return err
	}
	h.mode = best
	if best == V2 && tree != "" {
		h.enableV2(tree)
	} else if best == V2 {
		h.enterLeaf(parent(m.unified))
		h.enableV2(parent(m.unified))
	} else {
		for _, c := range []string{"memory", "pids", "cpuset", "cpuacct", "devices", "freezer", "blkio"} {
			mt := m.v1[c]
			if mt == nil || (c == "cpuacct" || c == "freezer") && best == Hybrid {
				continue
			}
			h.useV1(c, filepath.Join(parent(mt), options.Base))
		}
	}
	if best != V1 && h.v1["devices"] == "" {
		err := probeDeviceProgram(h.track)
		h.devicePrograms = err == nil
		if err != nil {
			h.note("devices cannot be fenced: %v", err)
		}
	}
	enforces := h.Enforces()
	for _, w := range []struct {
		ok   bool
		text string
	}{{enforces.Memory, "memory"}, {enforces.Pids, "process"}, {enforces.Cores, "core"}, {enforces.Devices, "device"}} {
		if !w.ok {
			h.note("%s limits are not enforced on this host", w.text)
		}
	}
	return nil
}

// useV1 prepares our folder of one v1 controller, or notes why not.
func (h *Host) useV1(controller, dir string) {
	if err := probeFolder(dir); err != nil {
		h.note("controller %s is not usable: %v", controller, err)
		return
	}
	if controller == "cpuset" {
		if err := copyCPUSet(dir); err != nil {
			h.note("controller cpuset is not usable: %v", err)
			return
		}
	}
	h.v1[controller] = dir
}

// copyCPUSet gives our v1 cpuset folder its parent's CPUs and memory nodes:
// the kernel makes it empty, and an empty set cannot hold processes.
func copyCPUSet(dir string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, f), strings.TrimSpace(string(data))); err != nil {
			return err
		}
	}
	return nil
}

// probeFolder makes the folder and shows that groups can be made in it.
func probeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make control group: %w", err)
	}
	child := filepath.Join(dir, fmt.Sprintf("probe-%d", os.Getpid()))
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make control group: %w", err)
	}
	return os.Remove(child)
}

// controllersV2 are those that our groups use.
var controllersV2 = []string{"memory", "pids", "cpuset", "cpu", "io"}

// makeOwnTree makes a group beside those of the service manager, for all runs,
// and returns it. It returns "" where the process lives in the root of the
// hierarchy that it sees, which can hold processes and limited groups alike, and
// where it may not make such a group.
//
// The runs cannot be limited below the group of the agent's own service: a v2
// group with limited children holds no processes, so the agent, which lives
// there, would keep the controllers from being enabled, and systemd before 254
// could not restart the agent into a group where they are.
func makeOwnTree(unified *mount) string {
	if unified.ownGroup() == unified.point {
		return ""
	}
	tree := filepath.Join(unified.point, ownTree)
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return ""
	}
	for _, controller := range controllersV2 {
		// One that cannot be enabled is missing in the tree, and noted there.
		_ = writeFile(filepath.Join(unified.point, "cgroup.subtree_control"), "+"+controller)
	}
	if err := probeFolder(tree); err != nil {
		_ = os.Remove(tree)
		return ""
	}
	return tree
}

// enterLeaf moves this process out of a group whose children are to be limited.
func (h *Host) enterLeaf(parent string) {
	if _, err := os.Stat(filepath.Join(parent, "cgroup.type")); err != nil {
		return // the root of the hierarchy: it can hold processes
	}
	leaf := filepath.Join(parent, supervisor)
	err := os.MkdirAll(leaf, 0o755)
	if err == nil {
		err = writeFile(filepath.Join(leaf, "cgroup.procs"), "0")
	}
	if err != nil {
		h.note("the shepherd could not move to its own group: %v", err)
	}
}

// enableV2 hands the controllers down to our groups, level by level.
func (h *Host) enableV2(parent string) {
	have, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		h.note("controllers cannot be read: %v", err)
		return
	}
	for _, c := range strings.Fields(string(have)) {
		if !slices.Contains(controllersV2, c) {
			continue
		}
		err := writeFile(filepath.Join(parent, "cgroup.subtree_control"), "+"+c)
		if err == nil {
			err = writeFile(filepath.Join(h.track, "cgroup.subtree_control"), "+"+c)
		}
		if err != nil {
			h.note("controller %s is not usable below %s: %v", c, parent, err)
			continue
		}
		h.v2[c] = true
	}
}

// Names lists the groups that exist, of this shepherd or of one before it. Jobs'
// folders that hold none are removed.
func (h *Host) Names() ([]string, error) {
	if h.mode == None {
		return nil, nil
	}
	out, err := h.listGroups(h.track)
	if base := h.v1["memory"]; base != "" {
		_, merr := h.listGroups(base)
		err = errors.Join(err, merr)
	}
	if err != nil {
		return nil, fmt.Errorf("list control groups: %w", err)
	}
	return out, nil
}

// listGroups lists the groups below a folder, most of which are in folders of jobs.
func (h *Host) listGroups(base string) (out []string, err error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		inside, err := os.ReadDir(filepath.Join(base, entry.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		job := false
		for _, g := range inside {
			ours := jobOf(g.Name()) == entry.Name() || olderJobOf(g.Name()) == entry.Name()
			if g.IsDir() && ours {
				out, job = append(out, g.Name()), true
			}
		}
		switch {
		case job:
		case isJobs(entry.Name()):
			_ = os.Remove(filepath.Join(base, entry.Name()))
		case strings.Count(entry.Name(), ".") >= stepPart:
			out = append(out, entry.Name())
		}
	}
	return out, nil
}

// lacksFolder tells that one of our folders is gone.
func (h *Host) lacksFolder() bool {
	if !dirExists(h.track) {
		return true
	}
	for _, dir := range h.v1 {
		if !dirExists(dir) {
			return true
		}
	}
	return false
}

// remakeFolders makes our folders again, with the controllers that they had.
func (h *Host) remakeFolders() error {
	if err := probeFolder(h.track); err != nil {
		return err
	}
	for _, controller := range controllersV2 {
		if !h.v2[controller] {
			continue
		}
		path := filepath.Join(h.track, "cgroup.subtree_control")
		if err := writeFile(path, "+"+controller); err != nil {
			return fmt.Errorf("make control group again: %w", err)
		}
	}
	for controller, dir := range h.v1 {
		if err := probeFolder(dir); err != nil {
			return err
		}
		if controller == "cpuset" {
			if err := copyCPUSet(dir); err != nil {
				return fmt.Errorf("make control group again: %w", err)
			}
		}
	}
	return nil
}

// Close removes our folders where no group is left in them.
func (h *Host) Close() {
	if h.mode == None {
		return
	}
	_ = os.Remove(h.track)
	for _, d := range h.v1 {
		_ = os.Remove(d)
	}
}
