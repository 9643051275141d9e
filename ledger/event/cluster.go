package event

import "github.com/musterhpc/muster/spec"

// ClusterCreated is the first event of every ledger.
type ClusterCreated struct {
	UUID    [16]byte `cbor:"1,keyasint"` // the ledger's identity, in every accounting row
	Name    string   `cbor:"2,keyasint"`
	Version uint32   `cbor:"3,keyasint"` // the vocabulary version it starts with
}

// ClusterVersionRaised allows events and fields up to a vocabulary version.
type ClusterVersionRaised struct {
	Version uint32 `cbor:"1,keyasint"`
}

// ConfigAdopted replaces the configuration as a whole. Nodes keep their ids by
// name; nodes that are gone from it are removed once they hold no job.
type ConfigAdopted struct {
	Config *spec.Config `cbor:"1,keyasint"`
}

// TokenIssued lets one node or login host enrol, with one key, until it expires. Only the
// hash of the secret is kept.
type TokenIssued struct {
	Hash    spec.Hash    `cbor:"1,keyasint"`
	Node    string       `cbor:"2,keyasint"`
	Expires spec.Instant `cbor:"3,keyasint"`
	Role    string       `cbor:"4,keyasint,omitempty"` // login; empty = agent, a compute node
}

// TokenSpent binds a token to the key of the node that used it. A node whose
// answer was lost may ask again with the same key as long as the token lives;
// with any other key the token is of no use any more.
type TokenSpent struct {
	Hash spec.Hash `cbor:"1,keyasint"` // of the token's secret
	Node string    `cbor:"2,keyasint"`
	Key  spec.Hash `cbor:"3,keyasint"` // of the public key
}

// UserTokenIssued records a token with which programs act as a user. The token itself
// is nowhere in the ledger.
type UserTokenIssued struct {
	ID      string       `cbor:"1,keyasint"` // the token's jti
	User    string       `cbor:"2,keyasint"`
	UID     uint32       `cbor:"3,keyasint"`
	Expires spec.Instant `cbor:"4,keyasint"`
	Key     string       `cbor:"5,keyasint"` // names the key that signed it
	// Login is the identity provider whose word it was given on; empty = the user asked a
	// controller for it.
	Login string `cbor:"6,keyasint,omitempty" since:"2"`
	// Scope is the part of the API that it opens; empty = all that its user may do.
	Scope string `cbor:"7,keyasint,omitempty" since:"2"`
}

// UserTokensEnded revokes tokens of a user: those with these ids or, without ids, all
// that were issued so far, whoever issued them and whether the ledger knows them.
type UserTokensEnded struct {
	User   string   `cbor:"1,keyasint"`
	IDs    []string `cbor:"2,keyasint,omitempty"`
	Reason string   `cbor:"3,keyasint,omitempty"`
}

// CertificateIssued records a node's or login host's certificate. Token is of
// ledgers that know no TokenSpent: it ended the token.
type CertificateIssued struct {
	Serial  string       `cbor:"1,keyasint"`
	Role    string       `cbor:"2,keyasint"`
	Name    string       `cbor:"3,keyasint"`
	Expires spec.Instant `cbor:"4,keyasint"`
	Token   spec.Hash    `cbor:"5,keyasint"`
}

// CertificateRevoked ends a certificate before its time.
type CertificateRevoked struct {
	Serial string `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint,omitempty"`
}

// CertificatesDropped forgets certificates that have expired.
type CertificatesDropped struct {
	Serials []string `cbor:"1,keyasint"`
}

// QOSPut creates a QOS or replaces it as a whole.
type QOSPut struct {
	QOS spec.QOS `cbor:"1,keyasint"`
}

// QOSRemoved deletes a QOS.
type QOSRemoved struct {
	Name string `cbor:"1,keyasint"`
}

// AccountPut creates an account or replaces it.
type AccountPut struct {
	Account spec.Account `cbor:"1,keyasint"`
}

// AccountRemoved deletes an account with its associations.
type AccountRemoved struct {
	Name string `cbor:"1,keyasint"`
}

// UserPut creates an accounting user or replaces it.
type UserPut struct {
	User spec.User `cbor:"1,keyasint"`
}

// UserRemoved deletes a user with its associations.
type UserRemoved struct {
	Name string `cbor:"1,keyasint"`
}

