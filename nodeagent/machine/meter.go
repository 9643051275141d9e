package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/power"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
)

// ErrEnergy is wrapped where the meter that the site names cannot be used.
var ErrEnergy = errors.New("the node's energy is not measured")

// ChooseMeter gives the meter that the configuration names, below the root of sys;
// nil where there is none or none is wanted.
func ChooseMeter(s *settings.Settings, sys string, now spec.Instant) (daemon.Meter, error) {
	files := os.DirFS(sys)
	source := s.Config.Energy.Source
	if source == "auto" {
		source = fromSlurm(s.Cluster.File.Agent.Gather.Energy)
	}
	var meter power.Source
	switch source {
	case "none":
		return nil, nil
	case "auto":
		meter = power.Auto(files, now)
		if meter == nil {
			return nil, nil // most virtual machines
		}
		return meter, nil
	case "rapl":
		meter = &power.RAPL{Sys: files}
	case "hwmon":
		meter = &power.Hwmon{Sys: files}
	case "pm_counters":
		meter = &power.PMCounters{Sys: files}
	case "ipmi":
		meter = &power.IPMI{Program: s.Config.Energy.Ipmitool}
	case "redfish":
		return openRedfish(s)
	}
	if meter.IsSlow() {
		return meter, nil // whether it answers is told when it is asked
	}
	if _, err := meter.Read(context.Background(), now); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnergy, err)
	}
	return meter, nil
}

// fromSlurm is the source that AcctGatherEnergyType names. gpu alone measures no
// node: devices are measured anyway.
func fromSlurm(types []string) string {
	if types == nil {
		return "auto"
	}
	for _, name := range []string{"ipmi", "pm_counters", "rapl"} {
		if slices.Contains(types, name) {
			return name
		}
	}
	return "none"
}

func openRedfish(s *settings.Settings) (daemon.Meter, error) {
	energy := &s.Config.Energy
	address := strings.NewReplacer("%n", s.Node.Name, "%h", s.Host.Hostname).
		Replace(energy.RedfishURL)
	password := func() (string, error) {
		data, err := os.ReadFile(energy.RedfishPasswordFile)
		return strings.TrimSpace(string(data)), err
	}
	meter, err := power.NewRedfish(address, energy.RedfishUser, password, energy.RedfishCAFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnergy, err)
	}
	return meter, nil
}
