package slurmconf

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// File is a slurm.conf: everything as written, and what it means.
type File struct {
	Name     string
	Settings []Setting // every setting in order, with those of included files
	Config   spec.Config
	Control  Control
	Agent    Agent

	TreeTopology bool // TopologyPlugin=topology/tree: topology.conf counts
	// BlockTopology is TopologyPlugin=topology/block, likewise.
	BlockTopology bool

	// What several keys decide together.
	disableRoot         bool
	jobComp, jobCompLoc string
	ctl                 spec.CtlScripts
	jobCompAt           Setting
	power               powerDraft
	topologies          []Setting // Topology of partitions
	scripts             scriptKeys
	kept                keptLimits
}

// Control is what concerns the controller's own place.
type Control struct {
	Hosts     []Host // SlurmctldHost; of several controllers the first begins the group
	Port      uint32 // SlurmctldPort; 0 = not given
	AgentPort uint32 // SlurmdPort; 0 = not given
}

// Agent is what node agents need from slurm.conf.
type Agent struct {
	TaskAffinity   bool      // TaskPlugin has task/affinity: bind tasks to cores
	TaskCgroup     bool      // TaskPlugin has task/cgroup: apply cgroup.conf
	SampleEvery    spec.Span // JobAcctGatherFrequency of tasks; 0 = do not sample
	OverMemoryKill bool      // kill a job whose processes use more memory than it has

	// Prolog and Epilog are paths, perhaps patterns, of programs that root runs
	// on a node before and after each job's part there.
	Prolog, Epilog               []string
	PrologTimeout, EpilogTimeout spec.Span // 0 = as long as they take
	Serial                       bool      // PrologFlags=Serial: one of them at a time
	// Contain gives each job an extern step on its nodes, and PrologInJob runs the
	// prolog in it (PrologFlags).
	Contain, PrologInJob bool

	// TaskProlog is the path of a program that runs as the job's user before the
	// batch script, and can change its environment. Empty = none.
	TaskProlog string
	// TaskEpilog is the path of a program that runs as the job's user after the
	// batch script.
	TaskEpilog string

	// LimitsKept are resource limits that do not travel with a job unless
	// --propagate names them: what PropagateResourceLimits leaves out, or
	// PropagateResourceLimitsExcept lists.
	LimitsKept []string
	// PrioProcess is PropagatePrioProcess: 0, 1 or 2.
	PrioProcess uint8
	// LoginTimeout is GetEnvTimeout: how long --get-user-env waits for the login
	// files; 0 = only cached environments are read.
	LoginTimeout spec.Span

	Check Check

	GPUFreq string // GpuFreqDef: the --gpu-freq of jobs that give none

	// Gather is what is measured of the node for its jobs.
	Gather Gather

	// PrivateFolders tells that job_container.conf holds: JobContainerType, or
	// NamespaceType.
	PrivateFolders bool
}

// ChecksAfterJobs tells that a node looks at its health after each job.
func (a *Agent) ChecksAfterJobs() bool { return a.Check.Program != "" && !a.Check.Once }

// Check is HealthCheckProgram: when a node looks at its own health. Without a
// word about idle and busy nodes it does so in either case.
type Check struct {
	Program    string    // empty: never
	Every      spec.Span // 0 = only when the agent starts and after each job
	Idle, Busy bool      // only while the node has no jobs, or has some
	Spread     bool      // CYCLE: not all nodes at the same time
	Once       bool      // START_ONLY: only when the agent starts
}

// loginTimeout is how long login files may take without GetEnvTimeout. They delay
// no other job, so that it need not be short.
const loginTimeout = 2 * spec.Minute

// Value finds the last value of a key as written, without regard to case.
func (f *File) Value(key string) (string, bool) {
	for i := len(f.Settings) - 1; i >= 0; i-- {
		if strings.EqualFold(f.Settings[i].Key, key) {
			return f.Settings[i].Value, true
		}
	}
	return "", false
}

