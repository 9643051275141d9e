package settings

import (
	"path/filepath"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/nodeagent/enrolment"
)

// NodeParty is the node.
func (s *Settings) NodeParty() enrolment.Party {
	return enrolment.Party{
		Name:      s.Node.Name,
		Role:      identity.Agent,
		TLS:       filepath.Join(s.StateDir, "tls"),
		TokenFile: s.TokenFile,
	}
}
