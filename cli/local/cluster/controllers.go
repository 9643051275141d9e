package cluster

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// defaultPort is the first port of a controller.
const defaultPort = 6817

// member is one of several controllers that init is asked for.
type member struct{ name, address string }

// certificateHolder is its certificate's: under its name, and reached by its address.
func (m member) certificateHolder(more ...string) pki.Holder {
	return pki.Holder{
		Role:  identity.Controller,
		Name:  m.name,
		Hosts: append([]string{m.name, m.address}, more...),
	}
}

// readControllers reads --controllers.
func (o *setup) readControllers() error {
	seen := map[string]bool{}
	for _, text := range o.controllers {
		name, address, ok := strings.Cut(text, "=")
		if !ok || name == "" || address == "" || strings.ContainsAny(address, "/ ") {
			return fmt.Errorf("--controllers: %q: want name=address, as in ctl1=10.0.0.1", text)
		}
		if seen[name] {
			return fmt.Errorf("--controllers: %s is there twice", name)
		}
		seen[name] = true
		o.group = append(o.group, member{name, address})
	}
	if len(o.group) == 1 {
		return fmt.Errorf("--controllers: one is what init makes without it: name three")
	}
	return o.readWitness(seen)
}

// readWitness reads --witness.
func (o *setup) readWitness(controllers map[string]bool) error {
	if o.witness == "" {
		return nil
	}
	name, address, ok := strings.Cut(o.witness, "=")
	switch {
	case !ok || name == "" || address == "" || strings.ContainsAny(address, "/ ()") || strings.ContainsAny(name, "/ ():"):
		return fmt.Errorf("--witness: %q: want name=address, as in wit=10.0.0.3", o.witness)
	case controllers[name]:
		return fmt.Errorf("--witness: %s is a controller", name)
	case len(o.group) == 0:
		return fmt.Errorf(
			"--witness: a witness stands between two controllers: name them with --controllers",
		)
	case len(o.group)%2 == 1:
		return fmt.Errorf(
			"--witness: beside %d controllers a witness lets them survive no more losses: leave it out",
			len(o.group),
		)
	}
	o.third = &member{name, address}
	return nil
}

// witnessLine is controller.witness of muster.yaml.
func (o *setup) witnessLine() string { return o.third.name + "(" + o.third.address + ")" }

// writeOthers makes a folder for each further controller, to be moved to its host:
// configuration, certificate and the cluster's authority.
func (o *setup) writeOthers(
	out io.Writer, config *conffile.Config, base string, slurm []byte,
) error {
	authority := pki.Dir(config.TLS.Dir)
	ca, err := authority.CA()
	if err != nil {
		return err
	}
	others := o.group[1:]
	if o.third != nil {
		others = append(slices.Clone(others), *o.third)
	}
	for _, m := range others {
		isWitness := o.third != nil && m == *o.third
		dir := filepath.Join(base, "controllers", m.name)
		if _, err := os.Stat(dir); err == nil {
			fmt.Fprintf(out, "kept  %s\n", dir)
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		tls := pki.Dir(filepath.Join(dir, "tls"))
		pair, err := ca.Issue(m.certificateHolder("localhost"), time.Now())
		if err == nil {
			err = tls.SaveEnrolled(pair)
		}
		if err != nil {
			return err
		}
		if !isWitness { // a witness issues no certificates
			if err := copyAuthority(authority, tls); err != nil {
				return err
			}
		}
		for name, data := range map[string][]byte{"slurm.conf": slurm, "muster.yaml": []byte(o.yamlOf(m))} {
			if _, err := WriteNew(filepath.Join(dir, name), data); err != nil {
				return err
			}
		}
		start := "musterd"
		if isWitness {
			start = "musterd --role witness"
		}
		fmt.Fprintf(
			out,
			"wrote %s: move it to the host of %s, and start %s --config muster.yaml there\n",
			dir,
			m.name,
			start,
		)
	}
	return nil
}

// copyAuthority gives another controller the key that makes certificates.
func copyAuthority(from, to pki.Dir) error {
	key, err := durable.ReadPrivate(filepath.Join(string(from), pki.CAKeyFile))
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(string(to), pki.CAKeyFile), key, 0o600)
}

// yamlOf is the muster.yaml of a further controller. Its paths start from its
// folder, which can lie anywhere.
func (o *setup) yamlOf(m member) string {
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"# Written by muster init for controller %s. Paths start from the folder of this file.\n",
		m.name,
	)
	text.WriteString("state_dir: state\nrun_dir: run\nslurm_conf: slurm.conf\ntls:\n  dir: tls\n")
	fmt.Fprintf(&text, "controller:\n  name: %s\n", m.name)
	if o.third != nil {
		fmt.Fprintf(&text, "  witness: %s\n", o.witnessLine())
	}
	if o.basePort == defaultPort {
		return text.String()
	}
	at := func(n int) string { return net.JoinHostPort(m.address, strconv.Itoa(o.basePort+n)) }
	fmt.Fprintf(&text, "listen:\n  grpc: %s\n  rest: %s\n  metrics: %s\n", at(0), at(3), at(4))
	fmt.Fprintf(&text, "  agent_grpc: %s\n  agent_metrics: %s\n", at(1), at(10))
	return text.String()
}
