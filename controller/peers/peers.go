// Package peers is what a controller of a group knows of the others: who they are by
// slurm.conf, how they say they are, and what follows from that for this one. It decides
// whether a controller without a ledger may begin a group or waits to be taken in, takes
// others in and gives them their vote while this one leads, and says why a command gets no
// answer.
//
// The decisions (howToBegin, foundingOn, nextSteps, describeNoLeader, Lackers) are functions
// of what the controllers say, so that each case is a row of a test.
package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/controller/peers/members"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/spec"
)

// Peers are the controllers of a group, as slurm.conf names them, and what this
// one knows of the others.
type Peers struct {
	Self   conffile.Controller
	group  conffile.Group // the first controller begins a new one
	dir    string         // state_dir
	Source *pki.Source
	Door   *members.Door
	log    *slog.Logger

	version string

	// NewGroup is the administrator's word that the controllers which do not answer have
	// no ledger (--new-group).
	NewGroup bool
	Sought   bool // it asked the others before it opened its ledger
	Founds   bool // it begins a group with what it has

	mu      sync.Mutex
	waits   bool         // it has no ledger, and waits to be taken in
	lacks   string       // what it waits for before it opens its ledger; empty = nothing
	durable *log.Durable // nil before the ledger is open
	leads   bool         // it serves, which begins a little after it was elected
	// changing is held while the group changes, and while it agrees on a version: nobody
	// comes in who was not asked.
	changing sync.Mutex
	// trail tells how far the audit trail has come while this controller leads.
	trail  func() map[string]Delivered
	ledger func() string // the name of the ledger here; see SetLedger
}

// What controllers ask each other.
const (
	askStatus = "status"
	askKeys   = "keys"
)

const (
	// AskPatience is how long another controller may take to answer.
	AskPatience = time.Second
	// TendEvery is how often the others are asked while something is to be done about them.
	TendEvery = 300 * time.Millisecond
	// caughtUp is how many batches a member may lack that is given its vote.
	caughtUp = 256
)

// standing is how one controller is, as it says itself.
type standing struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Waits    bool   `json:"waits,omitempty"` // it has no ledger
	Leads    bool   `json:"leads,omitempty"`
	Term     uint64 `json:"term,omitempty"`
	Position uint64 `json:"position,omitempty"`
	// Knows is the version of the ledger that its release reads. Releases that do not say
	// so know the first.
	Knows   uint32       `json:"knows,omitempty"`
	Members []log.Member `json:"members,omitempty"`
	Clock   int64        `json:"clock"`
	// Ledger is the name of the ledger that it has: of the cluster, and a number of its own.
	Ledger string `json:"ledger,omitempty"`
	// Audit is how far the leader's audit trail has come, by target.
	Audit map[string]Delivered `json:"audit,omitempty"`
}

// sharedKeys are what every controller signs with, file by file.
type sharedKeys map[string][]byte

var keyFiles = [...]string{"credential.keys", "user-token.key"}

// Answer is what came of asking a controller.
type Answer struct {
	Of       conffile.Controller
	Standing standing
	Err      error
}

// Options say who this controller is.
type Options struct {
	Config   *conffile.Config
	Cluster  string // the name
	Version  string // of this program
	Witness  bool   // it is the witness
	NewGroup bool   // --new-group
	Log      *slog.Logger
}

// NewAsker makes peers that have no door: they only ask the others.
func NewAsker(self conffile.Controller, who conffile.Group, source *pki.Source) *Peers {
	return &Peers{Self: self, group: who, Source: source, log: slog.New(slog.DiscardHandler)}
}

