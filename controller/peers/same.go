package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhpc/muster/ledger/log"
)

// Errors of a controller that does not belong to the others.
var (
	// ErrOtherLedger is why a controller does not start beside one that has another ledger.
	ErrOtherLedger = errors.New("two clusters of one name")
	// ErrOtherCluster is why it does not start with the certificate of another cluster.
	ErrOtherCluster = errors.New("the certificate is of another cluster")
)

// SetLedger says how to find the name of the ledger that the state folder holds; empty = not known.
func (p *Peers) SetLedger(find func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger = find
}

// ownLedger is the name of the ledger here.
func (p *Peers) ownLedger() string {
	p.mu.Lock()
	find := p.ledger
	p.mu.Unlock()
	if find == nil {
		return ""
	}
	return find()
}

// CompareOthers refuses to open a ledger beside one of another cluster: the log of either would be
// written over by the other's. It says in the log what else does not fit. Controllers that do not
// answer now compare themselves when they start.
func (p *Peers) CompareOthers(ctx context.Context) error {
	asked := time.Now()
	list := p.AskOthers(ctx)
	if err := refuseOtherLedger(p.ownLedger(), p.dir, list); err != nil {
		return err
	}
	warnOfRemoval(p.log, p.Self.Name, list)
	warnOfClocks(p.log, asked, time.Now(), list)
	return nil
}

func refuseOtherLedger(own, dir string, list []Answer) error {
	for _, answer := range list {
		theirs := answer.Standing.Ledger
		if answer.Err != nil || own == "" || theirs == "" || theirs == own {
			continue
		}
		return fmt.Errorf(
			"%w: controller %s at %s has the ledger %q, and %s here has %q; if %s is right, start this controller with an "+
				"empty state folder (move %s aside), and it is taken in; if this folder is right, do that there",
			ErrOtherLedger, answer.Of.Name, answer.Of.Address, theirs, dir, own, answer.Of.Name, dir,
		)
	}
	return nil
}

// warnOfRemoval says that the group goes on without this controller.
func warnOfRemoval(logger *slog.Logger, self string, list []Answer) {
	lead := FindLeader(list)
	if lead == nil || slices.ContainsFunc(
		lead.Standing.Members,
		func(m log.Member) bool { return m.ID == self },
	) {
		return
	}
	logger.Warn(
		"this controller was removed from the group: it passes commands on and has no vote",
		"leader", lead.Of.Name,
		"to take it in", "muster controllers add "+self,
	)
}

// maxClockGap is how far the clocks of two controllers may be apart before it is said.
const maxClockGap = time.Second

// warnOfClocks says which controllers' clocks differ from this one's, by more than the question took.
func warnOfClocks(logger *slog.Logger, asked, answered time.Time, list []Answer) {
	for _, answer := range list {
		if answer.Err != nil || answer.Standing.Clock == 0 {
			continue
		}
		theirs := time.Unix(0, answer.Standing.Clock)
		behind, ahead := theirs.Sub(answered), asked.Sub(theirs)
		if max(behind, ahead) <= maxClockGap {
			continue
		}
		logger.Warn(
			"the clocks of two controllers differ: set them by NTP; times in the ledger never go back, whoever leads",
			"controller", answer.Of.Name,
			"ahead", theirs.Sub(asked).Round(time.Second),
		)
	}
}
