package telemetry

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/health"
	"github.com/musterhpc/muster/spec"
)

// healthGauges are the two figures of a rule.
type healthGauges struct {
	failed, value *metrics.Gauge
}

// newHealthGauges makes the figures of all rules; those that are off never fail. rules are
// those of the site, nil for the default ones.
func newHealthGauges(
	gauge func(metric string, v float64, extra ...string) *metrics.Gauge,
	rules []health.Rule,
) map[string]healthGauges {
	if rules == nil {
		rules = health.Rules()
	}
	gauges := map[string]healthGauges{}
	for _, rule := range rules {
		gauge("muster_node_health_rule_info", 1,
			labelPairs([]string{"rule", "action", "back"}, rule.Name, rule.Action.String(), rule.Back))
		label := labelPairs([]string{"rule"}, rule.Name)
		gauges[rule.Name] = healthGauges{
			failed: gauge("muster_node_health_failed", 0, label),
			value:  gauge("muster_node_health_value", float64(unmeasured(rule)), label),
		}
	}
	return gauges
}

// unmeasured is what a rule shows of which nothing was measured.
func unmeasured(rule health.Rule) int64 {
	if rule.Below {
		return 100
	}
	return 0
}

// SetHealth shows a look at the node: how many subjects fail a rule, and its worst
// value.
func (t *Telemetry) SetHealth(rules []health.Rule, readings []health.Reading, found []health.Finding) {
	for _, rule := range rules {
		gauges := t.self.health[rule.Name]
		count := 0
		for _, finding := range found {
			if finding.Rule.Name == rule.Name {
				count++
			}
		}
		gauges.failed.Set(float64(count))
		worst, measured := health.Worst(rule, readings)
		if !measured {
			worst.Value = unmeasured(rule)
		}
		gauges.value.Set(float64(worst.Value))
	}
}

// throttled are the reasons for low clocks that are a fault of the node: heat, and
// the power brake. A power limit in force is not one.
const throttled = device.ReasonsThermal | device.ReasonHWSlowdown | device.ReasonHWPowerBrake

// GPUHealth measures the GPUs for the rules of package health, by their last
// collection. It is for one caller at a time.
type GPUHealth struct {
	slow map[string]spec.Instant // GPUs whose clocks are held down, since when
}

// Read measures the GPUs as a telemetry shows them. A figure that the provider does
// not read gives no reading.
func (g *GPUHealth) Read(telemetry *Telemetry, now spec.Instant) []health.Reading {
	sample := telemetry.state.Load().sample
	if sample == nil {
		return nil
	}
	slow := map[string]spec.Instant{}
	var readings []health.Reading
	for i := range sample.Readings {
		gpu := &sample.Readings[i]
		subject := "GPU " + gpu.UUID
		for _, figure := range [...]struct {
			rule  string
			field device.Field
		}{
			{"gpu_remap_failed", device.RemapFailure},
			{"gpu_remap_pending", device.RemapPending},
			{"nvlink_recoveries", device.NVLinkRecovery},
		} {
			if n, ok := gpu.Get(figure.field); ok {
				readings = append(readings, health.Reading{Rule: figure.rule, Subject: subject, Value: n})
			}
		}
		reasons, ok := gpu.Get(device.ClockReasons)
		if !ok {
			continue
		}
		reading := health.Reading{Rule: "gpu_throttled", Subject: subject}
		if reasons&throttled != 0 {
			since, known := g.slow[gpu.UUID]
			if !known {
				since = now
			}
			slow[gpu.UUID] = since
			reading.Value = int64(now.Sub(since) / spec.Second)
		}
		readings = append(readings, reading)
	}
	g.slow = slow
	return readings
}
