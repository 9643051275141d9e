package slurmconf

import (
	"io/fs"
	"slices"
	"strings"
)

// Percent is a share in hundredths of a percent: 101.5 % is 10150.
type Percent int64

// Hundred is 100 %.
const Hundred Percent = 10_000

// Cgroup is a cgroup.conf.
type Cgroup struct {
	Name     string
	Settings []Setting
	// Plugin is autodetect, cgroup/v2, cgroup/v1 or disabled.
	Plugin           string
	Mountpoint       string
	ConstrainCores   bool
	ConstrainDevices bool
	ConstrainRAM     bool
	ConstrainSwap    bool
	AllowedRAM       Percent // of the memory a job has
	AllowedSwap      Percent // of the memory a job has, beyond it
	MaxRAM           Percent // of the node's memory, for jobs without memory of their own
	MaxSwap          Percent // of the node's memory, RAM and swap together
	MinRAM           int64   // MiB that a job's limit is never below
	// MaxTasks is how many processes and threads a batch script, or a step's part on
	// a node, may have; 0 = as many as the node. It is Muster's own.
	MaxTasks int64
}

// defaultMaxTasks stops a fork bomb long before the node is out of process numbers,
// of which Linux has at least 32,768 by default.
const defaultMaxTasks = 16_384

func cgroupDefaults() *Cgroup {
	return &Cgroup{
		Plugin:     "autodetect",
		Mountpoint: "/sys/fs/cgroup",
		AllowedRAM: Hundred,
		MaxRAM:     Hundred,
		MaxSwap:    Hundred,
		MinRAM:     30,
		MaxTasks:   defaultMaxTasks,
	}
}

func cgroupKeys() []key[Cgroup] {
	const (
		kmem    = "kernel memory counts as the job's memory"
		systemd = "the agent uses the cgroup that it was started in and asks systemd for nothing"
	)
	percent := func(to func(*Cgroup) *Percent) func(*Cgroup, value) {
		return func(cgroup *Cgroup, v value) {
			n, ok := parseMicros(strings.TrimSuffix(v.Value, "%"))
			if !ok || n < 0 || n > 1_000_000e6 || n%10_000 != 0 {
				v.failValue("%s is no percentage (with at most two decimals)", quoteShort(v.Value))
				return
			}
			*to(cgroup) = Percent(n / 10_000)
		}
	}
	return []key[Cgroup]{
		{"AllowedDevicesFile", meaningless, "", "Slurm removed it; devices that every program needs are always allowed", nil},
		{"AllowedKmemSpace", meaningless, "", kmem, nil},
		{"AllowedRAMSpace", implemented, "", "", percent(func(c *Cgroup) *Percent { return &c.AllowedRAM })},
		{"AllowedSwapSpace", implemented, "", "", percent(func(c *Cgroup) *Percent { return &c.AllowedSwap })},
		{"CgroupAutomount", meaningless, "", "cgroups are used where they are mounted", nil},
		{"CgroupMountpoint", implemented, "", "", func(cgroup *Cgroup, v value) {
			if !strings.HasPrefix(v.Value, "/") {
				v.failValue("%s is no absolute path", quoteShort(v.Value))
				return
			}
			cgroup.Mountpoint = v.Value
		}},
		{"CgroupPlugin", implemented, "", "", oneOf("autodetect|cgroup/v1|cgroup/v2|disabled", func(c *Cgroup) *string { return &c.Plugin })},
		{"CgroupReleaseAgentDir", meaningless, "", "Slurm removed it; the shepherd removes empty cgroups", nil},
		{"CgroupSlice", unsupported, "", systemd, nil},
		{"ConstrainCores", implemented, "", "", setBool(func(c *Cgroup) *bool { return &c.ConstrainCores })},
		{"ConstrainDevices", implemented, "", "", setBool(func(c *Cgroup) *bool { return &c.ConstrainDevices })},
		{"ConstrainKmemSpace", meaningless, "no|0|false", kmem, nil},
		{"ConstrainRAMSpace", implemented, "", "", setBool(func(c *Cgroup) *bool { return &c.ConstrainRAM })},
		{"ConstrainSwapSpace", implemented, "", "", setBool(func(c *Cgroup) *bool { return &c.ConstrainSwap })},
		{"EnableControllers", meaningless, "", "the agent enables the controllers that it needs", nil},
		{"EnableExtraControllers", unsupported, "", "only cpu, cpuset, io, memory and pids are enabled", nil},
		{"IgnoreSystemd", meaningless, "", systemd, nil},
		{"IgnoreSystemdOnFailure", meaningless, "", systemd, nil},
		{"MaxKmemPercent", meaningless, "", kmem, nil},
		{"MaxRAMPercent", implemented, "", "", percent(func(c *Cgroup) *Percent { return &c.MaxRAM })},
		{"MaxSwapPercent", implemented, "", "", percent(func(c *Cgroup) *Percent { return &c.MaxSwap })},
		{"MaxTasks", implemented, "", "", func(cgroup *Cgroup, v value) { // Muster's own: see Cgroup.MaxTasks
			if v.isInfinite() {
				cgroup.MaxTasks = 0
				return
			}
			if n, ok := v.parseInteger(16, 1<<22); ok {
				cgroup.MaxTasks = int64(n)
			}
		}},
		{"MemorySwappiness", unsupported, "", "the kernel's own swappiness applies", nil},
		{"MinKmemSpace", meaningless, "", kmem, nil},
		{"MinRAMSpace", implemented, "", "", setMemory(func(c *Cgroup) *int64 { return &c.MinRAM })},
		{"SignalChildrenProcesses", unsupported, "no|0|false", "signals go to the processes that Slurm's rules name", nil},
		{"SystemdTimeout", meaningless, "", systemd, nil},
		{"TaskAffinity", unsupported, "no|0|false", "Slurm replaced it by TaskPlugin=task/affinity in slurm.conf", nil},
	}
}

