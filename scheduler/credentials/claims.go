// Package credentials names what a job credential claims: which run an agent
// may start, as whom, until when. Signing and checking are not its business.
package credentials

import "github.com/musterhpc/muster/spec"

// Claims are the facts of a credential.
type Claims struct {
	Cluster  [16]byte
	Job      spec.JobUID
	Attempt  uint32
	Step     spec.StepID
	UID, GID uint32
	Groups   []uint32
	Nodes    []string
	Issued   spec.Instant
	Expires  spec.Instant
	Launch   spec.Hash // of the script
	Epoch    uint64    // of the attempt's runs; 0 = started by an older release
	Run      spec.Hash // of script, environment, user and allocation; zero with epoch 0
}
