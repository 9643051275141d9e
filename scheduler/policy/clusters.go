package policy

import (
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// maxPort is the highest number of a port.
const maxPort = 65535

// planCluster changes this cluster, whose limits are those of the root of the tree, or what is
// known of others. `add cluster NAME` with the own name, as in Slurm's guides, changes nothing.
func (p *planner) planCluster() error {
	names := p.c.Names
	if p.c.Verb == Modify && len(names) == 0 {
		names = []string{p.t.ClusterName}
	}
	for _, name := range names {
		change := p.changeOther
		if name == p.t.ClusterName {
			change = p.changeOwn
		}
		if err := change(name); err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) changeOwn(name string) error {
	if p.c.Verb == Delete {
		return badOption("cluster %q is this controller's own and cannot be deleted", name)
	}
	root := p.currentPolicy().FindAssoc("root", "", "")
	if root != nil && len(p.c.Set) > 0 {
		if err := p.putAssoc(*root, p.c.Set, clusterNames()); err != nil {
			return err
		}
	}
	p.names = append(p.names, name)
	return nil
}

// changeOther adds another cluster, changes where it is reached, or forgets it.
func (p *planner) changeOther(name string) error {
	known := p.currentPolicy().FindCluster(name)
	switch {
	case p.c.Verb == Delete && known == nil:
		return nil
	case p.c.Verb == Delete:
		p.names = append(p.names, name)
		return p.emitEvent(&event.ClusterRemoved{Name: name})
	case p.c.Verb == Modify && known == nil:
		return badOption(
			"cluster %q is not known here: sacctmgr add cluster %s socket=PATH makes it known",
			name, name,
		)
	case p.c.Verb == Add && known != nil:
		return nil
	}
	if err := validName(name); err != nil {
		return err
	}
	if strings.EqualFold(name, "all") {
		return badOption("a cluster cannot be called all, which stands for every cluster in -M")
	}
	cluster := spec.KnownCluster{Name: name, Socket: "/run/muster/" + name + "/muster.sock"}
	if known != nil {
		cluster = *known
	}
	if err := setCluster(&cluster, p.c.Set); err != nil {
		return err
	}
	p.names = append(p.names, name)
	if known != nil && *known == cluster {
		return nil
	}
	return p.emitEvent(&event.ClusterPut{
		Name:   cluster.Name,
		Socket: cluster.Socket,
		Host:   cluster.Host,
		Port:   cluster.Port,
	})
}

// clusterNames are the keys of a command about clusters that change nothing: names are read before,
// and there are no classifications.
func clusterNames() []string {
	return []string{"cluster", "clusters", "name", "names", "classification"}
}

// setCluster changes where a cluster is reached.
func setCluster(cluster *spec.KnownCluster, set []spec.KeyValue) error {
	options := []option{
		{"socket", func(path string, _ byte) error {
			if !strings.HasPrefix(path, "/") {
				return errText("expected an absolute path of a socket")
			}
			cluster.Socket = path
			return nil
		}},
		{"controlhost", setText(&cluster.Host)},
		{"controlport", setWhole(&cluster.Port)},
	}
	if err := applyOptions("cluster", options, clusterNames(), set); err != nil {
		return err
	}
	if cluster.Port > maxPort {
		return badOption("controlport=%d: a port is at most %d", cluster.Port, maxPort)
	}
	return nil
}
