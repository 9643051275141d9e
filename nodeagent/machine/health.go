package machine

import (
	"context"
	"errors"
	"log/slog"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/nodeagent/health"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
)

// HealthRules judges this node by the rules of package health.
type HealthRules struct {
	rules   []health.Rule
	node    host.Health
	gpus    telemetry.GPUHealth
	metrics *telemetry.Telemetry
	clock   clock.Clock
	log     *slog.Logger
	failing []health.Finding // with the values with which each began to fail
}

// NewHealthRules makes the rules of a node with the folders that they look at.
func NewHealthRules(
	rules []health.Rule,
	paths []string,
	metrics *telemetry.Telemetry,
	sys clock.Clock,
	logger *slog.Logger,
) *HealthRules {
	return &HealthRules{
		rules:   rules,
		node:    host.Health{Source: host.This("/tmp"), Paths: paths},
		metrics: metrics,
		clock:   sys,
		log:     logger,
	}
}

// Check implements daemon.Checker: the error has the rules that drain the node. One
// that only warns is logged when it begins and when it ends.
func (h *HealthRules) Check(ctx context.Context) error {
	now := h.clock.Now()
	readings := append(h.node.Read(ctx, now), h.gpus.Read(h.metrics, now)...)
	found := health.Judge(h.rules, readings, h.failing)
	h.metrics.SetHealth(h.rules, readings, found)
	reason := health.Reason(found, h.failing)
	for _, finding := range found {
		if !finding.In(h.failing) && finding.Rule.Action == health.Warn {
			h.log.Warn("a health rule fails", "rule", finding.Rule.Name, "finding", finding.String())
		}
	}
	for _, finding := range h.failing {
		if !finding.In(found) {
			h.log.Info("a health rule holds again", "rule", finding.Rule.Name, "about", finding.Subject)
		}
	}
	h.failing = health.Keep(found, h.failing)
	if reason != "" {
		return errors.New(reason)
	}
	return nil
}