// Read reads slurm.conf. The File is never nil; it must not be used if the
// problems hold an Error.
func Read(fsys fs.FS, name string) (*File, Problems) {
	var problems Problems
	file := &File{
		Name:   name,
		Config: defaultSettings(),
		Agent:  Agent{SampleEvery: 30 * spec.Second, LoginTimeout: loginTimeout},
		power:  powerDraft{PowerConfig: spec.PowerConfig{DownRate: 60, UpRate: 300}},
	}
	b := builder{
		file:     file,
		problems: &problems,
		top:      newTable("the main part of the file", topKeys()),
		node: newTable(
			"a NodeName record",
			nodeKeys(),
		),
		part: newTable("a PartitionName record", partKeys()),
		set: newTable(
			"a NodeSet record",
			setKeys(),
		),
		down: newTable("a DownNodes record", downKeys()),
	}
	b.top.also = []string{"NodeName", "PartitionName", "NodeSet", "DownNodes", "Include"}
	recs, _ := lexFiles(fsys, name, &problems)
	for _, record := range recs {
		b.addRecord(record)
	}
	b.finishConfig()
	return file, problems.sortedByLine()
}

// lexFiles reads a file and its includes into records.
func lexFiles(fsys fs.FS, name string, problems *Problems) ([]Record, []fileMode) {
	l := lexer{fsys: fsys, base: path.Dir(name), problems: problems}
	if !fs.ValidPath(name) {
		problems.addProblem(
			Setting{File: name},
			Error,
			"is no path in a file system whose root is /; write it without the leading /",
		)
		return nil, nil
	}
	l.readFile(name, Setting{})
	return l.records, l.modes
}

// defaultSettings is what Slurm 25.11 does without a line.
func defaultSettings() spec.Config {
	return spec.Config{
		SlurmUser: "root",
		Priority: spec.PriorityConfig{
			MaxAge:     7 * spec.Day,
			HalfLife:   7 * spec.Day,
			CalcPeriod: 5 * spec.Minute,
			UsageReset: "NONE",
		},
		Limits: spec.JobLimits{
			MaxJobCount:     10_000,
			MaxArraySize:    1001,
			MaxJobID:        67_043_328,
			FirstJobID:      1,
			MaxScript:       4 << 20,
			MaxTasksPerNode: 512,
			EnforcePart:     "NO",
			MaxBatchRequeue: 5,
			JobRequeue:      true,
		},
		Timing: spec.Timing{
			KillWait:          30 * spec.Second,
			MinJobAge:         300 * spec.Second,
			NodeTimeout:       300 * spec.Second,
			UnkillableAfter:   60 * spec.Second,
			ControllerTimeout: 120 * spec.Second,
		},
		Sched: spec.SchedConfig{
			Backfill:     true,
			BFWindow:     spec.Day,
			BFResolution: spec.Minute,
			BFMaxJobTest: 500,
			BFInterval:   30 * spec.Second,
			QueueDepth:   100,
			Interval:     60 * spec.Second,
			Cores:        true,
			Memory:       true,
			PreemptType:  "preempt/none",
			PreemptMode:  "OFF",
			ArrayResv:    20,
		},
	}
}

// builder turns records into a File.
type builder struct {
	file     *File
	problems *Problems
	top      *table[File]
	node     *table[nodeDraft]
	part     *table[partDraft]
	set      *table[setDraft]
	down     *table[downDraft]

	seen      map[string]Setting // keys of the main part
	nodeBase  nodeDraft          // the last NodeName=DEFAULT
	partBase  partDraft
	nodes     []nodeDraft
	parts     []partDraft
	sets      []setDraft
	downs     []downDraft
	lastKind  string // of the record before, to explain a stray key
	lastStart Setting
}

