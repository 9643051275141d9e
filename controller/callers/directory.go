package callers

import (
	"time"

	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/ledger/state"
)

// Directory is what a process of musterd knows of those who may call it, by the state of the
// cluster. What it knows changes when its controller begins or ends to lead.
type Directory struct {
	// Leading gives the present state, and nil unless a controller of this process leads.
	Leading func() *state.State
	// Known gives the newest state of this process, which a standby has, too; nil = it has none.
	Known func() *state.State
	// SentAway tells accounting that runs apart which certificates are revoked, as its controller
	// says; nil elsewhere.
	SentAway func(serial string) bool
}

// Revocations is a list of revoked certificates.
type Revocations interface {
	Revoked(serial string) bool
}

// JobThere is identity.JobThere: of several jobs that a user has on a node, the
// group of one that has the group he shows counts, else that of the first. Accounting apart does
// not know who runs where.
func (d Directory) JobThere(
	node string,
	attestation identity.Attestation,
) (gid uint32, ok bool) {
	cluster := d.Leading()
	if cluster == nil {
		return 0, false
	}
	n := cluster.Node(node)
	if n == nil {
		return 0, false
	}
	for _, uid := range n.Jobs {
		job := cluster.Job(uid)
		switch {
		case job == nil || job.Spec.UID != attestation.UID:
		case job.Spec.GID == attestation.GID:
			return attestation.GID, true
		case !ok:
			gid = job.Spec.GID
			ok = true
		}
	}
	return gid, ok
}

// IsRevoked tells whether a certificate has been revoked: the ledger knows
// of those that this cluster issued, the list beside the certificates (pki.Source) of others.
func (d Directory) IsRevoked(beside Revocations) func(serial string) bool {
	return func(serial string) bool {
		if beside.Revoked(serial) {
			return true
		}
		cluster := d.Known()
		if cluster == nil {
			return d.SentAway != nil && d.SentAway(serial)
		}
		cert := cluster.Access.Cert(serial)
		return cert != nil && cert.Revoked
	}
}

// ListRevoked are the certificates that are revoked and would be good else.
func (d Directory) ListRevoked() []string {
	cluster := d.Leading()
	if cluster == nil {
		return nil
	}
	var out []string
	for _, cert := range cluster.Access.Certs {
		if cert.Revoked && time.Unix(0, int64(cert.Expires)).After(time.Now()) {
			out = append(out, cert.Serial)
		}
	}
	return out
}

// StandingOf is what accounting makes of a user. Accounting that runs apart has no
// state to look it up in; its services ask the store.
func (d Directory) StandingOf(name string) authz.Role {
	cluster := d.Leading()
	if cluster == nil {
		return authz.User
	}
	return authz.StandingOf(cluster.Policy, name)
}

// CallRate is what slurm.conf says of the calls of one user.
func (d Directory) CallRate() limit.RateConfig {
	cluster := d.Leading()
	if cluster == nil || cluster.Config == nil || cluster.Config.Rate == nil {
		return limit.RateConfig{}
	}
	rate := cluster.Config.Rate
	return limit.RateConfig{
		Enabled: true,
		Bucket:  int(rate.Bucket),
		Refill:  int(rate.Refill),
		Period:  time.Duration(rate.Period),
		Users:   int(rate.Users),
	}
}
