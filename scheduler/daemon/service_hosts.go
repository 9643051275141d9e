package daemon

import (
	"context"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// The roles of a machine's certificate, as events name them.
const (
	roleAgent = "agent"
	roleLogin = "login"
)

// defaultToken is how long an enrolment token lives.
const defaultToken = spec.Day

// requireKeeper lets those in who may say which machines belong to the cluster. A
// machine vouches for its users, so this is not done from one: who has taken a
// login host could bring further ones in, to stay.
func (s *authority) requireKeeper(ctx context.Context) (event.Actor, error) {
	caller, actor, err := s.knownCaller(ctx)
	switch {
	case err != nil:
		return actor, err
	case !s.isAdministrator(caller):
		return actor, spec.Refuse(
			spec.CodeAccessDenied,
			"only administrators add and revoke machines",
		)
	case caller.FromElsewhere():
		return actor, spec.Refuse(
			spec.CodeAccessDenied,
			"hosts are admitted and removed on the controller's host, or with an administrator's certificate",
		)
	}
	return actor, nil
}

// CreateToken makes a single-use enrolment token for a node or a login host.
func (s *tokenCalls) CreateToken(
	ctx context.Context,
	req *apiv1.CreateTokenRequest,
) (*apiv1.CreateTokenReply, error) {
	actor, err := s.requireKeeper(ctx)
	if err != nil {
		return nil, err
	}
	cluster, name := s.C.View().State, req.GetNode()
	switch known := cluster.Node(name) != nil; {
	case req.GetLogin() && hostlist.CheckName(name) != nil:
		return nil, spec.Refuse(
			spec.CodeInvalidNodeName,
			fmt.Sprintf("%q cannot be the name of a host", name),
		)
	case !req.GetLogin() && !known &&
		(cluster.Config.MaxNodes == 0 || hostlist.CheckName(name) != nil):
		return nil, spec.Refuse(
			spec.CodeInvalidNodeName,
			fmt.Sprintf("%q is not in the configuration", name),
		)
	}
	life := spec.Span(req.GetLifetime())
	if life <= 0 {
		life = defaultToken
	}
	expires := s.C.deps.Clock.Now().Add(life)
	text, hash, err := s.C.deps.Access.NewToken(name, req.GetLogin(), expires)
	if err != nil {
		return nil, err
	}
	ev := &event.TokenIssued{Hash: hash, Node: name, Expires: expires}
	if req.GetLogin() {
		ev.Role = roleLogin
	}
	if rep := s.C.writer.commitCommand(ctx, &request{cmd: scheduler.Policy{Events: []event.Event{ev}}, actor: actor}); rep.err != nil {
		return nil, rep.err
	}
	return &apiv1.CreateTokenReply{Token: text, Expires: int64(expires)}, nil
}

// ListHosts tells which machines have a certificate that has not expired. Only
// administrators see the serial numbers, with which nobody else has business.
func (s *tokenCalls) ListHosts(
	ctx context.Context,
	_ *apiv1.ListHostsRequest,
) (*apiv1.ListHostsReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	withSerials := s.isAdministrator(caller)
	now := s.C.deps.Clock.Now()
	out := &apiv1.ListHostsReply{Now: int64(now)}
	for _, cert := range s.C.View().State.Access.Certs {
		if cert.Expires > now {
			host := hostInfo(cert)
			if !withSerials {
				host.Serial = ""
			}
			out.Hosts = append(out.Hosts, host)
		}
	}
	return out, nil
}

func hostInfo(cert state.Cert) *apiv1.HostInfo {
	return &apiv1.HostInfo{
		Name:    cert.Name,
		Role:    cert.Role,
		Serial:  cert.Serial,
		Expires: int64(cert.Expires),
		Revoked: cert.Revoked,
	}
}

// RevokeHost ends the certificates of a machine: what it asks from then on is
// refused, and its connections end, also those that it opened with a certificate
// that has expired since. With a new token it can come back.
func (s *tokenCalls) RevokeHost(
	ctx context.Context,
	req *apiv1.RevokeHostRequest,
) (*apiv1.RevokeHostReply, error) {
	actor, err := s.requireKeeper(ctx)
	if err != nil {
		return nil, err
	}
	if role := req.GetRole(); role != "" && role != roleAgent && role != roleLogin {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("a machine is an %s or a %s, not %q", roleAgent, roleLogin, role),
		)
	}
	before := s.C.View().State.Access
	cmd := scheduler.RevokeHost{Name: req.GetName(), Role: req.GetRole(), Reason: req.GetReason()}
	if rep := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor}); rep.err != nil {
		return nil, rep.err
	}
	out := &apiv1.RevokeHostReply{}
	for _, cert := range s.C.View().State.Access.Certs {
		if cert.Name != req.GetName() || !cert.Revoked {
			continue
		}
		if old := before.Cert(cert.Serial); old == nil || !old.Revoked {
			out.Hosts = append(out.Hosts, hostInfo(cert))
		}
	}
	if s.C.deps.Revoked != nil {
		s.C.deps.Revoked(req.GetName(), req.GetRole())
	}
	s.C.hub.tellRevoked()
	return out, nil
}

// revokedCertificates are the certificates that agents must refuse though they have not expired.
func (c *Controller) revokedCertificates() *apiv1.Revoked {
	revoked, now := &apiv1.Revoked{}, c.deps.Clock.Now()
	for _, cert := range c.View().State.Access.Certs {
		if cert.Revoked && cert.Expires > now {
			revoked.Serials = append(revoked.Serials, cert.Serial)
		}
	}
	return revoked
}
