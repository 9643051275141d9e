package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Container is the file tree in which a run's processes are.
type Container struct {
	Image string `cbor:"1,keyasint"` // as spec.Container has it
	// Root is the folder with the image's files; empty until the image is here.
	Root string `cbor:"2,keyasint,omitempty"`
	// Own tells that Root is a folder of the user's, opened with the user's rights.
	Own      bool                  `cbor:"3,keyasint,omitempty"`
	Mounts   []spec.ContainerMount `cbor:"4,keyasint,omitempty"`
	WorkDir  string                `cbor:"5,keyasint,omitempty"` // empty: the image's, else /
	ReadOnly bool                  `cbor:"6,keyasint,omitempty"`
	// Passwd and Group are the user's lines for files of the image that lack them.
	Passwd string `cbor:"7,keyasint,omitempty"`
	Group  string `cbor:"8,keyasint,omitempty"`
	// Keep are variables that those of the image do not replace.
	Keep []string `cbor:"9,keyasint,omitempty"`
}

// containerOf gives the container of a script or a step; nil where there is none.
func containerOf(c *spec.Container, j *Job) *Container {
	if c == nil {
		return nil
	}
	out := &Container{Image: c.Image, Mounts: slices.Clone(c.Mounts), WorkDir: c.WorkDir, ReadOnly: c.ReadOnly, Keep: c.Keep}
	if folder, own := c.Folder(); own {
		out.Root, out.Own = folder, true
	}
	home := homeOf(j)
	if c.Home && strings.HasPrefix(home, "/") && home != "/" {
		out.Mounts = append(out.Mounts, spec.ContainerMount{Source: home, Target: home})
	}
	uid, gid := formatNumber(uint64(j.UID)), formatNumber(uint64(j.GID))
	out.Passwd = cmp.Or(j.User, "user"+uid) + ":x:" + uid + ":" + gid + "::" + cmp.Or(home, "/") + ":/bin/sh"
	out.Group = cmp.Or(j.Group, "group"+gid) + ":x:" + gid + ":"
	return out
}

// homeOf is the home of a job's user, by its environment or as the node knows it.
func homeOf(j *Job) string {
	for _, e := range splitEnv(j.Env) {
		if v, ok := strings.CutPrefix(e, "HOME="); ok && v != "" {
			return v
		}
	}
	return j.Home
}

// Unpacked is an image that is on the node.
type Unpacked struct {
	Root, Digest, WorkDir string
	Env                   []string
}

// Contain completes a run with its image: what the image says of the environment
// replaces what the job has, but for what is to be kept.
func (r *RunSpec) Contain(u *Unpacked) {
	c := *r.Container
	if !c.Own {
		c.Root = u.Root
	}
	c.WorkDir = cmp.Or(c.WorkDir, u.WorkDir, "/")
	r.Container = &c
	about := append(slices.Clip(u.Env), "SLURM_CONTAINER="+c.Image)
	if u.Digest != "" {
		about = append(about, "MUSTER_CONTAINER_DIGEST="+u.Digest)
	}
	if r.Tasks == nil {
		r.Env = overlayEnv(r.Env, about, c.Keep)
		return
	}
	t := *r.Tasks
	t.Env = overlayEnv(t.Env, about, c.Keep)
	t.WorkDir = c.WorkDir
	r.Tasks = &t
}

// overlayEnv lays variables over an environment.
func overlayEnv(env, over, keep []string) []string {
	has := map[string]bool{}
	name := func(e string) string { n, _, _ := strings.Cut(e, "="); return n }
	for _, e := range env {
		has[name(e)] = true
	}
	replaced := map[string]bool{}
	var add []string
	for _, e := range over {
		if n := name(e); !has[n] || !slices.Contains(keep, n) {
			replaced[n] = true
			add = append(add, e)
		}
	}
	out := make([]string, 0, len(env)+len(add))
	for _, e := range env {
		if !replaced[name(e)] {
			out = append(out, e)
		}
	}
	return append(out, add...)
}

// leaveOut takes a program of the site out of a run in a container, where it need
// not be, and has the user told.
func (r *RunSpec) leaveOut(what string, program *string) {
	if *program != "" {
		r.Notices = append(r.Notices, what+" "+*program+" does not run in a container")
		*program = ""
	}
}
