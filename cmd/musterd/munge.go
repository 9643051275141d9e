package main

import (
	"strings"

	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/munge"
)

// mungeDoor lets in users of hosts without an agent by credentials of MUNGE; nil where slurm.conf
// does not ask for it, and where this host has no MUNGE.
func (s *server) mungeDoor() func(credential, binding string) (identity.Identity, error) {
	on := false
	socket := ""
	for _, kv := range s.cluster.Raw {
		switch strings.ToLower(kv.Key) {
		case "authtype":
			on = kv.Value == "auth/munge"
		case "authinfo":
			socket = tool.MungeSocket(kv.Value)
		}
	}
	if !on {
		return nil
	}
	library, err := munge.Open(socket)
	if err != nil {
		s.log.Info(
			"AuthType=auth/munge: commands of hosts without an agent are not let in; run muster-agent --login there, or install MUNGE here",
			"why",
			err,
		)
		return nil
	}
	return munge.NewDoor(library).Admit
}
