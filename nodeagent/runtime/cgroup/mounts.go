//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mount is one hierarchy: where it is mounted, which of its groups is visible
// there as the top, and which group this process is in.
type mount struct {
	point, root, self string
}

// ownGroup gives the folder of this process's group, or the visible top when the
// group lies outside of what is mounted.
func (m *mount) ownGroup() string {
	rel := m.self
	if m.root != "/" {
		cut, ok := strings.CutPrefix(m.self, m.root)
		if !ok {
			return m.point
		}
		rel = cut
	}
	dir := filepath.Join(m.point, rel)
	if filepath.Base(dir) == supervisor {
		dir = filepath.Dir(dir)
	}
	return dir
}

type mounts struct {
	unified *mount
	v1      map[string]*mount // by controller
}

func readMounts(mountinfo, self string) (*mounts, error) {
	mi, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	cg, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	return parseMounts(string(mi), string(cg))
}

// parseMounts reads the two files' text: mountinfo names the hierarchies,
// /proc/self/cgroup our place in each.
func parseMounts(mountinfo, self string) (*mounts, error) {
	out := &mounts{v1: map[string]*mount{}}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 {
			return nil, fmt.Errorf("mountinfo: short line %q", line)
		}
		m := &mount{root: unescape(l[3]), point: unescape(l[4]), self: "/"}
		switch r[0] {
		case "cgroup2":
			out.unified = m
		case "cgroup":
			for _, option := range strings.Split(r[2], ",") {
				if option != "rw" && option != "ro" {
					out.v1[option] = m
				}
			}
		}
	}
	for line := range strings.Lines(self) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[1] == "" {
			if out.unified != nil {
				out.unified.self = part[2]
			}
			continue
		}
		for _, c := range strings.Split(part[1], ",") {
			if m := out.v1[c]; m != nil {
				m.self = part[2]
			}
		}
	}
	return out, nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}
