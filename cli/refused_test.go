package cli

import (
	"regexp"
	"slices"
	"testing"

	"github.com/musterhpc/muster/spec/slurmconf"
)

// claim is a statement that texts of refusal make about this release. Once the
// feature exists, the texts that still deny it are wrong.
type claim struct {
	denial *regexp.Regexp
	exists func() bool
	sample string // a text that the denial finds, so that the pattern is known to work
}

// claims are the denials that were once left behind by a feature, and their
// like. Add a row when a text says that something does not exist.
func claims() []claim {
	denies := regexp.MustCompile
	return []claim{
		{denies(`(?i)\bno MCS\b`), implements("MCSPlugin"), "there are no MCS labels"},
		{denies(`(?i)fair.?share is`), implements("PriorityWeightFairshare"), "fair share is still to come"},
		{denies(`(?i)not (booted|powered up) on demand`), implements("ResumeProgram"), "nodes are not booted on demand"},
		{denies(`(?i)without regard to switches$`), implements("TopologyPlugin"), "nodes are chosen without regard to switches"},
		{denies(`(?i)burst buffers?\b`), implements("BurstBufferType"), "Muster has no burst buffers"},
		{denies(`(?i)\bno federation`), implements("FederationParameters"), "Muster has no federation"},
		{denies(`(?i)\bno sbcast\b`), hasCommand("sbcast"), "there is no sbcast"},
		{denies(`(?i)\bno cron\b`), hasCommand("scrontab"), "Muster has no cron jobs"},
		{denies(`(?i)\bno triggers?\b`), hasCommand("strigger"), "there are no triggers"},
		{denies(`(?i)\bno administrator's comment`), func() bool { return true }, "there is no administrator's comment yet"},
		{denies(`(?i)\b(not|none) (\w+ )?yet\b|still to come|there is no \w+ yet`), func() bool { return true }, "OCI containers are not started yet"},
	}
}

// implements tells whether slurm.conf has a key that Muster obeys.
func implements(key string) func() bool {
	return func() bool {
		return slices.ContainsFunc(slurmconf.Supported(), func(s slurmconf.Support) bool {
			return s.File == "slurm.conf" && s.Key == key && s.Status == "implemented"
		})
	}
}

func hasCommand(name string) func() bool { return func() bool { return findCommand(name) != nil } }

// refusals are the texts that say why an option, a verb or a key does nothing,
// by where they are.
func refusals() map[string]string {
	out := map[string]string{}
	for _, e := range commandEntries() {
		c := findCommand(e.Name)
		for _, o := range c.Options {
			out[c.Name+" --"+o.Long+" (refused)"] = o.Refused
			out[c.Name+" --"+o.Long+" (warning)"] = o.Warn
		}
	}
	for _, s := range slurmconf.Supported() {
		out[s.File+" "+s.Record+" "+s.Key] = s.Why
	}
	for _, name := range []string{"smail"} {
		out["muster "+name] = notYet(name)
	}
	return out
}

// TestRefusalsAreTrue fails for a text that denies what exists.
func TestRefusalsAreTrue(t *testing.T) {
	texts := refusals()
	if len(texts) < 300 {
		t.Fatalf("found %d texts of refusal, expected several hundred", len(texts))
	}
	for _, c := range claims() {
		if !c.denial.MatchString(c.sample) {
			t.Errorf("the pattern %s does not find %q", c.denial, c.sample)
		}
		if !c.exists() {
			continue
		}
		for where, text := range texts {
			if c.denial.MatchString(text) {
				t.Errorf("%s: %q is not true any more", where, text)
			}
		}
	}
}
