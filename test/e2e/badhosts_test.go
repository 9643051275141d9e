package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/chaos/fabric"
)

// newApart makes the configuration of a group whose controllers have a network and a disk of their
// own each.
func newApart(t *testing.T) *trio {
	t.Helper()
	s := newBadSite(t, 1)
	hosts := map[string]*machine{}
	var members []string
	for _, name := range trioNames {
		hosts[name] = s.machine(name)
		members = append(members, name+"="+hosts[name].ip)
	}
	c := newTrio(t, "--controllers", strings.Join(members, ","))
	c.hosts = hosts
	for _, name := range trioNames {
		c.addDisk(name)
	}
	return c
}

// state is where a controller keeps its ledger.
func (c *trio) state(name string) string { return filepath.Join(c.home(name), "state") }

// addDisk gives a controller a disk that can be full and slow, and has it take submissions as long as
// a part of that disk is free.
func (c *trio) addDisk(name string) {
	c.t.Helper()
	const size, reserve = 192 << 20, "16MiB"
	host := c.hosts[name]
	image := filepath.Join(c.dir, name+".img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		c.t.Fatal(err)
	}
	at := c.state(name)
	aside := at + ".before"
	host.must("mkfs.ext4", "-q", image)
	host.must("mkdir", "-p", at)
	host.must("cp", "-a", at, aside)
	host.must("mount", "-o", "loop", image, at)
	host.must("cp", "-a", aside+"/.", at)
	config := filepath.Join(c.home(name), "muster.yaml")
	data, err := os.ReadFile(config)
	if err != nil {
		c.t.Fatal(err)
	}
	text := strings.Replace(string(data), "  reserve_bytes: 256MiB\n", "  reserve_bytes: "+reserve+"\n", 1)
	if text == string(data) {
		text += "ledger:\n  reserve_bytes: " + reserve + "\n"
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = host.command("fsfreeze", "-u", at).Run() }) // it mostly is not frozen
}

// cutNetwork makes a fault that keeps messages from and to the leader until another leads, and a while
// longer.
func cutNetwork(from, to bool) fault {
	return func(h *historian, leads string) {
		network := h.c.hosts[leads].site.fabric
		network.Mute(leads, fabric.Rule{Cut: from})
		network.Deafen(leads, fabric.Rule{Cut: to})
		h.c.otherLeader(leads)
		time.Sleep(3 * time.Second) // calls under the next one, and some that wait at this one
		network.SetAll(fabric.Rule{})
	}
}

// badNetwork loses, doubles and delays segments between all controllers for a while.
func badNetwork(h *historian, leads string) {
	network := h.c.hosts[leads].site.fabric
	network.SetAll(fabric.Rule{Lose: 10, Double: 5, Delay: 100 * time.Millisecond})
	time.Sleep(10 * time.Second)
	network.SetAll(fabric.Rule{})
}

// slowDisk lets writes of the leader's disk through now and then only.
func slowDisk(h *historian, leads string) {
	host := h.c.hosts[leads]
	for range 10 {
		host.must("fsfreeze", "-f", h.c.state(leads))
		time.Sleep(800 * time.Millisecond)
		host.must("fsfreeze", "-u", h.c.state(leads))
		time.Sleep(200 * time.Millisecond)
	}
}

// hungDisk lets no write of the leader's disk through until another leads, and a while longer.
func hungDisk(h *historian, leads string) {
	host := h.c.hosts[leads]
	host.must("fsfreeze", "-f", h.c.state(leads))
	h.c.otherLeader(leads)
	time.Sleep(3 * time.Second)
	host.must("fsfreeze", "-u", h.c.state(leads))
}

// fullDisk leaves no room on the leader's disk for a while.
func fullDisk(h *historian, leads string) {
	host := h.c.hosts[leads]
	filler := filepath.Join(h.c.state(leads), "filler")
	_ = host.command("dd", "if=/dev/zero", "of="+filler, "bs=64k").Run() // it ends when nothing is free
	refusal := ""
	for i := 0; !strings.Contains(refusal, "disk"); i++ { // it looks at the disk every few seconds
		if i == 600 {
			h.c.t.Errorf("%s accepts submissions while its disk is full: %q", leads, refusal)
			break
		}
		time.Sleep(50 * time.Millisecond)
		_, refusal, _ = h.c.run(leads, "sbatch", "--begin=now+1hour", "--wrap", "true")
	}
	h.c.t.Logf("with a full disk: %s", strings.TrimSpace(refusal))
	time.Sleep(8 * time.Second)
	host.must("rm", filler)
}

// TestHistoriesOfBadHosts: what a group answers is linearizable while the leader is cut off from the
// others in one direction or both, segments are lost, doubled and overtaken, and its disk is slow,
// hangs or is full.
func TestHistoriesOfBadHosts(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newApart(t)
	c.beginAll()
	c.checkHistory(cutNetwork(true, true), cutNetwork(true, false), cutNetwork(false, true),
		badNetwork, slowDisk, hungDisk, fullDisk, stopLeader, killLeader)
	counts := c.hosts["ctl1"].site.fabric.Counts()
	if counts.Lost == 0 || counts.Doubled == 0 || counts.Overtaken == 0 {
		t.Errorf("the network was not bad: %+v", counts)
	}
	t.Logf("segments: %+v", counts)
}