// Open opens this controller's door to the others; nil where it is the only
// one.
func Open(ctx context.Context, options Options) (*Peers, error) {
	who, self, err := conffile.ReadControllers(options.Config)
	if err == nil {
		err = refuseOtherRole(options.Witness, who, self)
	}
	if err != nil || self == nil {
		return nil, err
	}
	peers := &Peers{
		Self:     *self,
		group:    who,
		dir:      options.Config.StateDir,
		log:      options.Log,
		version:  options.Version,
		NewGroup: options.NewGroup,
	}
	peers.Source, err = pki.LoadSource(pki.Dir(options.Config.TLS.Dir))
	if err != nil {
		return nil, fmt.Errorf("this host's certificate in %s: %w", options.Config.TLS.Dir, err)
	}
	if named := peers.Source.Self().Node; named != self.Name {
		return nil, fmt.Errorf(
			"the certificate in %s is of %q, and this controller is %q: the name in the certificate is that of SlurmctldHost (docs/operations/controllers.md)",
			options.Config.TLS.Dir,
			named,
			self.Name,
		)
	}
	if of := peers.Source.Self().Cluster; of != options.Cluster {
		return nil, fmt.Errorf(
			"%w: the one in %s is of %q, and slurm.conf says ClusterName=%s: the name of a cluster is in its "+
				"certificates and on all controllers the same; set it back",
			ErrOtherCluster,
			options.Config.TLS.Dir,
			of,
			options.Cluster,
		)
	}
	listener, err := listenAPI(ctx, options.Config)
	if err != nil {
		return nil, err
	}
	peers.Door = members.Open(
		members.Config{
			Listener:     listener,
			Certificates: peers.Source,
			Cluster:      options.Cluster,
			Limits:       limit.New(limit.Config{}, time.Now),
			Answer:       peers.answerPeer,
			Log:          options.Log,
		},
	)
	return peers, nil
}

// AllAddresses are those of all controllers. The witness serves nobody.
func (p *Peers) AllAddresses() []string {
	out := make([]string, len(p.group.Controllers))
	for i, controller := range p.group.Controllers {
		out[i] = controller.Address
	}
	return out
}

// IsNamed tells whether a controller is named in slurm.conf. The witness is not: no
// user's word comes from there.
func (p *Peers) IsNamed(name string) bool {
	return slices.ContainsFunc(
		p.group.Controllers,
		func(c conffile.Controller) bool { return c.Name == name },
	)
}

// answerPeer answers another controller.
func (p *Peers) answerPeer(question string) (any, error) {
	switch question {
	case askStatus:
		return p.currentStanding()
	case askKeys:
		return p.fetchKeys()
	}
	return nil, fmt.Errorf("unknown question %q: the controllers' releases differ", question)
}

// currentStanding is how this controller is. One that is still reading its ledger says
// nothing: it must not be taken for one that has none.
func (p *Peers) currentStanding() (standing, error) {
	p.mu.Lock()
	durable := p.durable
	leads := p.leads
	waits := p.waits
	trail := p.trail
	p.mu.Unlock()
	out := standing{
		Name:    p.Self.Name,
		Version: p.version,
		Knows:   event.Version,
		Clock:   time.Now().UnixNano(),
	}
	switch {
	case durable != nil:
		out.Leads = leads && durable.Leader().Self
		out.Term = durable.Term()
		out.Position = uint64(durable.LastPosition())
		out.Members = durable.Group()
		out.Ledger = p.ownLedger()
		if out.Leads && trail != nil {
			out.Audit = trail()
		}
	case waits:
		out.Waits = true
	default:
		return out, errors.New("it is starting")
	}
	return out, nil
}

func (p *Peers) fetchKeys() (sharedKeys, error) {
	keys := sharedKeys{}
	for _, name := range keyFiles {
		data, err := durable.ReadPrivate(filepath.Join(p.dir, name))
		if err != nil {
			return nil, err
		}
		keys[name] = data
	}
	return keys, nil
}

// SetDurable notes that the log is open.
func (p *Peers) SetDurable(d *log.Durable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.durable = d
}

// SetWaits notes that this controller has no ledger and waits to be taken in.
func (p *Peers) SetWaits() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = true
}

// SetTrail says where to ask how far the audit trail has come.
func (p *Peers) SetTrail(trail func() map[string]Delivered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trail = trail
}

// SetLeads notes whether this controller serves as the leader.
func (p *Peers) SetLeads(leads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads = leads
}