func (b *builder) addRecord(record Record) {
	first := record[0]
	b.file.Settings = append(b.file.Settings, record...)
	kind := "" // of the record; the main part has none
	for _, begins := range b.top.also {
		if strings.EqualFold(first.Key, begins) {
			kind = begins
		}
	}
	for _, setting := range record {
		b.file.Config.Raw = append(
			b.file.Config.Raw,
			spec.KeyValue{Key: setting.Key, Value: setting.Value, Record: kind},
		)
	}
	switch {
	case strings.EqualFold(first.Key, "NodeName"):
		draft := b.nodeBase
		applyAll(&draft, b.node, record, b.problems, b.part, b.set, b.top)
		if strings.EqualFold(first.Value, "DEFAULT") {
			b.nodeBase = draft
		} else {
			b.nodes = append(b.nodes, draft)
		}
	case strings.EqualFold(first.Key, "PartitionName"):
		draft := b.partBase
		draft.haveFactor, draft.haveTier = false, false
		applyAll(&draft, b.part, record, b.problems, b.node, b.set, b.top)
		if strings.EqualFold(first.Value, "DEFAULT") {
			b.partBase = draft
		} else {
			b.parts = append(b.parts, draft)
		}
	case strings.EqualFold(first.Key, "NodeSet"):
		var draft setDraft
		applyAll(&draft, b.set, record, b.problems, b.node, b.part, b.top)
		b.sets = append(b.sets, draft)
	case strings.EqualFold(first.Key, "DownNodes"):
		draft := downDraft{state: "DOWN"}
		applyAll(&draft, b.down, record, b.problems, b.node, b.part, b.top)
		b.downs = append(b.downs, draft)
	default:
		b.setMain(record)
		return
	}
	b.lastKind, b.lastStart = first.Key, first
}

// applyAll gives each setting of a record to its key, and reports repetition.
func applyAll[T any](to *T, t *table[T], record Record, problems *Problems, others ...catalogue) {
	for i, setting := range record {
		for _, before := range record[:i] {
			if strings.EqualFold(before.Key, setting.Key) {
				problems.addProblem(
					setting,
					Error,
					"is given twice in this record; first on %s",
					namePlace(setting, before),
				)
			}
		}
		applySetting(to, t, setting, problems, others...)
	}
}

// setMain handles a line that is no record: one key, once.
func (b *builder) setMain(record Record) {
	setting := record[0]
	if len(record) > 1 {
		b.problems.addProblem(
			record[1],
			Error,
			"a line of this kind holds one setting; %s stands on it already",
			setting.Key,
		)
	}
	if b.explainStray(setting) {
		return
	}
	low := strings.ToLower(setting.Key)
	if before, again := b.seen[low]; again && low != "slurmctldhost" {
		b.problems.addProblem(
			setting,
			Warning,
			"is given again; this value replaces the one of %s",
			namePlace(setting, before),
		)
	}
	if b.seen == nil {
		b.seen = make(map[string]Setting)
	}
	b.seen[low] = setting
	applySetting(b.file, b.top, setting, b.problems, b.node, b.part)
}

// explainStray explains a record's key that stands alone, which mostly means that a
// continuation ended early: in Slurm, too, a line that holds only a comment
// ends it.
func (b *builder) explainStray(setting Setting) bool {
	if _, ok := b.top.findKey(setting.Key); ok || b.lastKind == "" ||
		setting.File != b.lastStart.File {
		return false
	}
	_, inNode := b.node.findKey(setting.Key)
	_, inPart := b.part.findKey(setting.Key)
	if inNode && strings.EqualFold(b.lastKind, "NodeName") ||
		inPart && strings.EqualFold(b.lastKind, "PartitionName") {
		b.problems.addProblem(
			setting,
			Error,
			`belongs to the %s record of line %d, which has ended: every line of it but the last needs a "\" at its end, before any comment`,
			b.lastStart.Key,
			b.lastStart.Line,
		)
		return true
	}
	return false
}

