package clusters

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/spec/hostlist"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// ErrSpec is wrapped by what is wrong with a MusterCluster.
var ErrSpec = errors.New("the MusterCluster cannot be followed")

// Places in the pods.
const (
	configDir    = "/etc/muster"
	stateDir     = "/var/lib/muster"
	runDir       = "/run/muster"
	authorityDir = "/run/muster-authority"
	tokenDir     = "/run/muster-enrolment"
	dsnDir       = "/run/muster-dsn"
)

// Ports of the controllers.
const (
	grpcPort    = 6817
	stepsPort   = 6818
	restPort    = 6820
	metricsPort = 8080
	keeperPort  = 8081 // health and metrics of muster-kube-nodes
	webPort     = 8443
	sshPort     = 22
	// ackRESTPort is where users of ACK's chart look for REST.
	ackRESTPort = 8080
)

// ours are the keys of slurm.conf that say where the controllers are: the operator writes
// them, and takes those of the site away.
var ours = []string{
	"slurmctldhost", "controlmachine", "controladdr", "backupcontroller", "backupaddr", "slurmctldport", "slurmdport", "clustername",
	"slurmctldaddr",
}

// Configuration is the files of a cluster's controllers.
type Configuration struct {
	Files map[string]string
	// Notes are for the site: what of its files is not used, and warnings of slurm.conf.
	Notes []string
	// Nodes are those of the NodeSets by name, as hostlists.
	Nodes map[string]string
}