// AskOthers asks all other controllers how they are.
func (p *Peers) AskOthers(ctx context.Context) []Answer {
	ctx, cancel := context.WithTimeout(ctx, AskPatience)
	defer cancel()
	var answers []Answer
	for _, controller := range p.group.Members() {
		if controller.Name != p.Self.Name {
			answers = append(answers, Answer{Of: controller})
		}
	}
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i].Err = members.Ask(
				ctx, p.Source, answers[i].Of.Address, askStatus, &answers[i].Standing,
			)
			if said := answers[i].Standing.Name; answers[i].Err == nil &&
				said != answers[i].Of.Name {
				answers[i].Err = fmt.Errorf(
					"%s answers as controller %q: SlurmctldHost and the certificates there do not agree",
					answers[i].Of.Address,
					said,
				)
			}
		})
	}
	wg.Wait()
	return answers
}

// FindLeader is the controller that leads among those that answered; nil = none.
func FindLeader(list []Answer) *Answer {
	for i := range list {
		if list[i].Err == nil && list[i].Standing.Leads {
			return &list[i]
		}
	}
	return nil
}

// start is how a controller begins that has no ledger of a group.
type start struct {
	begins bool   // a new group, with what it has
	joins  bool   // the group that has taken it in
	why    string // what it waits for; empty = nothing
}

// howToBegin decides how a controller without a ledger begins. The first that
// slurm.conf names begins a new group, once all the others have said that they
// have no ledger either: else a lost disk could make a second cluster of the same
// name. Everybody else waits until the leader has taken him in without a vote. The
// administrator's word stands for controllers that do not answer, and for the order
// of slurm.conf; it does not stand against one that answers.
func howToBegin(self string, first, newGroup bool, list []Answer) start {
	if lead := FindLeader(list); lead != nil {
		for _, member := range lead.Standing.Members {
			if member.ID == self && member.Joining {
				return start{joins: true}
			}
		}
		return start{why: "controller " + lead.Of.Name +
			" leads and has not taken this one in yet (muster controllers)"}
	}
	starting, silent, holders := sortAnswers(list)
	switch {
	case len(holders) > 0:
		return start{why: "the group of " + strings.Join(holders, ", ") + " has no leader now"}
	case len(starting) > 0:
		return start{why: "controllers are starting: " + strings.Join(starting, ", ")}
	case len(silent) > 0 && !newGroup:
		return start{why: refuseToFound(silent)}
	case !first && !newGroup:
		return start{why: "the first controller of slurm.conf begins the group"}
	}
	return start{begins: true}
}

// sortAnswers tells the controllers apart that cannot say yet whether they have a
// ledger, that do not answer, and that have one. Those that wait without one are in
// no list.
func sortAnswers(list []Answer) (starting, silent, holders []string) {
	for _, answer := range list {
		var cannotSay *members.AnswerError
		switch {
		case errors.As(answer.Err, &cannotSay):
			starting = append(starting, answer.Of.Name)
		case answer.Err != nil:
			silent = append(silent, describeSilent(answer))
		case !answer.Standing.Waits:
			holders = append(holders, answer.Of.Name)
		}
	}
	return starting, silent, holders
}

// describeSilent names a controller that does not answer, its address and the cause.
func describeSilent(answer Answer) string {
	cause := answer.Err.Error()
	var errno syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(answer.Err, &errno):
		cause = errno.Error()
	case errors.As(answer.Err, &timeout) && timeout.Timeout(),
		errors.Is(answer.Err, context.DeadlineExceeded):
		cause = "no answer within " + AskPatience.String()
	}
	return fmt.Sprintf("%s (%s: %s)", answer.Of.Name, answer.Of.Address, cause)
}

// refuseToFound is why no group begins while controllers are silent.
func refuseToFound(silent []string) string {
	return "this controller refuses to begin a group while others do not answer, because one of them " +
		"may have the group's ledger. Not reached: " + strings.Join(silent, ", ") +
		". Start musterd there; if those hosts are lost for good, take them off slurm.conf, or start " +
		"this controller once with musterd --new-group"
}

// setLack notes what the controller waits for, and logs it once. Empty = nothing more.
func (p *Peers) setLack(reason string) {
	p.mu.Lock()
	changed := p.lacks != reason
	p.lacks = reason
	p.mu.Unlock()
	if changed && reason != "" {
		p.log.Warn("this controller has not begun", "why", reason)
	}
}

