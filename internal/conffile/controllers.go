package conffile

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec/slurmconf"
)

// Controller is one of several controllers of a cluster.
type Controller struct {
	Name    string // in SlurmctldHost and in its certificate
	Address string // host:port where controllers, agents and tools reach it
}

// Group is who keeps the ledger of a cluster.
type Group struct {
	Controllers []Controller // in the order of slurm.conf
	// Witness votes with them and keeps no state; nil = there is no witness.
	Witness *Controller
}

// Members are all who vote, the witness last.
func (g Group) Members() []Controller {
	controllers := slices.Clone(g.Controllers)
	if g.Witness != nil {
		controllers = append(controllers, *g.Witness)
	}
	return controllers
}

// IsWitness tells whether a name is the witness's.
func (g Group) IsWitness(name string) bool { return g.Witness != nil && g.Witness.Name == name }

// defaultPort is SlurmctldPort where slurm.conf does not say it.
const defaultPort = 6817

// ReadControllers reads which controllers slurm.conf names and which witness
// muster.yaml does, and finds the one that this is: controller.name of muster.yaml,
// else the one with this host's name. self is nil where there is only one.
func ReadControllers(config *Config) (group Group, self *Controller, err error) {
	cluster, problems := ReadSlurm(config.SlurmConf)
	if err := problems.Err(); err != nil {
		return group, nil, fmt.Errorf("the cluster's configuration cannot be used:\n%w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return group, nil, err
	}
	group.Controllers = controllersOf(cluster)
	group.Witness, err = readWitness(config.Controller.Witness, portOf(cluster))
	if err != nil {
		return group, nil, err
	}
	if len(group.Controllers) < 2 {
		if group.Witness != nil {
			return group, nil, fmt.Errorf(
				"controller.witness=%s of muster.yaml: slurm.conf names one controller, and a witness stands between two (SlurmctldHost)",
				config.Controller.Witness,
			)
		}
		return group, nil, nil
	}
	self, err = findController(group.Members(), config.Controller.Name, host)
	return group, self, err
}

// readWitness reads controller.witness; nil = there is none.
func readWitness(text string, port uint32) (*Controller, error) {
	if text == "" {
		return nil, nil
	}
	name, rest, _ := strings.Cut(text, "(")
	at, closed := strings.CutSuffix(rest, ")")
	if rest == "" {
		at, closed = name, !strings.Contains(text, "(")
	}
	isName := name != "" && !strings.ContainsAny(name, "/:) \t")
	isAddress := at != "" && !strings.ContainsAny(at, "/() \t")
	if !closed || !isName || !isAddress {
		return nil, fmt.Errorf(
			"controller.witness=%q of muster.yaml: expected NAME, NAME(ADDRESS) or NAME(ADDRESS:PORT), as in wit(10.0.0.3)",
			text,
		)
	}
	if _, _, err := net.SplitHostPort(at); err != nil {
		at = net.JoinHostPort(strings.Trim(at, "[]"), strconv.FormatUint(uint64(port), 10))
	}
	return &Controller{Name: name, Address: at}, nil
}

// portOf is SlurmctldPort.
func portOf(cluster *slurmconf.Cluster) uint32 {
	if cluster.Control.Port == 0 {
		return defaultPort
	}
	return cluster.Control.Port
}

// controllersOf are the controllers of a slurm.conf with their addresses.
func controllersOf(cluster *slurmconf.Cluster) []Controller {
	port := portOf(cluster)
	var controllers []Controller
	for _, host := range cluster.Control.Hosts {
		at := host.Addr
		if at == "" {
			at = host.Name
		}
		controllers = append(
			controllers,
			Controller{
				Name: host.Name,
				Address: net.JoinHostPort(
					strings.Trim(at, "[]"),
					strconv.FormatUint(uint64(port), 10),
				),
			},
		)
	}
	return controllers
}

// findController finds one by its name, else by the name of this host.
func findController(all []Controller, name, host string) (*Controller, error) {
	short, _, _ := strings.Cut(host, ".")
	var names []string
	seen := map[string]bool{}
	var found *Controller
	for i := range all {
		controller := &all[i]
		if seen[controller.Name] {
			return nil, fmt.Errorf(
				"SlurmctldHost of slurm.conf and controller.witness of muster.yaml name %s twice",
				controller.Name,
			)
		}
		seen[controller.Name] = true
		names = append(names, controller.Name)
		if controller.Name == name ||
			name == "" && (controller.Name == host || controller.Name == short) {
			found = controller
		}
	}
	switch {
	case found != nil:
		return found, nil
	case name != "":
		return nil, fmt.Errorf(
			"controller.name=%s of muster.yaml is no SlurmctldHost of slurm.conf, and not controller.witness; they name %s",
			name,
			strings.Join(names, ", "),
		)
	}
	return nil, fmt.Errorf(
		"slurm.conf names the controllers %s, and this host is %s: say in controller.name of muster.yaml which of them it is",
		strings.Join(names, ", "),
		host,
	)
}
