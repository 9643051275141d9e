package plan

import (
	"cmp"
	"path"
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
	// Programs are the node's files that are seen in the container at their own
	// paths, where the node has them: TaskProlog and TaskEpilog of the site.
	Programs []string `cbor:"10,keyasint,omitempty"`
	// LoginFile is where the user keeps logins at registries; the agent reads it
	// with the user's rights.
	LoginFile string `cbor:"11,keyasint,omitempty"`
	// Digest is what Image meant for the job before; empty: the registry says it.
	Digest string `cbor:"12,keyasint,omitempty"`
	// Bundle tells that Image is the folder of an OCI bundle, which says where Root
	// is.
	Bundle bool `cbor:"13,keyasint,omitempty"`
}

// containerOf gives the container of a script or a step; nil where there is none.
func containerOf(container *spec.Container, job *Job) *Container {
	if container == nil {
		return nil
	}
	out := &Container{
		Image:    container.Image,
		Mounts:   slices.Clone(container.Mounts),
		WorkDir:  container.WorkDir,
		ReadOnly: container.ReadOnly,
		Keep:     container.Keep,
	}
	home := homeOf(job)
	if folder, own := container.Folder(); own {
		out.Root = folder
		out.Own = true
		out.Bundle = container.Bundle
	} else {
		out.LoginFile = loginFile(job, home)
		out.Digest = spec.FindDigest(job.Images, container.Image)
	}
	if container.Home && strings.HasPrefix(home, "/") && home != "/" {
		out.Mounts = append(out.Mounts, spec.ContainerMount{Source: home, Target: home})
	}
	uid, gid := formatNumber(uint64(job.UID)), formatNumber(uint64(job.GID))
	out.Passwd = cmp.Or(job.User, "user"+uid) + ":x:" + uid + ":" + gid + "::" +
		cmp.Or(home, "/") + ":/bin/sh"
	out.Group = cmp.Or(job.Group, "group"+gid) + ":x:" + gid + ":"
	return out
}

// homeOf is the home of a job's user, by its environment or as the node knows it.
func homeOf(job *Job) string { return cmp.Or(envOf(job, "HOME"), job.Home) }

// envOf is one of a job's environment.
func envOf(job *Job, name string) string {
	for _, e := range splitEnv(job.Env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok && v != "" {
			return v
		}
	}
	return ""
}

// loginFile is where docker login and podman login of a job's user write, which
// variables of theirs can move; empty where it is not a path from the root on.
func loginFile(job *Job, home string) string {
	file := envOf(job, "REGISTRY_AUTH_FILE")
	if folder := envOf(job, "DOCKER_CONFIG"); file == "" && folder != "" {
		file = path.Join(folder, "config.json")
	}
	if file == "" && home != "" {
		file = path.Join(home, ".docker", "config.json")
	}
	if !path.IsAbs(file) {
		return ""
	}
	return file
}

// Unpacked is an image that is on the node, or what a bundle says.
type Unpacked struct {
	Root, Digest, WorkDir string
	Env                   []string
	// Of a bundle.
	ReadOnly bool
	Mounts   []spec.ContainerMount
}

// Contain completes a run with its image: what the image says of the environment
// replaces what the job has, but for what is to be kept.
func (r *RunSpec) Contain(unpacked *Unpacked) {
	container := *r.Container
	if !container.Own || container.Bundle {
		container.Root = unpacked.Root
	}
	container.ReadOnly = container.ReadOnly || unpacked.ReadOnly
	// The user's own mounts come last and lie over those of a bundle.
	container.Mounts = append(slices.Clip(unpacked.Mounts), container.Mounts...)
	container.WorkDir = cmp.Or(container.WorkDir, unpacked.WorkDir, "/")
	r.Container = &container
	about := append(slices.Clip(unpacked.Env), "SLURM_CONTAINER="+container.Image)
	if unpacked.Digest != "" {
		about = append(about, "MUSTER_CONTAINER_DIGEST="+unpacked.Digest)
	}
	if r.Tasks == nil {
		r.Env = overlayEnv(r.Env, about, container.Keep)
		return
	}
	tasks := *r.Tasks
	tasks.Env = overlayEnv(tasks.Env, about, container.Keep)
	tasks.WorkDir = container.WorkDir
	r.Tasks = &tasks
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

// showPrograms has programs of the site seen in the container of a run.
func (r *RunSpec) showPrograms(programs ...string) {
	for _, p := range programs {
		if p != "" && r.Container != nil {
			r.Container.Programs = append(r.Container.Programs, p)
		}
	}
}