// AwaitPermission waits until this controller may open its ledger, and tells whether it
// begins a group or joins one. It fetches the keys that all controllers sign with.
func (p *Peers) AwaitPermission(ctx context.Context) (first bool, err error) {
	p.Sought = true
	defer p.setLack("")
	for since := time.Now(); ; {
		list := p.AskOthers(ctx)
		told := p.NewGroup && time.Since(since) > silentPatience
		how := howToBegin(p.Self.Name, p.group.Controllers[0].Name == p.Self.Name, told, list)
		if how.joins {
			if p.group.IsWitness(p.Self.Name) {
				return false, nil // it signs nothing
			}
			err = p.FetchKeys(ctx, FindLeader(list).Of)
			if err == nil {
				return false, nil
			}
			how.why = err.Error()
		}
		if how.begins {
			p.log.Info(
				"a new group of controllers begins",
				"controller",
				p.Self.Name,
				"others",
				len(list),
				"new-group",
				p.NewGroup,
			)
			return true, nil
		}
		p.setLack(how.why)
		if !clock.PauseFor(ctx, TendEvery) {
			return false, ctx.Err()
		}
	}
}

// silentPatience is how long controllers may take to answer before the administrator's
// word that they have no ledger counts: one that lives is heard first.
const silentPatience = 5 * time.Second

// MayFound tells whether the ledger of a single controller may become that of a
// group. It may not where others have a ledger already: a log that was rebuilt, or
// that was put back from the time before the group, would be a second leader of the
// same cluster. One that does not answer may have it.
func (p *Peers) MayFound(ctx context.Context) error {
	p.Sought = true
	defer p.setLack("")
	for since := time.Now(); ; {
		told := p.NewGroup && time.Since(since) > silentPatience
		reason, err := foundingOn(told, p.AskOthers(ctx))
		if err != nil {
			return fmt.Errorf(
				"%w: start this controller with an empty state folder (move %s aside), and it is taken in",
				err,
				p.dir,
			)
		}
		if reason == "" {
			p.Founds = true
			return nil
		}
		p.setLack(reason)
		if !clock.PauseFor(ctx, TendEvery) {
			return ctx.Err()
		}
	}
}

// foundingOn judges what the other controllers say to one that has the ledger of a
// single controller. why is what it waits for before that may become a group's.
func foundingOn(newGroup bool, list []Answer) (reason string, err error) {
	starting, silent, holders := sortAnswers(list)
	switch {
	case len(holders) > 0:
		return "", fmt.Errorf(
			"controller %s has the ledger of a group, and the ledger here is that of a single controller",
			strings.Join(holders, ", "),
		)
	case len(starting) > 0:
		return "controllers are starting: " + strings.Join(starting, ", "), nil
	case len(silent) > 0 && !newGroup:
		return refuseToFound(silent), nil
	}
	return "", nil
}

// ExplainNoLeader says why a command on this host gets no answer: who is reached, who
// is not, and what to do.
func (p *Peers) ExplainNoLeader(ctx context.Context) string {
	p.mu.Lock()
	lacks := p.lacks
	durable := p.durable
	p.mu.Unlock()
	if lacks != "" {
		return "the controllers have no leader: " + lacks
	}
	voters := len(p.group.Members())
	if durable != nil {
		voters = countVoters(durable.Group())
	}
	return describeNoLeader(p.Self.Name, voters, p.AskOthers(ctx))
}

func countVoters(group []log.Member) int {
	n := 0
	for _, member := range group {
		if !member.Joining {
			n++
		}
	}
	return n
}

