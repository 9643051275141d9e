package plan

import (
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Space says which folders a job has for itself on a node, and how they are
// made. The first run of an attempt makes them; all its runs share them, and they
// are gone with the attempt.
type Space struct {
	Base   string   `cbor:"1,keyasint"`           // folder in which those of the attempts are made
	Auto   bool     `cbor:"2,keyasint,omitempty"` // make Base where it is missing
	Dirs   []string `cbor:"3,keyasint"`           // where a job sees its own
	Shared bool     `cbor:"4,keyasint,omitempty"` // what is mounted on the node later is seen in the job
	// Init is a program that runs as root, outside of the space, before it is made.
	Init    string   `cbor:"5,keyasint,omitempty"`
	InitEnv []string `cbor:"6,keyasint,omitempty"`
	// Through are paths of the node in Dirs that the job sees nevertheless, where
	// they exist.
	Through []string `cbor:"7,keyasint,omitempty"`
}

// mpsDirectory is where clients of MPS look for a server by themselves.
const mpsDirectory = "/tmp/nvidia-mps"

// spaceOf gives the private folders of a job on its node; nil where there are
// none. The server that a job shares a GPU through is seen in them.
func spaceOf(job *Job, node *Node) *Space {
	if node.Space == nil {
		return nil
	}
	space := *node.Space
	if space.Init != "" {
		space.InitEnv = append(ScriptEnv(job, node), "SLURM_SCRIPT_CONTEXT=namespace_init")
	}
	for _, share := range job.Here.Shares {
		server := mpsDirectory
		if node.MPSEach {
			server = MPSDirectory(share.Index)
		}
		if (share.Name == "mps" || share.Name == spec.VRAM) &&
			!slices.Contains(space.Through, server) {
			space.Through = append(slices.Clip(space.Through), server)
		}
	}
	return &space
}