// AssociationPut creates an association or replaces it.
type AssociationPut struct {
	Association spec.Association `cbor:"1,keyasint"`
}

// AssociationRemoved deletes an association.
type AssociationRemoved struct {
	ID uint32 `cbor:"1,keyasint"`
}

// WCKeyPut lets a user label jobs with a key.
type WCKeyPut struct {
	Key spec.WCKey `cbor:"1,keyasint"`
}

// WCKeyRemoved takes a key away.
type WCKeyRemoved struct {
	ID uint32 `cbor:"1,keyasint"`
}

// ResourcePut creates a resource or replaces it.
type ResourcePut struct {
	Resource spec.Resource `cbor:"1,keyasint"`
}

// ResourceRemoved deletes a resource.
type ResourceRemoved struct {
	Name   string `cbor:"1,keyasint"`
	Server string `cbor:"2,keyasint"`
}

// ClusterPut makes another cluster known, or replaces what is known of it.
type ClusterPut struct {
	Name   string `cbor:"1,keyasint,omitempty" since:"2"`
	Socket string `cbor:"2,keyasint,omitempty" since:"2"` // see spec.KnownCluster
	Host   string `cbor:"3,keyasint,omitempty" since:"2"`
	Port   int64  `cbor:"4,keyasint,omitempty" since:"2"`
}

// ClusterRemoved forgets another cluster.
type ClusterRemoved struct {
	Name string `cbor:"1,keyasint,omitempty" since:"2"`
}

// UsageAged lets past use fade and charges what runs up to now. Factors are
// in units of 2^-63: One is 1.
type UsageAged struct {
	PerSecond uint64 `cbor:"1,keyasint"`           // what a second leaves of a use, from now on
	Keep      uint64 `cbor:"2,keyasint,omitempty"` // what is left of all use since the last such event
	Reset     bool   `cbor:"3,keyasint,omitempty"` // nothing is left, not even of QOS that do not decay
}

// One is the factor 1 of UsageAged.
const One = 1 << 63

// UsageCleared forgets the use of an association, with everything below it
// and its part in those above it, or of a QOS (sacctmgr ... set RawUsage=0).
type UsageCleared struct {
	Assoc uint32 `cbor:"1,keyasint,omitempty"`
	QOS   uint32 `cbor:"2,keyasint,omitempty"`
}

// SharesNoted records how far use and shares are apart, association by
// association, so that accounting can follow them. It changes nothing.
type SharesNoted struct {
	Shares []ShareNote `cbor:"1,keyasint"`
}

// ShareNote is one association of SharesNoted. Fractions are in millionths.
type ShareNote struct {
	Assoc  uint32 `cbor:"1,keyasint"`
	Norm   int64  `cbor:"2,keyasint"` // its part of all shares
	Used   int64  `cbor:"3,keyasint"` // its part of all use
	Factor int64  `cbor:"4,keyasint"` // the fair-share factor; 0 for accounts
	Raw    int64  `cbor:"5,keyasint"` // decayed billing seconds
}

// ReservationPut creates a reservation or replaces it as a whole: also when a
// repeated one moves on, or one of its nodes is replaced.
type ReservationPut struct {
	Reservation spec.Reservation `cbor:"1,keyasint"`
}

// TriggerPut sets a trigger or replaces it as a whole: also when it is pulled, or a run of
// its program has ended.
type TriggerPut struct {
	Trigger spec.Trigger `cbor:"1,keyasint"`
}

// TriggerRemoved ends a trigger. Why says what ended it: its only run, the end of its job,
// or nothing for somebody who cleared it.
type TriggerRemoved struct {
	ID  uint32 `cbor:"1,keyasint"`
	Why string `cbor:"2,keyasint,omitempty"`
}

// CrontabPut replaces a user's crontab; one without text removes it. The jobs of its
// lines were submitted before.
type CrontabPut struct {
	Crontab spec.Crontab `cbor:"1,keyasint"`
}

// ReservationRemoved ends a reservation. Why says what ended it: its time,
// PURGE_COMP, or nothing for somebody who deleted it.
type ReservationRemoved struct {
	Name string `cbor:"1,keyasint"`
	Why  string `cbor:"2,keyasint,omitempty"`
}