// describeNoLeader is ExplainNoLeader of what the others said.
func describeNoLeader(self string, voters int, list []Answer) string {
	if lead := FindLeader(list); lead != nil {
		return "controller " + lead.Of.Name + " leads since a moment: repeat the command"
	}
	reached := []string{self + " (this host)"}
	var silent []string
	votes := 1
	for _, answer := range list {
		var cannotSay *members.AnswerError
		switch {
		case errors.As(answer.Err, &cannotSay):
			reached = append(reached, answer.Of.Name+" ("+cannotSay.Text+")")
		case answer.Err != nil:
			silent = append(silent, describeSilent(answer))
		case answer.Standing.Waits:
			reached = append(reached, answer.Of.Name+" (waits without a ledger)")
		default:
			reached = append(reached, answer.Of.Name)
			votes++
		}
	}
	needed := voters/2 + 1
	text := fmt.Sprintf("the controllers have no leader: %d of %d votes are there, and %d are needed. Reached: %s",
		votes, voters, needed, strings.Join(reached, ", "))
	if len(silent) > 0 {
		text += ". Not reached: " + strings.Join(silent, ", ")
	}
	switch {
	case votes >= needed:
		return text + ". They elect one, which takes seconds; if it does not end, look whether they reach each other's port"
	case len(silent) == 0:
		return text + ". If the ledgers that are missing are lost for good: docs/operations/controllers.md, \"Lose a majority\""
	}
	return text + ". Start musterd there (systemctl start musterd), or mend the network; if they are lost for good: " +
		"docs/operations/controllers.md, \"Lose a majority\""
}

// FetchKeys takes over the keys that all controllers sign with.
func (p *Peers) FetchKeys(ctx context.Context, from conffile.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, 5*AskPatience)
	defer cancel()
	keys := sharedKeys{}
	if err := members.Ask(ctx, p.Source, from.Address, askKeys, &keys); err != nil {
		return fmt.Errorf("the keys of controller %s: %w", from.Name, err)
	}
	for _, name := range keyFiles {
		if len(keys[name]) == 0 {
			return fmt.Errorf("controller %s did not send %s", from.Name, name)
		}
		if err := durable.WriteFile(filepath.Join(p.dir, name), keys[name], fs.FileMode(0o600)); err != nil {
			return err
		}
	}
	return nil
}

// TendGroup looks after the group while this controller leads: who waits is taken in,
// who has caught up gets his vote, who has lost his ledger loses his vote first. version is
// that of the ledger now.
func (p *Peers) TendGroup(ctx context.Context, version func() uint32) error {
	said := map[string]string{}
	for clock.PauseFor(ctx, TendEvery) {
		for who, text := range p.changeGroup(ctx, version) {
			if said[who] != text && ctx.Err() == nil {
				said[who] = text
				p.log.Info("the group of controllers changes", "controller", who, "change", text)
			}
		}
	}
	return nil
}

// changeGroup makes the changes that are due, and says what became of each.
func (p *Peers) changeGroup(ctx context.Context, version func() uint32) map[string]string {
	list := p.AskOthers(ctx)
	p.changing.Lock()
	defer p.changing.Unlock()
	out := map[string]string{}
	position := uint64(p.durable.LastPosition())
	for _, step := range nextSteps(p.durable.Group(), list, position, version()) {
		text := step.what
		if step.do != nil {
			if err := step.do(ctx, p.durable); err != nil {
				text += ": " + err.Error()
			}
		}
		out[step.who] = text
	}
	return out
}

// knownBy is the version of the ledger that a release reads by what it says of itself.
func knownBy(st standing) uint32 { return max(st.Knows, 1) }

// Agree implements daemon.Group. Members without a vote count too: they would stop at the
// first batch that they cannot read.
func (p *Peers) Agree(ctx context.Context, now uint32, then func(version uint32) error) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	version, err := agreedVersion(p.Self.Name, now, p.durable.Group(), p.AskOthers(ctx))
	if err != nil || version <= now {
		return err
	}
	return then(version)
}

// agreedVersion is the newest version of the ledger that every member knows. While that is not
// newer than now, the error says who stands in the way of a newer one.
func agreedVersion(
	self string,
	now uint32,
	group []log.Member,
	list []Answer,
) (version uint32, err error) {
	version = event.Version
	var behind []string
	for _, m := range group {
		if m.ID == self {
			continue
		}
		at := slices.IndexFunc(list, func(a Answer) bool { return a.Of.Name == m.ID })
		if at < 0 {
			return 0, spec.Refuse(spec.CodeLedgerVersion, m.ID+
				" is in the group and slurm.conf does not name it: remove it (muster controllers remove "+m.ID+")")
		}
		answer := list[at]
		if answer.Err != nil {
			return 0, spec.Refuse(spec.CodeLedgerVersion, describeSilent(answer)+
				" does not answer, so its release is unknown: start it, or remove it (muster controllers remove "+m.ID+")")
		}
		known := knownBy(answer.Standing)
		if known <= now && now < event.Version {
			behind = append(behind, fmt.Sprintf("%s (release %s knows version %d)",
				m.ID, answer.Standing.Version, known))
		}
		version = min(version, known)
	}
	if len(behind) > 0 {
		return 0, spec.Refuse(spec.CodeLedgerVersion, "upgrade "+strings.Join(behind, ", "))
	}
	return version, nil
}

