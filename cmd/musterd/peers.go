package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/keyfile"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/members"
	"github.com/musterhpc/muster/internal/transport/mtls"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/spec"
)

// peers are the controllers of a group, as slurm.conf names them, and what this
// one knows of the others.
type peers struct {
	self   conffile.Controller
	group  conffile.Group // the first controller begins a new one
	dir    string         // state_dir
	source *mtls.Source
	door   *members.Door
	log    *slog.Logger

	mu      sync.Mutex
	waits   bool         // it has no ledger, and waits to be taken in
	durable *log.Durable // nil before the ledger is open
	leads   bool         // it serves, which begins a little after it was elected
	// trail tells how far the audit trail has come while this controller leads.
	trail func() map[string]delivered
}

// What controllers ask each other.
const (
	askStatus = "status"
	askKeys   = "keys"
)

const (
	askPatience = time.Second
	tendEvery   = 300 * time.Millisecond
	// caughtUp is how many batches a member may lack that is given its vote.
	caughtUp = 256
)

// standing is how one controller is, as it says itself.
type standing struct {
	Name     string       `json:"name"`
	Version  string       `json:"version"`
	Waits    bool         `json:"waits,omitempty"` // it has no ledger
	Leads    bool         `json:"leads,omitempty"`
	Term     uint64       `json:"term,omitempty"`
	Position uint64       `json:"position,omitempty"`
	Members  []log.Member `json:"members,omitempty"`
	Clock    int64        `json:"clock"`
	// Audit is how far the leader's audit trail has come, by target.
	Audit map[string]delivered `json:"audit,omitempty"`
}

// sharedKeys are what every controller signs with, file by file.
type sharedKeys map[string][]byte

var keyFiles = [...]string{"credential.keys", "user-token.key"}

// answered is what came of asking a controller.
type answered struct {
	of       conffile.Controller
	standing standing
	err      error
}

// openPeers opens this controller's door to the others; nil where it is the only
// one.
func openPeers(ctx context.Context, s *server) (*peers, error) {
	who, self, err := conffile.ReadControllers(s.cfg)
	if err == nil {
		err = s.refuseOtherRole(who, self)
	}
	if err != nil || self == nil {
		return nil, err
	}
	p := &peers{self: *self, group: who, dir: s.cfg.StateDir, log: s.log}
	p.source, err = mtls.Load(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		return nil, fmt.Errorf("this host's certificate in %s: %w", s.cfg.TLS.Dir, err)
	}
	if named := p.source.Self().Node; named != self.Name {
		return nil, fmt.Errorf(
			"the certificate in %s is of %q, and this controller is %q: the name in the certificate is that of SlurmctldHost (docs/operations/controllers.md)",
			s.cfg.TLS.Dir,
			named,
			self.Name,
		)
	}
	l, err := listenAPI(ctx, s.cfg)
	if err != nil {
		return nil, err
	}
	p.door = members.Open(
		members.Config{Listener: l, Certificates: p.source, Cluster: s.cluster.ClusterName,
			Limits: limit.New(limit.Config{}, time.Now), Answer: p.answerPeer, Log: s.log},
	)
	return p, nil
}

// allAddresses are those of all controllers. The witness serves nobody.
func (p *peers) allAddresses() []string {
	out := make([]string, len(p.group.Controllers))
	for i, c := range p.group.Controllers {
		out[i] = c.Address
	}
	return out
}

// isNamed tells whether a controller is named in slurm.conf. The witness is not: no
// user's word comes from there.
func (p *peers) isNamed(name string) bool {
	return slices.ContainsFunc(
		p.group.Controllers,
		func(c conffile.Controller) bool { return c.Name == name },
	)
}

// answerPeer answers another controller.
func (p *peers) answerPeer(question string) (any, error) {
	switch question {
	case askStatus:
		return p.currentStanding()
	case askKeys:
		return p.keys()
	}
	return nil, fmt.Errorf("unknown question %q: the controllers' releases differ", question)
}