// ReadCgroup reads cgroup.conf. The Cgroup is never nil; it must not be used
// if the problems hold an Error.
func ReadCgroup(fsys fs.FS, name string) (*Cgroup, Problems) {
	var problems Problems
	cgroup := cgroupDefaults()
	cgroup.Name = name
	recs, _ := lexFiles(fsys, name, &problems)
	cgroup.Settings = readFlat(cgroup, newTable("cgroup.conf", cgroupKeys()), recs, &problems)
	at := func(key string) Setting {
		for _, setting := range slices.Backward(cgroup.Settings) {
			if strings.EqualFold(setting.Key, key) {
				return setting
			}
		}
		return Setting{File: name, Key: key}
	}
	if cgroup.ConstrainSwap && !cgroup.ConstrainRAM {
		// Slurm's rule: RAM and swap together cannot be limited without RAM.
		cgroup.ConstrainRAM = true
		problems.addProblem(
			at("ConstrainSwapSpace"),
			Note,
			"limits RAM as well, as if ConstrainRAMSpace=yes",
		)
	}
	if cgroup.ConstrainRAM && cgroup.AllowedRAM < Hundred {
		problems.addProblem(
			at("AllowedRAMSpace"),
			Warning,
			"jobs get less memory than they are promised",
		)
	}
	constrains := cgroup.ConstrainCores || cgroup.ConstrainDevices || cgroup.ConstrainRAM ||
		cgroup.ConstrainSwap
	if cgroup.Plugin == "disabled" && constrains {
		problems.addProblem(at("CgroupPlugin"), Error, "disabled, but the file constrains jobs")
	}
	return cgroup, problems.sortedByLine()
}

// warnUnconfined tells of what cgroup.conf keeps jobs to in vain: the task plugin applies it.
func (file *File) warnUnconfined(cgroup *Cgroup, problems Problems) Problems {
	if file.Agent.TaskCgroup {
		return problems
	}
	for _, setting := range cgroup.Settings {
		if strings.HasPrefix(strings.ToLower(setting.Key), "constrain") &&
			strings.EqualFold(setting.Value, "yes") {
			problems.addProblem(
				setting,
				Warning,
				"has no effect: TaskPlugin of slurm.conf must name task/cgroup",
			)
		}
	}
	return problems
}

// readFlat reads a file of one setting a line.
func readFlat[T any](to *T, t *table[T], recs []Record, problems *Problems) []Setting {
	var all []Setting
	seen := make(map[string]Setting)
	for _, record := range recs {
		setting := record[0]
		if len(record) > 1 {
			problems.addProblem(
				record[1],
				Error,
				"a line of this file holds one setting; %s stands on it already",
				setting.Key,
			)
		}
		low := strings.ToLower(setting.Key)
		if before, again := seen[low]; again {
			problems.addProblem(
				setting,
				Warning,
				"is given again; this value replaces the one of %s",
				namePlace(setting, before),
			)
		}
		seen[low] = setting
		all = append(all, setting)
		applySetting(to, t, setting, problems)
	}
	return all
}