// groupStep is one change of the group.
type groupStep struct {
	who, what string
	do        func(ctx context.Context, d *log.Durable) error // nil = none, what says why
}

// nextSteps are the changes that are due, by what the controllers say. One whose release
// cannot read the ledger is not taken in: it would stop at once, and a group that counted on
// its vote would survive less than it says.
func nextSteps(group []log.Member, list []Answer, position uint64, version uint32) []groupStep {
	var steps []groupStep
	for _, answer := range list {
		if answer.Err != nil {
			continue
		}
		at := slices.IndexFunc(group, func(m log.Member) bool { return m.ID == answer.Of.Name })
		member := log.Member{ID: answer.Of.Name, Address: answer.Of.Address}
		voting := at >= 0 && !group[at].Joining
		if known := knownBy(answer.Standing); known < version && !voting {
			steps = append(steps, groupStep{who: answer.Of.Name, what: fmt.Sprintf(
				"it is not taken in: its release (%s) knows version %d of the ledger, which is at %d. Upgrade it",
				answer.Standing.Version, known, version)})
			continue
		}
		switch {
		case at < 0 && answer.Standing.Waits:
			member.Joining = true
			steps = append(
				steps,
				groupStep{
					answer.Of.Name,
					"taken in without a vote",
					func(ctx context.Context, d *log.Durable) error { return d.Add(ctx, member) },
				},
			)
		case at >= 0 && answer.Standing.Waits && !group[at].Joining:
			steps = append(
				steps,
				groupStep{
					answer.Of.Name,
					"it has lost its ledger and its vote",
					func(ctx context.Context, d *log.Durable) error { return d.Remove(ctx, member.ID) },
				},
			)
		case at >= 0 && !answer.Standing.Waits && group[at].Joining &&
			hasCaughtUp(answer.Standing, position):
			steps = append(
				steps,
				groupStep{
					answer.Of.Name,
					"it has caught up and votes",
					func(ctx context.Context, d *log.Durable) error { return d.Add(ctx, member) },
				},
			)
		}
	}
	return steps
}

// hasCaughtUp tells whether a member that joins may vote. One at position 0 is still
// fetching what the first snapshot names, and answers no election meanwhile.
func hasCaughtUp(member standing, position uint64) bool {
	return member.Position > 0 && member.Position+caughtUp >= position
}

// List implements daemon.Group.
func (p *Peers) List(ctx context.Context) *apiv1.ControllersReply {
	self, err := p.currentStanding()
	if err != nil {
		return &apiv1.ControllersReply{}
	}
	reply := &apiv1.ControllersReply{Term: self.Term}
	voters := 0
	joining := map[string]bool{}
	known := map[string]string{}
	for _, member := range self.Members {
		known[member.ID] = member.Address
		joining[member.ID] = member.Joining
		if !member.Joining {
			voters++
		}
	}
	reply.Survives = uint32(max(voters-1, 0) / 2)
	add := func(controller conffile.Controller, st standing, err error) {
		info := &apiv1.ControllerInfo{
			Name:     controller.Name,
			Address:  controller.Address,
			Version:  st.Version,
			Term:     st.Term,
			Position: st.Position,
		}
		_, in := known[controller.Name]
		switch {
		case err != nil:
			info.Error = err.Error()
		case controller.Name == p.Self.Name:
			info.Role = "leader"
		case st.Waits || joining[controller.Name]:
			info.Role = "joining"
		case !in:
			info.Role = "removed"
		case p.group.IsWitness(controller.Name):
			info.Role = "witness"
		default:
			info.Role = "standby"
		}
		if err == nil {
			info.Knows = knownBy(st)
			info.Lag = max(self.Position, st.Position) - st.Position
			info.ClockAhead = st.Clock - self.Clock
		}
		delete(known, controller.Name)
		reply.Controllers = append(reply.Controllers, info)
	}
	others := p.AskOthers(ctx)
	for _, controller := range p.group.Members() { // in the order of slurm.conf, by whose places scontrol takeover names them
		if controller.Name == p.Self.Name {
			add(controller, self, nil)
			continue
		}
		answer := others[slices.IndexFunc(others, func(a Answer) bool {
			return a.Of.Name == controller.Name
		})]
		add(answer.Of, answer.Standing, answer.Err)
	}
	for id, address := range known { // not in slurm.conf any more
		add(
			conffile.Controller{Name: id, Address: address},
			standing{},
			errors.New("slurm.conf does not name it: remove it"),
		)
	}
	return reply
}