// currentStanding is how this controller is. One that is still reading its ledger says
// nothing: it must not be taken for one that has none.
func (p *peers) currentStanding() (standing, error) {
	p.mu.Lock()
	durable := p.durable
	leads := p.leads
	waits := p.waits
	trail := p.trail
	p.mu.Unlock()
	out := standing{Name: p.self.Name, Version: version, Clock: time.Now().UnixNano()}
	switch {
	case durable != nil:
		out.Leads = leads && durable.Leader().Self
		out.Term, out.Position, out.Members = durable.Term(), uint64(
			durable.LastPosition(),
		), durable.Group()
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

func (p *peers) keys() (sharedKeys, error) {
	out := sharedKeys{}
	for _, name := range keyFiles {
		data, err := keyfile.Read(filepath.Join(p.dir, name))
		if err != nil {
			return nil, err
		}
		out[name] = data
	}
	return out, nil
}

func (p *peers) setDurable(d *log.Durable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.durable = d
}

func (p *peers) setWaits() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = true
}

func (p *peers) setTrail(trail func() map[string]delivered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trail = trail
}

func (p *peers) setLeads(leads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads = leads
}

// askOthers asks all other controllers how they are.
func (p *peers) askOthers(ctx context.Context) []answered {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var out []answered
	for _, c := range p.group.Members() {
		if c.Name != p.self.Name {
			out = append(out, answered{of: c})
		}
	}
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			out[i].err = members.Ask(ctx, p.source, out[i].of.Address, askStatus, &out[i].standing)
			if said := out[i].standing.Name; out[i].err == nil && said != out[i].of.Name {
				out[i].err = fmt.Errorf(
					"%s answers as controller %q: SlurmctldHost and the certificates there do not agree",
					out[i].of.Address,
					said,
				)
			}
		})
	}
	wg.Wait()
	return out
}

// findLeader is the controller that leads among those that answered; nil = none.
func findLeader(list []answered) *answered {
	for i := range list {
		if list[i].err == nil && list[i].standing.Leads {
			return &list[i]
		}
	}
	return nil
}

// howToBegin decides how a controller without a ledger begins. The first that
// slurm.conf names begins a new group, once all the others have said that they
// have no ledger either: else a lost disk could make a second cluster of the same
// name. Everybody else waits until the leader has taken him in without a vote. why
// says what is waited for.
func howToBegin(self string, first bool, list []answered) (begins, joins bool, why string) {
	if lead := findLeader(list); lead != nil {
		for _, m := range lead.standing.Members {
			if m.ID == self && m.Joining {
				return false, true, ""
			}
		}
		return false, false, "controller " + lead.of.Name +
			" leads and has not taken this one in yet (muster controllers)"
	}
	var silent, others []string
	for _, a := range list {
		switch {
		case a.err != nil:
			silent = append(silent, fmt.Sprintf("%s (%v)", a.of.Name, a.err))
		case !a.standing.Waits:
			others = append(others, a.of.Name)
		}
	}
	switch {
	case len(others) > 0:
		return false, false, "the group of " + strings.Join(others, ", ") + " has no leader now"
	case len(silent) > 0:
		return false, false, "a new group begins when all its controllers have answered; silent: " +
			strings.Join(silent, ", ")
	case !first:
		return false, false, "the first controller of slurm.conf begins the group"
	}
	return true, false, ""
}

// awaitPermission waits until this controller may open its ledger, and tells whether it
// begins a group or joins one. It fetches the keys that all controllers sign with.
func (p *peers) awaitPermission(ctx context.Context) (first bool, err error) {
	said := ""
	for {
		list := p.askOthers(ctx)
		begins, joins, why := howToBegin(
			p.self.Name,
			p.group.Controllers[0].Name == p.self.Name,
			list,
		)
		if joins {
			if p.group.IsWitness(p.self.Name) {
				return false, nil // it signs nothing
			}
			err = p.fetchKeys(ctx, findLeader(list).of)
			if err == nil {
				return false, nil
			}
			why = err.Error()
		}
		if begins {
			p.log.Info(
				"a new group of controllers begins",
				"controller",
				p.self.Name,
				"others",
				len(list),
			)
			return true, nil
		}
		if why != said {
			said = why
			p.log.Info("this controller has no ledger yet", "waits", why)
		}
		if !pauseFor(ctx, tendEvery) {
			return false, ctx.Err()
		}
	}
}

