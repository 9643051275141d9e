package slurmconf

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Gather is what slurm.conf says of the plug-ins that measure nodes: which are
// wanted, and how often they look.
type Gather struct {
	// Energy are the sources of AcctGatherEnergyType without their prefix: rapl, ipmi,
	// pm_counters, gpu. nil: the key is not there; empty: none.
	Energy []string
	// EnergyEvery, NetworkEvery and FilesystemEvery are those of
	// JobAcctGatherFrequency. 0 = not given, Infinite = never.
	EnergyEvery, NetworkEvery, FilesystemEvery spec.Span
	NodeEvery                                  spec.Span // AcctGatherNodeFreq; 0 = not given
	NoFilesystem                               bool      // AcctGatherFilesystemType=none
	NoInterconnect                             bool      // AcctGatherInterconnectType=none
	Sysfs                                      bool      // acct_gather_interconnect/sysfs: SysfsInterfaces counts
}

// GatherFile is an acct_gather.conf.
type GatherFile struct {
	Name     string
	Settings []Setting
	// IPMIEvery is the time between two questions to the management controller.
	IPMIEvery spec.Span
	// OFEDPort is the port of each InfiniBand adapter that counts; 0 = all.
	OFEDPort uint32
	// Interfaces are those of acct_gather_interconnect/sysfs.
	Interfaces []string
}

// defaultIPMIEvery is Slurm's default of EnergyIPMIFrequency.
const defaultIPMIEvery = 30 * spec.Second

func gatherDefaults() *GatherFile { return &GatherFile{IPMIEvery: defaultIPMIEvery} }

// What is said of plug-ins that Muster does not have.
const (
	whyXCC     = "is not supported: set energy.source to redfish in muster.yaml, which the XClarity controller speaks"
	whyIBMAEM  = "is not supported: set energy.source to ipmi, redfish or hwmon in muster.yaml"
	whyProfile = "is not supported: samples of jobs go to ClickHouse, where muster report and the view usage_samples read them"
	whyDriver  = "ipmitool finds the management controller by itself"
)

// setEnergyType reads AcctGatherEnergyType, a list of plug-ins.
func setEnergyType(file *File, v value) {
	file.Agent.Gather.Energy = []string{}
	for _, item := range v.splitItems() {
		name := strings.TrimPrefix(strings.ToLower(item), "acct_gather_energy/")
		switch name {
		case "none":
		case "rapl", "ipmi", "pm_counters", "gpu":
			file.Agent.Gather.Energy = append(file.Agent.Gather.Energy, name)
		case "xcc":
			v.warnValue("acct_gather_energy/xcc %s", whyXCC)
		case "ibmaem":
			v.warnValue("acct_gather_energy/ibmaem %s", whyIBMAEM)
		default:
			v.failValue(
				"%s is unknown; there is acct_gather_energy/ with gpu, ipmi, none, pm_counters and rapl",
				quoteShort(item),
			)
		}
	}
}

func setFilesystemType(file *File, v value) {
	w, ok := v.parseWord("acct_gather_filesystem/none|acct_gather_filesystem/lustre")
	file.Agent.Gather.NoFilesystem = ok && strings.HasSuffix(w, "/none")
}

func setInterconnectType(file *File, v value) {
	word, ok := v.parseWord(
		"acct_gather_interconnect/none|acct_gather_interconnect/ofed|acct_gather_interconnect/sysfs",
	)
	file.Agent.Gather.NoInterconnect = ok && strings.HasSuffix(word, "/none")
	file.Agent.Gather.Sysfs = ok && strings.HasSuffix(word, "/sysfs")
}

// setInfinibandType reads the older name of AcctGatherInterconnectType.
func setInfinibandType(file *File, v value) {
	w, ok := v.parseWord("acct_gather_infiniband/none|acct_gather_infiniband/ofed")
	file.Agent.Gather.NoInterconnect = ok && strings.HasSuffix(w, "/none")
}

func setProfileType(_ *File, v value) {
	word, ok := v.parseWord(
		"acct_gather_profile/none|acct_gather_profile/hdf5|acct_gather_profile/influxdb",
	)
	if ok && !strings.HasSuffix(word, "/none") {
		v.warnValue("%s %s", word, whyProfile)
	}
}