// Change implements daemon.Group.
func (p *Peers) Change(
	ctx context.Context, request *apiv1.ChangeControllersRequest,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if request.GetHandOver() {
		return p.handOver(ctx, request.GetTo())
	}
	p.changing.Lock()
	defer p.changing.Unlock()
	var err error
	switch {
	case request.GetAdd() != "":
		err = p.addMember(ctx, request.GetAdd(), request.GetAddress())
	case request.GetRemove() != "":
		if !slices.ContainsFunc(
			p.durable.Group(),
			func(m log.Member) bool { return m.ID == request.GetRemove() },
		) {
			return "", spec.Refuse(spec.CodeBadRequest,
				"there is no controller "+request.GetRemove()+
					" in the group")
		}
		err = p.durable.Remove(ctx, request.GetRemove())
	default:
		return "", spec.Refuse(spec.CodeBadRequest, "nothing to change")
	}
	if err != nil {
		return "", spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	return p.Self.Name, nil
}

func (p *Peers) addMember(ctx context.Context, name, address string) error {
	if slices.ContainsFunc(p.durable.Group(), func(m log.Member) bool { return m.ID == name }) {
		return fmt.Errorf("controller %s is in the group", name)
	}
	all := p.group.Members()
	at := slices.IndexFunc(all, func(c conffile.Controller) bool { return c.Name == name })
	if at < 0 {
		return fmt.Errorf(
			"slurm.conf of the controllers has no SlurmctldHost=%s, and muster.yaml no controller.witness of that name: add it there, and start them again one after the other",
			name,
		)
	}
	if address == "" {
		address = all[at].Address
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("address of the controller: %w", err)
	}
	return p.durable.Add(ctx, log.Member{ID: name, Address: address, Joining: true})
}

// handOver gives the lead away and waits until somebody has it.
func (p *Peers) handOver(ctx context.Context, to string) (string, error) {
	if to == p.Self.Name {
		return to, nil
	}
	if p.group.IsWitness(to) {
		return "", spec.Refuse(spec.CodeBadRequest, to+
			" is the witness: it votes and does not lead")
	}
	if to == "" {
		to = p.Successor(ctx)
	}
	for {
		err := p.durable.HandOver(ctx, to)
		if errors.Is(err, log.ErrNoVoter) {
			return "", spec.Refuse(spec.CodeBadRequest, err.Error())
		}
		// Where machines are busy, raft gives a transfer up that takes longer than an
		// election timeout. The other may have been elected meanwhile, or is asked again.
		if lead := p.awaitOther(ctx, err != nil); lead != "" {
			return lead, nil
		}
		if err == nil {
			return "", nil // it was given away; who has it shows soon
		}
		if ctx.Err() != nil {
			return "", spec.Refuse(spec.CodeBadRequest, err.Error())
		}
	}
}

// awaitOther waits until another controller leads, and says which; empty = none does yet. Where
// this one may lead on, it waits for that only a moment.
func (p *Peers) awaitOther(ctx context.Context, mayLead bool) string {
	if mayLead {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, TendEvery)
		defer cancel()
	}
	for {
		changed := p.durable.Changed()
		if lead := p.durable.Leader(); lead.Known && !lead.Self {
			return lead.ID
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ""
		}
	}
}

