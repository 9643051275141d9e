package daemon

import (
	"context"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// checkSource is who looks at the node's health.
type checkSource uint8

// The sources.
const (
	byProgram checkSource = iota // HealthCheckProgram
	byRules                      // the rules of package health
	checkSources
)

// check looks at the node's health if it is time: in goroutines of their own, each
// source once at a time.
func (a *Agent) check(ctx context.Context, now spec.Instant) {
	if a.deps.Rules != nil && !a.rulesBusy && now >= a.rulesAt {
		a.rulesBusy = true
		a.rulesAt = now.Add(max(a.cfg.RulesEvery, spec.Second))
		a.lookOnce(ctx, a.deps.Rules, byRules, func() { a.rulesBusy = false })
	}
	wanted := a.cfg.CheckIdle
	if len(a.core.runs) > 0 {
		wanted = a.cfg.CheckBusy
	}
	if a.deps.Check == nil || a.checks || now < a.checkAt || !wanted {
		return
	}
	a.checks, a.checkAt = true, spec.FarFuture
	if a.cfg.CheckEvery > 0 {
		a.checkAt = now.Add(a.cfg.CheckEvery)
	}
	a.lookOnce(ctx, a.deps.Check, byProgram, func() { a.checks = false })
}

// lookOnce has one source look at the node, and tells the core what it found.
func (a *Agent) lookOnce(ctx context.Context, checker Checker, source checkSource, over func()) {
	a.wg.Go(func() {
		reason := ""
		if err := checker.Check(ctx); err != nil {
			reason = err.Error()
		}
		if ctx.Err() == nil {
			a.inbox.putItems(func() {
				over()
				a.core.Checked(source, reason)
			})
		}
	})
}

// awaitedSources tells which sources will look at the node.
func (d *Deps) awaitedSources() (awaited [checkSources]bool) {
	awaited[byProgram] = d.Check != nil
	awaited[byRules] = d.Rules != nil
	return awaited
}

// Checked takes what a look at the node's health found; why is empty when it is
// well. The controller is told what is new, and at first in any case: it may
// have set the node aside before this agent began. That the node is well is said
// when all have looked and found it so: one of them may know why it was set aside.
func (c *Core) Checked(source checkSource, reason string) {
	c.awaited[source] = false
	c.found[source] = reason
	var parts []string
	for _, text := range c.found {
		if text != "" {
			parts = append(parts, text)
		}
	}
	unwell := strings.Join(parts, "; ")
	if unwell == "" && c.awaited != [checkSources]bool{} {
		return
	}
	if c.checked && c.unwell == unwell {
		return
	}
	if unwell != "" {
		c.log.Error("the node is not well", "why", unwell)
	} else if c.unwell != "" {
		c.log.Info("the node is well again")
	}
	c.checked, c.unwell = true, unwell
	c.outbox.addReport(
		&apiv1.Report{Kind: &apiv1.Report_NodeCheck{NodeCheck: &apiv1.NodeCheck{Failed: unwell}}},
		plan.RunKey{},
		false,
	)
	c.fx.Send = true
}
