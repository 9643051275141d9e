package slurmconf

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/spec"
)

// Each plug-in is followed or named, with what to do instead.
func TestGatherPlugins(t *testing.T) {
	for _, c := range []struct {
		line string
		bad  bool
		said string
		want Gather
	}{
		{"", false, "", Gather{}},
		{"AcctGatherEnergyType=acct_gather_energy/none", false, "", Gather{Energy: []string{}}},
		{"AcctGatherEnergyType=acct_gather_energy/gpu,acct_gather_energy/rapl", false, "", Gather{Energy: []string{"gpu", "rapl"}}},
		{"AcctGatherEnergyType=acct_gather_energy/pm_counters", false, "", Gather{Energy: []string{"pm_counters"}}},
		{"AcctGatherEnergyType=acct_gather_energy/xcc", false, "acct_gather_energy/xcc is not supported: set energy.source to redfish", Gather{Energy: []string{}}},
		{"AcctGatherEnergyType=acct_gather_energy/ibmaem", false, "acct_gather_energy/ibmaem is not supported", Gather{Energy: []string{}}},
		{"AcctGatherEnergyType=acct_gather_energy/sun", true, "is unknown", Gather{Energy: []string{}}},
		{"AcctGatherFilesystemType=acct_gather_filesystem/lustre", false, "", Gather{}},
		{"AcctGatherFilesystemType=acct_gather_filesystem/none", false, "", Gather{NoFilesystem: true}},
		{"AcctGatherInterconnectType=acct_gather_interconnect/ofed", false, "", Gather{}},
		{"AcctGatherInterconnectType=acct_gather_interconnect/sysfs", true, "needs SysfsInterfaces in acct_gather.conf", Gather{Sysfs: true}},
		{"AcctGatherInterconnectType=acct_gather_interconnect/none", false, "", Gather{NoInterconnect: true}},
		{"AcctGatherInfinibandType=acct_gather_infiniband/none", false, "", Gather{NoInterconnect: true}},
		{"AcctGatherProfileType=acct_gather_profile/hdf5", false, "acct_gather_profile/hdf5 is not supported: samples of jobs go to ClickHouse", Gather{}},
		{"AcctGatherProfileType=acct_gather_profile/influxdb", false, "acct_gather_profile/influxdb is not supported", Gather{}},
		{"AcctGatherProfileType=acct_gather_profile/none", false, "", Gather{}},
		{"AcctGatherNodeFreq=15", false, "", Gather{NodeEvery: 15 * spec.Second}},
		{"JobAcctGatherFrequency=task=5,energy=10,network=20,filesystem=0", false, "",
			Gather{EnergyEvery: 10 * spec.Second, NetworkEvery: 20 * spec.Second, FilesystemEvery: spec.Infinite}},
		{"JobAcctGatherFrequency=energy=often", true, "is not a whole number", Gather{}},
	} {
		t.Run(c.line, func(t *testing.T) {
			got, ps := ReadCluster(fstest.MapFS{"etc/slurm.conf": file(minimal + c.line + "\n")}, "etc/slurm.conf")
			if bad := ps.Err() != nil; bad != c.bad || !strings.Contains(ps.String(), c.said) {
				t.Errorf("error %v, want %v and %q in:\n%s", bad, c.bad, c.said, ps.String())
			}
			if !reflect.DeepEqual(got.Agent.Gather, c.want) {
				t.Errorf("got %+v, want %+v", got.Agent.Gather, c.want)
			}
		})
	}
}

func TestGatherFile(t *testing.T) {
	fsys := fstest.MapFS{
		"etc/slurm.conf": file(minimal + "AcctGatherInterconnectType=acct_gather_interconnect/sysfs\n"),
		"etc/acct_gather.conf": file(`
EnergyIPMIFrequency=10
EnergyIPMICalcAdjustment=yes
EnergyIPMIPowerSensors=Node=DCMI;Socket=19,37
EnergyIPMIDriverType=1
InfinibandOFEDPort=2
SysfsInterfaces=eth0,hsn0
ProfileHDF5Dir=/var/spool
`),
	}
	got, ps := ReadCluster(fsys, "etc/slurm.conf")
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	g := got.Gather
	if g.IPMIEvery != 10*spec.Second || g.OFEDPort != 2 || !reflect.DeepEqual(g.Interfaces, []string{"eth0", "hsn0"}) {
		t.Errorf("%+v", g)
	}
	for _, said := range []string{`"Socket=19,37" is not read: only Node=DCMI is`, "ProfileHDF5Dir"} {
		if !strings.Contains(ps.String(), said) {
			t.Errorf("%q is not in:\n%s", said, ps.String())
		}
	}
	if strings.Contains(ps.String(), "Node=DCMI;") {
		t.Errorf("what is read is complained of:\n%s", ps.String())
	}
}
