package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// muster.yaml chooses the meter, else slurm.conf, else what the node has.
func TestChooseMeter(t *testing.T) {
	rapl := t.TempDir()
	zone := filepath.Join(rapl, "class/powercap/intel-rapl:0")
	if err := os.MkdirAll(zone, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"name": "package-0\n", "energy_uj": "5\n"} {
		if err := os.WriteFile(filepath.Join(zone, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	none := t.TempDir()
	for _, c := range []struct {
		name, source, sys string
		slurm             []string
		want, said        string
	}{
		{"the node's own", "auto", rapl, nil, "rapl", ""},
		{"a virtual machine", "auto", none, nil, "", ""},
		{"slurm.conf says none", "auto", rapl, []string{}, "", ""},
		{"slurm.conf says GPUs", "auto", rapl, []string{"gpu"}, "", ""},
		{"slurm.conf says IPMI and GPUs", "auto", rapl, []string{"gpu", "ipmi"}, "ipmi", ""},
		{"muster.yaml has the last word", "rapl", rapl, []string{}, "rapl", ""},
		{"what is not there is said", "rapl", none, nil, "", "rapl"},
		{"nor that of slurm.conf", "auto", none, []string{"pm_counters"}, "", "pm_counters"},
		{"switched off", "none", rapl, []string{"rapl"}, "", ""},
		{"a controller", "redfish", none, nil, "redfish", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := conffile.Defaults()
			config.Energy.Source, config.Energy.RedfishURL = c.source, "https://%n-bmc"
			s := &settings.Settings{
				Config:  config,
				Cluster: &slurmconf.Cluster{File: &slurmconf.File{}, Gather: &slurmconf.GatherFile{}},
				Node:    &spec.NodeSpec{Name: "n1"},
				Host:    host.Inventory{Hostname: "host1"},
			}
			s.Cluster.File.Agent.Gather.Energy = c.slurm
			meter, err := ChooseMeter(s, c.sys, spec.AtUnix(1_700_000_000))
			if c.said != "" {
				if !errors.Is(err, ErrEnergy) || !strings.Contains(err.Error(), c.said) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if meter != nil {
				got = meter.Name()
			}
			if got != c.want {
				t.Errorf("the meter is %q, want %q", got, c.want)
			}
		})
	}
}

// How often a meter is read, by the key that says so.
func TestMeterTimes(t *testing.T) {
	for _, c := range []struct {
		name       string
		slow       bool
		gather     slurmconf.Gather
		every, gap spec.Span
	}{
		{"by default", false, slurmconf.Gather{}, 10 * spec.Second, spec.Minute},
		{"a controller", true, slurmconf.Gather{}, 30 * spec.Second, 90 * spec.Second},
		{"EnergyIPMIFrequency", true, slurmconf.Gather{Energy: []string{"ipmi"}}, 45 * spec.Second, 135 * spec.Second},
		{"JobAcctGatherFrequency", false, slurmconf.Gather{EnergyEvery: 40 * spec.Second, NodeEvery: 50 * spec.Second}, 40 * spec.Second, 2 * spec.Minute},
		{"AcctGatherNodeFreq", false, slurmconf.Gather{NodeEvery: 50 * spec.Second}, 50 * spec.Second, 150 * spec.Second},
		{"not more often than anything", false, slurmconf.Gather{EnergyEvery: spec.Second}, 10 * spec.Second, spec.Minute},
		{"never", false, slurmconf.Gather{EnergyEvery: spec.Infinite}, 0, 0},
	} {
		s := &settings.Settings{Config: conffile.Defaults(), Cluster: &slurmconf.Cluster{File: &slurmconf.File{}, Gather: &slurmconf.GatherFile{IPMIEvery: 45 * spec.Second}}}
		s.Cluster.File.Agent.Gather = c.gather
		if every, gap := s.MeterTimes(c.slow); every != c.every || gap != c.gap {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, every, gap, c.every, c.gap)
		}
	}
}
