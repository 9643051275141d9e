package conffile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadControllers: several SlurmctldHost lines are the controllers; which of
// them this is, muster.yaml or the host's name says.
func TestReadControllers(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	read := func(slurm, name, witness string) (string, error) {
		t.Helper()
		cfg := Defaults()
		cfg.SlurmConf = filepath.Join(t.TempDir(), "slurm.conf")
		cfg.Controller.Name = name
		cfg.Controller.Witness = witness
		text := "ClusterName=lab\n" + slurm + "\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=n1 Default=YES\n"
		if err := os.WriteFile(cfg.SlurmConf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		group, self, err := ReadControllers(cfg)
		if err != nil {
			return "", err
		}
		out := ""
		for _, c := range group.Members() {
			out += c.Name + "=" + c.Address + " "
		}
		if self != nil {
			out += "self " + self.Name
		}
		return strings.TrimSpace(out), nil
	}
	three := "SlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\nSlurmctldHost=" + host + "(::1)\nSlurmctldPort=7000"
	two := "SlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b"
	for _, c := range []struct{ witness, slurm, name, want, fails string }{
		{"w", two, "a", "a=10.0.0.1:6817 b=b:6817 w=w:6817 self a", ""},
		{"w(10.0.0.3)", two + "\nSlurmctldPort=7000", "w", "a=10.0.0.1:7000 b=b:7000 w=10.0.0.3:7000 self w", ""},
		{"w(::3)", two, "w", "a=10.0.0.1:6817 b=b:6817 w=[::3]:6817 self w", ""},
		{"w(10.0.0.3:99)", two, "b", "a=10.0.0.1:6817 b=b:6817 w=10.0.0.3:99 self b", ""},
		{"w(", two, "a", "", "expected NAME"},
		{"w()", two, "a", "", "expected NAME"},
		{"(10.0.0.3)", two, "a", "", "expected NAME"},
		{"w:99", two, "a", "", "expected NAME"},
		{"b", two, "a", "", "twice"},
		{"w", "SlurmctldHost=a", "a", "", "stands between two"},

		{"", "SlurmctldHost=a", "", "a=a:6817", ""},
		{"", three, "b", "a=10.0.0.1:7000 b=b:7000 " + host + "=[::1]:7000 self b", ""},
		{"", three, "", "a=10.0.0.1:7000 b=b:7000 " + host + "=[::1]:7000 self " + host, ""},
		{"", three, "d", "", "controller.name=d of muster.yaml is no SlurmctldHost"},
		{"", "SlurmctldHost=a\nSlurmctldHost=b", "", "", "say in controller.name"},
		{"", "SlurmctldHost=a\nSlurmctldHost=a", "a", "", "twice"},
	} {
		got, err := read(c.slurm, c.name, c.witness)
		if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q as %q: %q, %v", c.slurm, c.name, got, err)
		}
	}
}