// finishConfig builds nodes and partitions and checks what spans lines.
func (b *builder) finishConfig() {
	file, config := b.file, &b.file.Config
	whole := Setting{File: file.Name}
	names := b.buildNodes()
	b.buildPartitions(names)
	b.finishPower(names)
	if len(*b.problems) > 0 && b.problems.isFileMissing(file.Name) {
		return
	}
	if config.ClusterName == "" && !b.isGiven("ClusterName") {
		b.problems.addProblem(whole, Error, "ClusterName is missing")
	}
	if len(b.nodes) == 0 && config.MaxNodes == 0 {
		b.problems.addProblem(whole, Error, "no NodeName record: the cluster has no nodes")
	}
	if len(b.parts) == 0 {
		b.problems.addProblem(whole, Error, "no PartitionName record: jobs have nowhere to go")
	}
	for _, t := range config.TRES {
		if kind, ok := strings.CutPrefix(t, "gres/"); ok {
			kind, _, _ = strings.Cut(kind, ":")
			if !slices.Contains(config.GresTypes, kind) {
				b.problems.addProblem(
					b.seen["accountingstoragetres"],
					Error,
					"gres/%s: GresTypes does not name %s",
					kind,
					kind,
				)
			}
		}
	}
	if n := len(config.Nodes); config.MaxNodes > 0 && n > int(config.MaxNodes) {
		b.problems.addProblem(
			b.seen["maxnodecount"],
			Error,
			"%d is less than the %d nodes of this file",
			config.MaxNodes,
			n,
		)
	}
	b.refuseBoth(
		"defmempercpu",
		"defmempernode",
		config.Limits.DefMemPerCPU != 0 && config.Limits.DefMemPerNode != 0,
	)
	b.refuseBoth(
		"maxmempercpu",
		"maxmempernode",
		config.Limits.MaxMemPerCPU != 0 && config.Limits.MaxMemPerNode != 0,
	)
	if config.Limits.FirstJobID > config.Limits.MaxJobID {
		b.problems.addProblem(
			b.seen["firstjobid"],
			Error,
			"%d is above MaxJobId, %d",
			config.Limits.FirstJobID,
			config.Limits.MaxJobID,
		)
	}
	// In Slurm 0 switches these off.
	for _, s := range []*spec.Span{&config.Timing.MinJobAge, &config.Timing.NodeTimeout} {
		if *s == 0 {
			*s = spec.Infinite
		}
	}
	if config.Fencing != nil {
		b.checkFencing(*config.Fencing, b.seen["fencingpolicy"])
	}
	for i := range b.parts {
		if policy := b.parts[i].Fencing; policy != nil {
			b.checkFencing(*policy, b.parts[i].fencingAt)
		}
	}
	if file.ctl != (spec.CtlScripts{}) {
		file.ctl.PrologTimeout, file.ctl.EpilogTimeout = file.Agent.PrologTimeout, file.Agent.EpilogTimeout
		config.Ctl = &file.ctl
	}
	if file.jobComp == "jobcomp/filetxt" {
		config.JobCompFile = file.jobCompLoc
		if config.JobCompFile == "" {
			config.JobCompFile = "/var/log/slurm_jobcomp.log"
		}
		if !path.IsAbs(config.JobCompFile) {
			b.problems.addProblem(
				file.jobCompAt,
				Error,
				"jobcomp/filetxt needs JobCompLoc to be an absolute path, not %s",
				quoteShort(config.JobCompFile),
			)
		}
	}
}

func (b *builder) isGiven(key string) bool {
	_, ok := b.seen[strings.ToLower(key)]
	return ok
}

func (b *builder) refuseBoth(first, second string, both bool) {
	if both {
		b.problems.addProblem(
			b.seen[second],
			Error,
			"cannot be combined with %s of %s",
			b.seen[first].Key,
			namePlace(b.seen[second], b.seen[first]),
		)
	}
}

// isFileMissing tells that the main file itself could not be read; then nothing else
// is worth saying.
func (ps Problems) isFileMissing(name string) bool {
	return slices.ContainsFunc(
		ps,
		func(problem Problem) bool {
			return problem.File == name && problem.Line == 0 && problem.Key == ""
		},
	)
}