// silentPatience is how long a controller whose ledger was that of a single one waits
// for others that do not answer, before it begins a group.
const silentPatience = 5 * time.Second

// mayFound tells whether the ledger of a single controller may become that of a
// group. It may not where others have a ledger already: a log that was rebuilt, or
// that was put back from the time before the group, would be a second leader of the
// same cluster.
func (p *peers) mayFound(ctx context.Context) error {
	said := ""
	for since := time.Now(); ; {
		starting, silent, err := foundingOn(p.askOthers(ctx))
		if err != nil {
			return fmt.Errorf(
				"%w: start this controller with an empty state folder (move %s aside), and it is taken in",
				err,
				p.dir,
			)
		}
		if starting == "" && (silent == "" || time.Since(since) > silentPatience) {
			return nil
		}
		if why := strings.TrimSpace(starting + " " + silent); why != said {
			said = why
			p.log.Info(
				"the ledger of a single controller waits to become that of a group",
				"others",
				why,
			)
		}
		if !pauseFor(ctx, tendEvery) {
			return ctx.Err()
		}
	}
}

// foundingOn judges what the other controllers say. starting names one that may have
// a ledger and does not know yet, silent one that does not answer.
func foundingOn(list []answered) (starting, silent string, err error) {
	for _, a := range list {
		var cannotSay *members.AnswerError
		switch {
		case errors.As(a.err, &cannotSay):
			starting = a.err.Error()
		case a.err != nil:
			silent = a.err.Error()
		case !a.standing.Waits:
			return "", "", fmt.Errorf(
				"controller %s has the ledger of a group, and the ledger here is that of a single controller",
				a.of.Name,
			)
		}
	}
	return starting, silent, nil
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *peers) fetchKeys(ctx context.Context, from conffile.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, 5*askPatience)
	defer cancel()
	keys := sharedKeys{}
	if err := members.Ask(ctx, p.source, from.Address, askKeys, &keys); err != nil {
		return fmt.Errorf("the keys of controller %s: %w", from.Name, err)
	}
	for _, name := range keyFiles {
		if len(keys[name]) == 0 {
			return fmt.Errorf("controller %s did not send %s", from.Name, name)
		}
		if err := keyfile.Write(filepath.Join(p.dir, name), keys[name], fs.FileMode(0o600)); err != nil {
			return err
		}
	}
	return nil
}

// tendGroup looks after the group while this controller leads: who waits is taken in,
// who has caught up gets his vote, who has lost his ledger loses his vote first.
func (p *peers) tendGroup(ctx context.Context) error {
	said := map[string]string{}
	for pauseFor(ctx, tendEvery) {
		for _, step := range nextSteps(p.durable.Group(), p.askOthers(ctx), uint64(p.durable.LastPosition())) {
			err := step.do(ctx, p.durable)
			text := step.what
			if err != nil {
				text += ": " + err.Error()
			}
			if said[step.who] != text && ctx.Err() == nil {
				said[step.who] = text
				p.log.Info(
					"the group of controllers changes",
					"controller",
					step.who,
					"change",
					text,
				)
			}
		}
	}
	return nil
}

// groupStep is one change of the group.
type groupStep struct {
	who, what string
	do        func(ctx context.Context, d *log.Durable) error
}