// gatherKeys are the keys of acct_gather.conf.
//
//muster:table one row for each key
func gatherKeys() []key[GatherFile] {
	const profile = "samples of jobs go to ClickHouse"
	keys := []key[GatherFile]{
		{"EnergyIPMICalcAdjustment", meaningless, "", "what a job used since the last reading is always estimated at its end, and paid back by the next", nil},
		{"EnergyIPMIFrequency", implemented, "", "", setSpan(func(g *GatherFile) *spec.Span { return &g.IPMIEvery }, spec.Second)},
		{"EnergyIPMIPassword", meaningless, "", "the node's own management controller needs no login; energy.redfish_password_file of muster.yaml is for others", nil},
		{"EnergyIPMIPowerSensors", implemented, "", "", setPowerSensors},
		{"EnergyIPMITimeout", meaningless, "", "a question is given up after ten seconds", nil},
		{"EnergyIPMIUsername", meaningless, "", "the node's own management controller needs no login", nil},
		{"EnergyIPMIVariable", unsupported, "", "DCMI power is read", nil},
		{"InfinibandOFEDFrequency", meaningless, "", "Slurm replaced it by JobAcctGatherFrequency=network=", nil},
		{"InfinibandOFEDPort", implemented, "", "", setNumber(func(g *GatherFile) *uint32 { return &g.OFEDPort }, 1, 255, noUnlimited)},
		{"ProfileHDF5Default", unsupported, "none", profile, nil},
		{"ProfileHDF5Dir", unsupported, "", profile, nil},
		{"ProfileInfluxDBDatabase", unsupported, "", profile, nil},
		{"ProfileInfluxDBDefault", unsupported, "none", profile, nil},
		{"ProfileInfluxDBFrequency", unsupported, "", profile, nil},
		{"ProfileInfluxDBHost", unsupported, "", profile, nil},
		{"ProfileInfluxDBPass", unsupported, "", profile, nil},
		{"ProfileInfluxDBRTPolicy", unsupported, "", profile, nil},
		{"ProfileInfluxDBTimeout", unsupported, "", profile, nil},
		{"ProfileInfluxDBUser", unsupported, "", profile, nil},
		{"SysfsInterfaces", implemented, "", "", setList(func(g *GatherFile) *[]string { return &g.Interfaces })},
	}
	for _, name := range []string{
		"AssumeBmcOwner", "BridgeSensors", "DisableAutoProbe", "DiscreteReading", "DriverAddress", "DriverDevice", "DriverType",
		"EntitySensorNames", "IgnoreNonInterpretableSensors", "IgnoreScanningDisabled", "InterpretOemData", "PrivilegeLevel",
		"ProtocolVersion", "RegisterSpacing", "RereadSdrCache", "SharedSensors", "WorkaroundFlags",
	} {
		keys = append(keys, key[GatherFile]{"EnergyIPMI" + name, meaningless, "", whyDriver, nil})
	}
	slices.SortFunc(keys, func(a, b key[GatherFile]) int { return strings.Compare(a.name, b.name) })
	return keys
}

// setPowerSensors accepts what is read: the node's power by DCMI.
func setPowerSensors(_ *GatherFile, v value) {
	for item := range strings.SplitSeq(v.Value, ";") {
		name, sensor, _ := strings.Cut(item, "=")
		wanted := strings.EqualFold(strings.TrimSpace(name), "Node") &&
			strings.HasPrefix(strings.ToUpper(strings.TrimSpace(sensor)), "DCMI")
		if !wanted {
			v.warnValue("%s is not read: only Node=DCMI is", quoteShort(strings.TrimSpace(item)))
		}
	}
}

// ReadGather reads acct_gather.conf. The result is never nil; it must not be used
// if the problems hold an Error.
func ReadGather(fsys fs.FS, name string) (*GatherFile, Problems) {
	var problems Problems
	file := gatherDefaults()
	file.Name = name
	recs, _ := lexFiles(fsys, name, &problems)
	file.Settings = readFlat(file, newTable("acct_gather.conf", gatherKeys()), recs, &problems)
	return file, problems.sortedByLine()
}

// addGather reads acct_gather.conf where it is, and says what slurm.conf needs of it.
func (c *Cluster) addGather(fsys fs.FS, name string, problems Problems) Problems {
	if fileExists(fsys, name) {
		file, more := ReadGather(fsys, name)
		c.Gather, problems = file, append(problems, more...)
	}
	if c.Agent.Gather.Sysfs && len(c.Gather.Interfaces) == 0 {
		problems.addProblem(
			Setting{File: c.File.Name, Key: "AcctGatherInterconnectType"},
			Error,
			"acct_gather_interconnect/sysfs needs SysfsInterfaces in acct_gather.conf beside slurm.conf",
		)
	}
	return problems
}
