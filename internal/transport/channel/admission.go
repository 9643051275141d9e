package channel

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Admission decides for each call who is asking. It is asked on every call, not only when a connection opens, so that a
// revocation or the end of a certificate takes effect at once.
type Admission struct {
	Revoked  func(serial string) bool // nil = nothing is revoked
	Now      func() time.Time         // required
	JobThere identity.JobThere        // whether a compute node may speak for a user; nil = no
	// Vouches tells that a controller of this name belongs to the group and may pass its host's users' calls on; nil = no.
	Vouches func(controller string) bool
	// Token gives the identity for which a user's token stands; nil = tokens are not accepted.
	Token func(text string) (identity.Identity, error)
	// Munge tells whose a MUNGE credential is that was shown on the connection with this
	// binding; nil = none is accepted.
	Munge func(credential, binding string) (identity.Identity, error)
	Names identity.Resolver // names of attested users, from the controller's own sources; nil = none
}

// Admit returns the identity for one call: the channel's own, or that of the user for whom an authorised channel vouches in the
// HeaderAttest header. Errors are *rpcstatus.Error.
func (a *Admission) Admit(
	ctx context.Context,
	channel identity.Identity,
	header func(key string) (string, bool),
) (identity.Identity, error) {
	if channel.Serial != "" {
		if a.Revoked != nil && a.Revoked(channel.Serial) {
			return identity.Nameless(), rpcstatus.New(
				rpcstatus.Unauthenticated,
				"the certificate of %s (serial %s) is revoked",
				channel,
				channel.Serial,
			)
		}
		if !a.Now().Before(channel.NotAfter) {
			return identity.Nameless(), rpcstatus.New(
				rpcstatus.Unauthenticated,
				"the certificate of %s expired at %s: enrol the host again",
				channel,
				channel.NotAfter.UTC().Format(time.RFC3339),
			)
		}
	}
	text, attests := header(framed.HeaderAttest)
	if token, given := header(framed.HeaderToken); given {
		if attests {
			return identity.Nameless(), rpcstatus.New(
				rpcstatus.InvalidArgument,
				"a call has a token or an attestation, not both",
			)
		}
		return a.admitToken(channel, token)
	}
	if credential, given := header(framed.HeaderMunge); given {
		return a.admitMunge(ctx, channel, credential)
	}
	if !attests {
		return channel, nil
	}
	claim, err := parseAttestation(text)
	if err != nil {
		return identity.Nameless(), err
	}
	var id identity.Identity
	if channel.Kind == identity.Controller && a.Vouches != nil && a.Vouches(channel.Node) {
		id, err = channel.AttestLocal(claim)
	} else {
		id, err = channel.Attest(claim, a.JobThere)
	}
	if err != nil {
		return identity.Nameless(), rpcstatus.New(rpcstatus.PermissionDenied, "%v", err)
	}
	if a.Names != nil {
		if name, err := a.Names.UserName(ctx, id.UID); err == nil {
			id.User = name
		}
	}
	return id, nil
}

// admitMunge gives the identity whose credential of MUNGE was shown on a connection.
func (a *Admission) admitMunge(
	ctx context.Context,
	channel identity.Identity,
	credential string,
) (identity.Identity, error) {
	if a.Munge == nil {
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"MUNGE is not accepted here: set AuthType=auth/munge in slurm.conf and run munged on the controllers, or run muster-agent --login on this host",
		)
	}
	id, err := a.Munge(credential, channel.Binding)
	if err != nil {
		return identity.Nameless(), rpcstatus.New(rpcstatus.Unauthenticated, "%v", err)
	}
	id.Cluster = channel.Cluster
	if a.Names != nil && !id.Squashed {
		name, err := a.Names.UserName(ctx, id.UID)
		if err != nil {
			return identity.Nameless(), rpcstatus.New(
				rpcstatus.Unauthenticated,
				"MUNGE: there is no user with uid %d on the controller's host",
				id.UID,
			)
		}
		id.User = name
	}
	return id, nil
}

// admitToken gives the identity for which a token stands, whoever shows it.
func (a *Admission) admitToken(
	channel identity.Identity,
	token string,
) (identity.Identity, error) {
	if a.Token == nil {
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"tokens are not accepted here: unset SLURM_JWT",
		)
	}
	id, err := a.Token(token)
	if err != nil {
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"SLURM_JWT: %v; make a new token (scontrol token), or unset SLURM_JWT",
			err,
		)
	}
	id.Node = "token"
	if channel.Node != "" {
		id.Node = channel.Node
	}
	return id, nil
}

func parseAttestation(text string) (identity.Attestation, error) {
	u, g, _ := strings.Cut(text, ":")
	uid, uerr := strconv.ParseUint(u, 10, 32)
	gid, gerr := strconv.ParseUint(g, 10, 32)
	if uerr != nil || gerr != nil {
		return identity.Attestation{}, rpcstatus.New(
			rpcstatus.InvalidArgument,
			"header %s: %q, want UID:GID",
			framed.HeaderAttest,
			text,
		)
	}
	return identity.Attestation{UID: uint32(uid), GID: uint32(gid)}, nil
}
