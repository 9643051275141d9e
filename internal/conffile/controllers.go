package conffile

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec/slurmconf"
)

// Controller is one of several controllers of a cluster.
type Controller struct {
	Name    string // in SlurmctldHost and in its certificate
	Address string // host:port where controllers, agents and tools reach it
}

// defaultPort is SlurmctldPort where slurm.conf does not say it.
const defaultPort = 6817

// ReadControllers reads which controllers slurm.conf names, and finds the one that
// this is: controller.name of muster.yaml, else the one with this host's name. self
// is nil where there is only one.
func ReadControllers(cfg *Config) (all []Controller, self *Controller, err error) {
	c, problems := ReadSlurm(cfg.SlurmConf)
	if err := problems.Err(); err != nil {
		return nil, nil, fmt.Errorf("the cluster's configuration cannot be used:\n%w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	all = controllersOf(c)
	if len(all) < 2 {
		return all, nil, nil
	}
	self, err = findController(all, cfg.Controller.Name, host)
	return all, self, err
}

// controllersOf are the controllers of a slurm.conf with their addresses.
func controllersOf(c *slurmconf.Cluster) []Controller {
	port := c.Control.Port
	if port == 0 {
		port = defaultPort
	}
	var out []Controller
	for _, h := range c.Control.Hosts {
		at := h.Addr
		if at == "" {
			at = h.Name
		}
		out = append(out, Controller{Name: h.Name, Address: net.JoinHostPort(strings.Trim(at, "[]"), strconv.FormatUint(uint64(port), 10))})
	}
	return out
}

// findController finds one by its name, else by the name of this host.
func findController(all []Controller, name, host string) (*Controller, error) {
	short, _, _ := strings.Cut(host, ".")
	var names []string
	seen := map[string]bool{}
	var found *Controller
	for i := range all {
		c := &all[i]
		if seen[c.Name] {
			return nil, fmt.Errorf("slurm.conf names SlurmctldHost=%s twice", c.Name)
		}
		seen[c.Name] = true
		names = append(names, c.Name)
		if c.Name == name || name == "" && (c.Name == host || c.Name == short) {
			found = c
		}
	}
	switch {
	case found != nil:
		return found, nil
	case name != "":
		return nil, fmt.Errorf("controller.name=%s of muster.yaml is no SlurmctldHost of slurm.conf, which names %s", name, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("slurm.conf names the controllers %s, and this host is %s: say in controller.name of muster.yaml which of them it is",
		strings.Join(names, ", "), host)
}