// nextSteps are the changes that are due, by what the controllers say.
func nextSteps(group []log.Member, list []answered, position uint64) []groupStep {
	var out []groupStep
	for _, a := range list {
		if a.err != nil {
			continue
		}
		at := slices.IndexFunc(group, func(m log.Member) bool { return m.ID == a.of.Name })
		member := log.Member{ID: a.of.Name, Address: a.of.Address}
		switch {
		case at < 0 && a.standing.Waits:
			member.Joining = true
			out = append(
				out,
				groupStep{
					a.of.Name,
					"taken in without a vote",
					func(ctx context.Context, d *log.Durable) error { return d.Add(ctx, member) },
				},
			)
		case at >= 0 && a.standing.Waits && !group[at].Joining:
			out = append(
				out,
				groupStep{
					a.of.Name,
					"it has lost its ledger and its vote",
					func(ctx context.Context, d *log.Durable) error { return d.Remove(ctx, member.ID) },
				},
			)
		case at >= 0 && !a.standing.Waits && group[at].Joining && a.standing.Position+caughtUp >= position:
			out = append(
				out,
				groupStep{
					a.of.Name,
					"it has caught up and votes",
					func(ctx context.Context, d *log.Durable) error { return d.Add(ctx, member) },
				},
			)
		}
	}
	return out
}

// List implements daemon.Group.
func (p *peers) List(ctx context.Context) *apiv1.ControllersReply {
	self, err := p.currentStanding()
	if err != nil {
		return &apiv1.ControllersReply{}
	}
	out := &apiv1.ControllersReply{Term: self.Term}
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
	out.Survives = uint32(max(voters-1, 0) / 2)
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
		case controller.Name == p.self.Name:
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
			info.Lag = max(self.Position, st.Position) - st.Position
			info.ClockAhead = st.Clock - self.Clock
		}
		delete(known, controller.Name)
		out.Controllers = append(out.Controllers, info)
	}
	others := p.askOthers(ctx)
	for _, controller := range p.group.Members() { // in the order of slurm.conf, by whose places scontrol takeover names them
		if controller.Name == p.self.Name {
			add(controller, self, nil)
			continue
		}
		a := others[slices.IndexFunc(others, func(a answered) bool { return a.of.Name == controller.Name })]
		add(a.of, a.standing, a.err)
	}
	for id, address := range known { // not in slurm.conf any more
		add(
			conffile.Controller{Name: id, Address: address},
			standing{},
			errors.New("slurm.conf does not name it: remove it"),
		)
	}
	return out
}

// Change implements daemon.Group.
func (p *peers) Change(ctx context.Context, req *apiv1.ChangeControllersRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var err error
	switch {
	case req.GetAdd() != "":
		err = p.add(ctx, req.GetAdd(), req.GetAddress())
	case req.GetRemove() != "":
		if !slices.ContainsFunc(
			p.durable.Group(),
			func(m log.Member) bool { return m.ID == req.GetRemove() },
		) {
			return "", spec.Refuse(spec.CodeBadRequest, "there is no controller "+req.GetRemove()+
				" in the group")
		}
		err = p.durable.Remove(ctx, req.GetRemove())
	case req.GetHandOver():
		return p.handOver(ctx, req.GetTo())
	default:
		return "", spec.Refuse(spec.CodeBadRequest, "nothing to change")
	}
	if err != nil {
		return "", spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	return p.self.Name, nil
}

func (p *peers) add(ctx context.Context, name, address string) error {
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
func (p *peers) handOver(ctx context.Context, to string) (string, error) {
	if to == p.self.Name {
		return to, nil
	}
	if p.group.IsWitness(to) {
		return "", spec.Refuse(spec.CodeBadRequest, to+
			" is the witness: it votes and does not lead")
	}
	if to == "" {
		to = p.successor(ctx)
	}
	if err := p.durable.HandOver(ctx, to); err != nil {
		return "", spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	for {
		changed := p.durable.Changed()
		if lead := p.durable.Leader(); lead.Known && !lead.Self {
			return lead.ID, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", nil // it was given away; who has it shows soon
		}
	}
}
