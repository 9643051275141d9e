package daemon

import (
	"context"
	"errors"
	"log/slog"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/spec"
)

// What the errors of a Log wrap where the writer must know them apart.
var (
	ErrDiskFull   = errors.New("the ledger's disk is full")
	ErrLogStopped = errors.New("the ledger's log has stopped for good")
	// ErrNotLeader tells that another member of the group leads, or none: nothing
	// was appended.
	ErrNotLeader = errors.New("this controller does not lead the ledger")
	// ErrOutcomeUnknown tells that the lead was lost while a batch was under way: the
	// next leader may have it.
	ErrOutcomeUnknown = errors.New(
		"this controller lost the lead of the ledger; the batch under way may still take effect",
	)
)

// Log is the ledger's log as the writer needs it. Appends are applied in
// order; after a failure every later append fails until Resume.
type Log interface {
	Append(batch []byte) Pending
	Resume(ctx context.Context) error
	Low() (bool, error) // less room left than the reserve
	LastPosition() uint64
}

// Pending is an append under way.
type Pending interface {
	// Wait returns when the batch is durable and applied.
	Wait(ctx context.Context) error
}

// Archive keeps the whole history of events.
type Archive interface {
	Append(position, firstSeq, lastSeq uint64, events []byte) error
}

// Blobs keeps scripts and environments by their hash.
type Blobs interface {
	Has(spec.Hash) bool
	Get(spec.Hash) ([]byte, error)
	Put(data []byte) (spec.Hash, error)
}

// Clock is the time of the controller's machine.
type Clock interface {
	Now() spec.Instant
	// Monotonic is the time since some instant; unlike Now it is never set.
	Monotonic() spec.Span
	// After delivers once after d; stop frees it early.
	After(d spec.Span) (fires <-chan struct{}, stop func())
}

// Directory knows the users of the site.
type Directory interface {
	// Groups returns the names of a user's primary group and the ids of all.
	Groups(ctx context.Context, user string, gid uint32) (primary string, ids []uint32)
	// User returns the ids of a user, and false for a name that nobody has.
	User(ctx context.Context, name string) (uid, gid uint32, ok bool)
}

// Caller is who calls, as the channel proved it.
type Caller struct {
	UID, GID uint32
	User     string // "" = not a user
	Node     string // "" = not a node's agent
	Admin    bool   // root or the cluster's own user
	NoUID    bool   // UID and GID mean nothing: an administrator's certificate
	Host     string // where the user is, when not here
	Login    string // "" = not a login host's agent
	Limited  bool   // a compute node vouches for the user: he has no rights over others' affairs
	// Connector tells that the caller shows a token for what keeps Kubernetes and the
	// ledger in step, and may call what that needs and nothing else.
	Connector bool
}

// FromElsewhere tells that the caller is on another machine and proves himself
// by what that machine says of him.
func (c Caller) FromElsewhere() bool { return c.Host != "" && !c.Admin }

// TokenAsk is for whom a token is to be, for what and for how long.
type TokenAsk struct {
	User        string
	UID, GID    uint32
	Scope       string // the part of the API to which it is confined; "" = none
	From, Until spec.Instant
}

// Access issues what lets agents and jobs in.
type Access interface {
	// Sign makes the credential with which an agent may start a run.
	Sign(claims credentials.Claims) ([]byte, error)
	// VerifyOld reads a credential that this cluster signed, however long ago it expired.
	VerifyOld(raw []byte) (credentials.Claims, error)
	// Keys are the public keys that verify credentials, encoded.
	Keys() [][]byte
	// NewToken makes a single-use enrolment token for a node, or for a login
	// host; only its hash is stored.
	NewToken(node string, login bool, expires spec.Instant) (text string, hash spec.Hash, err error)
	// UserToken makes a token with which a program acts as a user over REST, for
	// as long as the machine is let in that vouches for the caller. A scope confines
	// it to a part of the API.
	UserToken(ctx context.Context, query TokenAsk) (UserToken, error)
	// LoginToken makes a token for who has logged in at the site's identity provider.
	// The site's settings about tokens that users ask for do not count.
	LoginToken(user string, uid, gid uint32, from, until spec.Instant) (UserToken, error)
	// UserTokenKey names the key that signs tokens of users; those of other keys hold
	// no more.
	UserTokenKey() string
	// UserTokensUsed tells when tokens were shown last, by id; those that nobody has
	// shown since the controller started are not in it.
	UserTokensUsed(ids []string) map[string]spec.Instant
	// Enrol checks a token's text and a CSR, spends the token and issues a
	// certificate.
	Enrol(ctx context.Context, token, node string, csr []byte, tokens Tokens) (Certificate, error)
	// Renew issues a new certificate to the machine that calls and has a valid one.
	Renew(ctx context.Context, csr []byte) (Certificate, error)
}

// UserToken is a token of a user: its text, and what the ledger records of it.
type UserToken struct {
	Text string
	ID   string
	Key  string
}