// listenAPI opens the port at which the other controllers, agents and tools come.
func listenAPI(ctx context.Context, config *conffile.Config) (net.Listener, error) {
	if config.Listen.GRPC.Off() {
		return nil, errors.New(
			"listen.grpc is off, and several controllers reach each other there: give it a port",
		)
	}
	listener, err := listen.TCP(ctx, string(config.Listen.GRPC))
	if err != nil {
		return nil, fmt.Errorf("listen.grpc: %w (choose another in muster.yaml)", err)
	}
	return listener, nil
}

// WarnOfCount tells what the number of controllers means.
func (p *Peers) WarnOfCount() {
	voters := len(p.group.Members())
	survives := (voters - 1) / 2
	switch {
	case voters == 2:
		p.log.Warn(
			"two controllers stop when either of them is lost: name a witness (controller.witness of muster.yaml) or a third SlurmctldHost",
			"survives",
			survives,
		)
	case voters%2 == 0 && p.group.Witness != nil:
		p.log.Warn(
			"a witness beside an odd number of controllers lets them survive no more losses: leave it out",
			"controllers",
			voters-1,
			"survives",
			survives,
		)
	case voters%2 == 0:
		p.log.Warn(
			"an even number of controllers survives no more losses than one fewer: name another SlurmctldHost or a witness",
			"controllers",
			voters,
			"survives",
			survives,
		)
	}
}

// Lackers are the controllers that are not known to have a batch.
func Lackers(said []Answer, position uint64) string {
	if len(said) == 0 {
		return "every controller, as far as is known,"
	}
	var out []string
	for _, answer := range said {
		if answer.Err != nil || answer.Standing.Position < position {
			out = append(out, answer.Of.Name)
		}
	}
	return strings.Join(out, ", ")
}

// Successor is the controller that takes the lead best: it answers and has most of
// the ledger. Empty = raft chooses.
func (p *Peers) Successor(ctx context.Context) string {
	if p.group.Witness == nil {
		return ""
	}
	best := ""
	position := uint64(0)
	for _, answer := range p.AskOthers(ctx) {
		usable := answer.Err == nil && !answer.Standing.Waits && !p.group.IsWitness(answer.Of.Name)
		if usable && (best == "" || answer.Standing.Position > position) {
			best = answer.Of.Name
			position = answer.Standing.Position
		}
	}
	return best
}

// Delivered is how far the leader's audit trail has come at one target.
type Delivered struct {
	To string `json:"to,omitempty"` // where all controllers can write; empty = its own host
	audit.Position
}

// DialLeader makes a client of the controller that leads, if another one does; conn is
// nil if none does. at is its address.
func (p *Peers) DialLeader(ctx context.Context) (conn *grpc.ClientConn, at string, err error) {
	lead := FindLeader(p.AskOthers(ctx))
	if lead == nil {
		return nil, "", nil
	}
	at = lead.Of.Address
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return nil, "", err
	}
	conn, err = grpcx.DialTLS(
		at,
		func() *tls.Config { return p.Source.Client(host, identity.Controller, channel.ALPNGRPC) },
	)
	return conn, at, err
}

// AskDelivered asks the controller that leads how far its audit trail has come; nil =
// that one does not lead.
func (p *Peers) AskDelivered(ctx context.Context, address string) (map[string]Delivered, error) {
	ctx, cancel := context.WithTimeout(ctx, AskPatience)
	defer cancel()
	var st standing
	if err := members.Ask(ctx, p.Source, address, askStatus, &st); err != nil || !st.Leads {
		return nil, err
	}
	if st.Audit == nil {
		return map[string]Delivered{}, nil
	}
	return st.Audit, nil
}

// refuseOtherRole refuses to run a controller as a witness or the reverse.
func refuseOtherRole(asWitness bool, who conffile.Group, self *conffile.Controller) error {
	isWitness := self != nil && who.IsWitness(self.Name)
	switch {
	case asWitness && who.Witness == nil:
		return errors.New(
			"muster.yaml names no witness: name this host in controller.witness, here and on both controllers",
		)
	case asWitness && !isWitness:
		return fmt.Errorf(
			"this host is controller %s, and the witness is %s: start musterd without --role witness",
			self.Name,
			who.Witness.Name,
		)
	case !asWitness && isWitness:
		return fmt.Errorf(
			"this host is %s, the witness of the controllers: start musterd --role witness",
			self.Name,
		)
	}
	return nil
}