// Hash tells configurations apart.
func (c *Configuration) Hash() string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		fmt.Fprintf(sum, "%d %s %d %s", len(name), name, len(c.Files[name]), c.Files[name])
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// Configure makes the files of a cluster from those of the site. All that is wrong with them
// is told at once.
func Configure(c *MusterCluster, site map[string]string) (*Configuration, error) {
	out := &Configuration{Files: maps.Clone(site)}
	text, ok := site["slurm.conf"]
	if !ok {
		return nil, fmt.Errorf("%w: there is no slurm.conf in its configuration", ErrSpec)
	}
	rest, dropped := withoutKeys(text)
	if len(dropped) > 0 {
		out.Notes = append(out.Notes, "the operator writes these lines of slurm.conf itself: "+strings.Join(dropped, ", "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ClusterName=%s\n", c.clusterName())
	for _, m := range controllersOf(c) {
		fmt.Fprintf(&b, "SlurmctldHost=%s(%s)\n", m.name, m.address)
	}
	out.Files["slurm.conf"] = b.String() + rest
	out.Files["muster.yaml"] = musterYAML(c)
	cluster, warnings, err := read(out.Files)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	out.Notes = append(out.Notes, warnings...)
	out.Nodes, err = findNodes(c, cluster)
	return out, err
}

// withoutKeys takes the lines of our keys away, and names them.
func withoutKeys(text string) (rest string, dropped []string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		if slices.Contains(ours, strings.ToLower(strings.TrimSpace(key))) {
			dropped = append(dropped, strings.TrimSpace(line))
			b.WriteString("#\n") // line numbers of problems stay those of the site, below ours
			continue
		}
		b.WriteString(line)
	}
	return b.String(), dropped
}

// musterYAML is that of the controllers.
func musterYAML(c *MusterCluster) string {
	var b strings.Builder
	b.WriteString("# Written by muster-operator.\n")
	fmt.Fprintf(&b, "state_dir: %s\nrun_dir: %s\nslurm_conf: %s/slurm.conf\n", stateDir, runDir, configDir)
	if c.Spec.Web {
		fmt.Fprintf(&b, "listen:\n  web: 0.0.0.0:%d\n", webPort)
	}
	if secret := c.Spec.Accounting.DSNSecret; secret != nil {
		fmt.Fprintf(&b, "clickhouse:\n  dsn_file: %s/%s\n", dsnDir, secret.Key)
	}
	b.WriteString(withWitness(c, c.Spec.Config.Muster))
	return b.String()
}

// withWitness adds the witness to the site's section about controllers, or writes that section.
func withWitness(c *MusterCluster, site string) string {
	if c.Spec.Controllers.Witness == nil {
		return site
	}
	w := witnessOf(c)
	section := fmt.Sprintf("controller:\n  witness: %s(%s)\n", w.name, w.address)
	var b strings.Builder
	found := false
	for line := range strings.Lines(site) {
		if strings.TrimRight(line, " \t\r\n") == "controller:" && !found {
			found = true
			line = section
		}
		b.WriteString(line)
	}
	if found {
		return b.String()
	}
	return section + site
}

// read reads configuration as the controllers will.
func read(files map[string]string) (*slurmconf.Cluster, []string, error) {
	// What is in a ConfigMap is no secret, and muster.yaml is checked as a file that everybody reads.
	_, err := conffile.Parse(conffile.Source{Name: "muster.yaml", Folder: configDir, Data: []byte(files["muster.yaml"]), Mode: 0o644})
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[path.Join(configDir[1:], name)] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	cluster, problems := slurmconf.ReadCluster(fsys, configDir[1:]+"/slurm.conf")
	if err := errors.Join(err, problems.Err()); err != nil {
		return nil, nil, err
	}
	var warnings []string
	for _, p := range problems.AtLeast(slurmconf.Warning) {
		warnings = append(warnings, p.String())
	}
	return cluster, warnings, nil
}

// findNodes are the nodes of each NodeSet, which have to be in slurm.conf and in one set
// only. NAME* stands for all nodes of slurm.conf that begin so.
func findNodes(c *MusterCluster, cluster *slurmconf.Cluster) (map[string]string, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%w: "+format, append([]any{ErrSpec}, args...)...))
	}
	known := map[string]bool{}
	for _, n := range cluster.Config.Nodes {
		known[n.Name] = true
	}
	out, of := map[string]string{}, map[string]string{}
	for _, set := range c.Spec.NodeSets {
		names, err := hostlist.Expand(strings.TrimSuffix(set.Nodes, "*"))
		if prefix, all := strings.CutSuffix(set.Nodes, "*"); all {
			names = slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(n string) bool { return !strings.HasPrefix(n, prefix) })
			err = nil
		}
		if err != nil || len(names) == 0 {
			refuse("nodeSets %s: %s names no node of slurm.conf", set.Name, set.Nodes)
			continue
		}
		for _, name := range names {
			switch other, twice := of[name]; {
			case !known[name]:
				refuse("node %s of nodeSets %s is not in slurm.conf", name, set.Name)
			case twice:
				refuse("node %s is in nodeSets %s and %s", name, other, set.Name)
			case len(validation.IsDNS1123Label(name)) > 0:
				refuse("node %s cannot be the name of a pod", name)
			}
			of[name] = set.Name
		}
		out[set.Name] = hostlist.Fold(names)
	}
	const most = 10 // of a thousand equal ones
	if len(wrong) > most {
		wrong = append(wrong[:most], fmt.Errorf("%d more", len(wrong)-most))
	}
	return out, errors.Join(wrong...)
}

// member is a controller by its name and its address in the cluster's DNS.
type member struct{ name, address string }

func controllersOf(c *MusterCluster) []member {
	out := make([]member, c.Spec.replicas())
	for i := range out {
		name := fmt.Sprintf("%s-%d", c.controllerSet(), i)
		out[i] = member{name, fmt.Sprintf("%s.%s.%s.svc", name, c.peers(), c.Namespace)}
	}
	return out
}

// witnessOf is the witness. It has a Service of its own: the controllers' one is asked for
// those that answer commands.
func witnessOf(c *MusterCluster) member {
	name := c.witnessSet() + "-0"
	return member{name, fmt.Sprintf("%s.%s.%s.svc", name, c.witnessSet(), c.Namespace)}
}

// addresses of the controllers as agents take them.
func addresses(c *MusterCluster) []string {
	var out []string
	for _, m := range controllersOf(c) {
		out = append(out, fmt.Sprintf("%s:%d", m.address, grpcPort))
	}
	return out
}
