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
	read := func(slurm, name string) (string, error) {
		t.Helper()
		cfg := Defaults()
		cfg.SlurmConf = filepath.Join(t.TempDir(), "slurm.conf")
		cfg.Controller.Name = name
		text := "ClusterName=lab\n" + slurm + "\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=n1 Default=YES\n"
		if err := os.WriteFile(cfg.SlurmConf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, self, err := ReadControllers(cfg)
		if err != nil {
			return "", err
		}
		out := ""
		for _, c := range all {
			out += c.Name + "=" + c.Address + " "
		}
		if self != nil {
			out += "self " + self.Name
		}
		return strings.TrimSpace(out), nil
	}
	three := "SlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\nSlurmctldHost=" + host + "(::1)\nSlurmctldPort=7000"
	for _, c := range []struct{ slurm, name, want, fails string }{
		{"SlurmctldHost=a", "", "a=a:6817", ""},
		{three, "b", "a=10.0.0.1:7000 b=b:7000 " + host + "=[::1]:7000 self b", ""},
		{three, "", "a=10.0.0.1:7000 b=b:7000 " + host + "=[::1]:7000 self " + host, ""},
		{three, "d", "", "controller.name=d of muster.yaml is no SlurmctldHost"},
		{"SlurmctldHost=a\nSlurmctldHost=b", "", "", "say in controller.name"},
		{"SlurmctldHost=a\nSlurmctldHost=a", "a", "", "twice"},
	} {
		got, err := read(c.slurm, c.name)
		if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q as %q: %q, %v", c.slurm, c.name, got, err)
		}
	}
}