// Tokens are the enrolment tokens of the ledger.
type Tokens interface {
	// Find returns a token by its hash; its key is zero until it is used.
	Find(hash spec.Hash) (state.Token, bool)
	// Spend binds a token to the hash of the public key that the certificate
	// will be for, durably before it returns, or refuses. The same key may come
	// again.
	Spend(ctx context.Context, hash spec.Hash, node string, key spec.Hash) error
}

// Certificate is what an agent gets: PEM, leaf first, and the authority.
type Certificate struct {
	Role    string // agent or login
	Name    string
	PEM, CA []byte
	Serial  string
	By      string // serial number of the certificate that asked for it; empty for a token
	Expires spec.Instant
}

// Group is the group of controllers that keeps the ledger, as the one that leads
// knows it.
type Group interface {
	// List tells who they are and how far each is.
	List(ctx context.Context) *apiv1.ControllersReply
	// Change adds, removes or hands over, and returns who leads then.
	Change(ctx context.Context, req *apiv1.ChangeControllersRequest) (leader string, err error)
	// Agree finds the newest version of the ledger that every controller of the group
	// knows; now is the one in force. If it is newer, then is called with it while nobody
	// is taken in. The error says who stands in the way.
	Agree(ctx context.Context, now uint32, then func(version uint32) error) error
}

// Settings are the controller's own: what slurm.conf does not say.
type Settings struct {
	Host      string // this machine's name
	Version   string
	SlurmConf string    // path of the configuration
	StateDir  string    // folder of the ledger and what else lasts
	Port      string    // on which the API listens; "" = on none
	Heartbeat spec.Span // of agents; 0 = a third of SlurmdTimeout
	// MaxBatch bounds the commands of one batch of events.
	MaxBatch int
	// CheckEvery is the number of batches between two checks, each of one invariant in turn;
	// 1 = all of them on each, 0 = never.
	CheckEvery int
	// RaiseAfter is how long all controllers must have known a newer version of the
	// ledger before the leader raises it by itself; 0 and infinite = never.
	RaiseAfter spec.Span
	// GPU is what follows from what agents say about their GPUs.
	GPU scheduler.GPUPolicy
}

// Scripts run the programs of the site that belong to jobs on the controller's
// machine. The error is for the person who reads the log, or why a job waits.
type Scripts interface {
	Run(ctx context.Context, program string, timeout spec.Span, env []string) error
}

// CallCounts tells how often each method was called, and by whom, since the process began.
type CallCounts interface {
	EachMethod(visit func(name string, count, nanos uint64))
	EachUser(visit func(name string, count, nanos uint64))
}

// Deps are the outside of the controller. All fields but Calls, Files, Shutdown,
// Revoked, Scripts, Committed, Programs, JobScripts, Refused, UserPrograms, History, Past, East,
// Verbosity, Group and ConfirmLead are needed.
type Deps struct {
	Log       Log
	Archive   Archive
	Blobs     Blobs
	Clock     Clock
	Directory Directory
	Access    Access
	Codec     *event.Codec
	Logger    *slog.Logger
	Identify  func(ctx context.Context) Caller
	// Reload reads the cluster's configuration again, for reconfigure.
	Reload func() (*spec.Config, []string, error)
	// Files, if set, gives slurm.conf and the files that belong to it.
	Files func() (name string, files []*apiv1.ConfFile, err error)
	// Shutdown, if set, ends the process gracefully; it does not wait for that.
	Shutdown func()
	// Restored, if set, tells that this ledger was restored from a backup, and notes
	// that those were heard who know which job numbers were given since.
	Restored func() error
	// Revoked, if set, ends the connections of a machine whose certificates are all
	// revoked; an empty role is any.
	Revoked func(name, role string)
	// Committed, if set, gets every durable batch and the state after it,
	// in order. It must not block.
	Committed func(st *state.State, events []event.Envelope)
	// Scripts, if set, runs PrologSlurmctld and EpilogSlurmctld.
	Scripts Scripts
	// Programs, if set, runs what powers nodes down and up.
	Programs Programs
	// JobScripts, if set, runs the site's job_submit.lua.
	JobScripts JobScripts
	// Refused, if set, is called for each request that the script refuses.
	Refused func(ctx context.Context, call string, err error)
	// UserPrograms, if set, runs the programs of triggers.
	UserPrograms UserPrograms
	// History, if set, reads the whole history of events.
	History History
	// Past, if set, reads it from any place on.
	Past Past
	// East, if set, is how far the clocks of the cluster's zone are ahead of UTC at
	// an instant.
	East func(spec.Instant) spec.Span
	// Calls, if set, counts the calls of the API.
	Calls CallCounts
	// Verbosity, if set, is what the log has, so that administrators can change it.
	Verbosity *Verbosity
	// Group, if set, is the group of controllers; without one this is the only one.
	Group Group
	// ConfirmLead, if set, returns nil when a majority of the group has said since the call that
	// this controller leads.
	ConfirmLead func(ctx context.Context) error
	Settings    Settings
}
