package slurmconf

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Gres is a gres.conf.
type Gres struct {
	Name     string
	Settings []Setting
	// AutoDetect is the mechanism for nodes without a line of their own: nvml,
	// off, or empty when the file does not say.
	AutoDetect string
	Lines      []GresLine
}

// GresLine is one line that names a resource or a node.
type GresLine struct {
	Setting
	Nodes      hostlist.List // empty = every node
	AutoDetect string        // for these nodes; empty = the file's
	GRES       spec.GRESSpec // Name is empty on a line that only sets AutoDetect
	Files      []string      // the devices, expanded
	Multiple   bool          // all Files together are one device (MultipleFiles)
}

// For reports whether a line is about a node.
func (g *GresLine) For(node string) bool { return g.Nodes.Len() == 0 || g.Nodes.Contains(node) }

// gresDraft is a line while it is read.
type gresDraft struct {
	GresLine
	count     int64
	haveCount bool
}

// gresKeys are the keys of gres.conf.
//
//muster:table one row for each key
func gresKeys() []key[gresDraft] {
	files := func(multiple bool) func(*gresDraft, value) {
		return func(draft *gresDraft, v value) {
			got, reason := expandDevices(v.Value)
			switch {
			case reason != "":
				v.failValue("%s", reason)
			case len(draft.Files) > 0:
				v.failValue("File and MultipleFiles cannot be combined")
			default:
				draft.Files = got
				draft.Multiple = multiple
				draft.GRES.Files = v.Value
			}
		}
	}
	return []key[gresDraft]{
		{"AutoDetect", implemented, "", "", setAutoDetect},
		{"Cores", implemented, "", "", func(draft *gresDraft, v value) {
			if _, err := format.ParseArray(v.Value); err != nil {
				v.failValue("%s is no list of cores such as 0-15", quoteShort(v.Value))
				return
			}
			draft.GRES.Cores = v.Value
		}},
		{"Count", implemented, "", "", func(draft *gresDraft, v value) {
			n, err := format.ParseCount(v.Value)
			if err != nil {
				v.failValue("%s", err)
				return
			}
			draft.count, draft.haveCount = n, true
		}},
		{"CPUs", implemented, "", "", func(_ *gresDraft, v value) {
			v.failValue("Slurm replaced it by Cores, which counts cores and not CPUs")
		}},
		{"File", implemented, "", "", files(false)},
		{"Flags", implemented, "", "", func(draft *gresDraft, v value) {
			v.checkOptions(gresFlags(), nil)
			draft.GRES.Flags = v.Value
			draft.GRES.NoConsume = slices.ContainsFunc(v.splitItems(), func(s string) bool {
				return strings.EqualFold(s, "no_consume")
			})
		}},
		{"Ignore", unsupported, "", "every line is read", nil},
		{"Link", implemented, "", "", setLinks},
		{"Links", implemented, "", "", setLinks},
		{"MultipleFiles", implemented, "", "", files(true)},
		{"Name", implemented, "", "", func(draft *gresDraft, v value) {
			switch {
			case !gresName(v.Value):
				v.failValue("%s is no name for a resource", quoteShort(v.Value))
			default:
				draft.GRES.Name = v.Value
			}
		}},
		{"NodeName", implemented, "", "", func(draft *gresDraft, v value) {
			list, err := hostlist.Parse(v.Value)
			if err != nil {
				v.failValue("%s", err)
				return
			}
			draft.Nodes = list
		}},
		{"Type", implemented, "", "", func(draft *gresDraft, v value) {
			if !gresName(v.Value) {
				v.failValue("%s is no name for a type", quoteShort(v.Value))
				return
			}
			draft.GRES.Type = v.Value
		}},
	}
}

func gresFlags() []option {
	const env = "jobs see their GPUs in CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK and GPU_DEVICE_ORDINAL"
	return []option{
		{"all_sharing", implemented, ""},
		{"amd_gpu_env", unsupported, env},
		{"CountOnly", implemented, ""},
		{"env_uuid", unsupported, env},
		{"explicit", unsupported, "an exclusive job gets all resources of its nodes"},
		{"intel_gpu_env", unsupported, env},
		{"no_consume", implemented, ""},
		{"no_gpu_env", unsupported, env},
		{"nvidia_gpu_env", implemented, ""},
		{"one_sharing", implemented, ""},
		{"opencl_env", unsupported, env},
	}
}

func setAutoDetect(draft *gresDraft, v value) {
	switch word, _ := v.parseWord("nvml|nvidia|rsmi|oneapi|nrt|off"); word {
	case "nvml", "off":
		draft.AutoDetect = word
	case "nvidia":
		v.noteValue("NVIDIA's library is asked, as with nvml")
		draft.AutoDetect = "nvml"
	case "rsmi", "oneapi", "nrt":
		v.failValue(
			"%s is not supported: only NVIDIA's GPUs are found by themselves; write Name, Type and File",
			word,
		)
	}
}

func setLinks(draft *gresDraft, v value) {
	own := 0
	for _, n := range v.splitItems() {
		inner := v
		inner.Value = n
		k, ok := inner.parseInteger(-1, 1<<20)
		if !ok {
			return
		}
		if k == -1 {
			own++
		}
	}
	if own != 1 {
		v.failValue("%s: exactly one number must be -1, the device itself", quoteShort(v.Value))
		return
	}
	draft.GRES.Links = v.Value
}

// ReadGres reads gres.conf. The Gres is never nil; it must not be used if the
// problems hold an Error.
func ReadGres(fsys fs.FS, name string) (*Gres, Problems) {
	var problems Problems
	gres := &Gres{Name: name}
	t := newTable("a line of gres.conf", gresKeys())
	recs, _ := lexFiles(fsys, name, &problems)
	for _, record := range recs {
		gres.Settings = append(gres.Settings, record...)
		var draft gresDraft
		draft.Setting = record[0]
		before := len(problems.AtLeast(Error))
		applyAll(&draft, t, record, &problems)
		if len(problems.AtLeast(Error)) == before {
			gres.keepLine(&draft, &problems)
		}
	}
	gres.findOverlaps(&problems)
	return gres, problems.sortedByLine()
}

// describesResource tells whether a line says what a resource is like.
func (d *gresDraft) describesResource() bool {
	return d.GRES.Type != "" || d.GRES.Cores != "" || d.GRES.Links != "" || d.GRES.Flags != ""
}

// keepLine checks a line as a whole and keeps it.
func (g *Gres) keepLine(draft *gresDraft, problems *Problems) {
	at := draft.Setting
	at.Key = ""
	n := len(draft.Files)
	if draft.Multiple {
		n = 1
	}
	switch {
	case draft.GRES.Name == "" && (n > 0 || draft.haveCount || draft.describesResource()):
		problems.addProblem(at, Error, "the line says what a resource is like, but Name is missing")
		return
	case draft.GRES.Name == "" && draft.Nodes.Len() == 0 && draft.AutoDetect != "":
		if g.AutoDetect != "" && g.AutoDetect != draft.AutoDetect {
			problems.addProblem(
				draft.Setting,
				Error,
				"is %s and %s for the same nodes",
				g.AutoDetect,
				draft.AutoDetect,
			)
		}
		g.AutoDetect = draft.AutoDetect
		return
	case spec.Shares(draft.GRES.Name):
		g.keepShares(draft, at, problems)
		return
	case n > 0 && draft.haveCount && draft.count != int64(n):
		problems.addProblem(at, Error, "Count=%d, but the files are %d", draft.count, n)
		return
	case draft.GRES.Links != "" && n > 1:
		problems.addProblem(
			at,
			Error,
			"Links describes one device, but the files are %d: write one line for each",
			n,
		)
		return
	}
	switch {
	case n > 0:
		draft.GRES.N = int64(n)
	case draft.haveCount:
		draft.GRES.N = draft.count
	case draft.GRES.Name != "":
		draft.GRES.N = 1
	}
	g.Lines = append(g.Lines, draft.GresLine)
}

// keepShares checks and keeps a line of a sharing resource: its Count is spread over
// its files, or over all GPUs of the node.
func (g *Gres) keepShares(draft *gresDraft, at Setting, problems *Problems) {
	switch {
	case draft.Multiple:
		problems.addProblem(
			at,
			Error,
			"MultipleFiles is for MIG, whose instances are GPUs of their own; %s is a part of one File",
			draft.GRES.Name,
		)
	case len(draft.Files) > 0 && !draft.haveCount:
		problems.addProblem(
			at,
			Error,
			"Count is missing: how many %s its devices have together",
			draft.GRES.Name,
		)
	case draft.haveCount && draft.count < max(int64(len(draft.Files)), 1):
		problems.addProblem(at, Error, "Count=%d is fewer than its devices", draft.count)
	case draft.GRES.NoConsume:
		problems.addProblem(at, Error, "no_consume: what of a GPU is shared is counted")
	case draft.GRES.HasFlag("one_sharing") && draft.GRES.HasFlag("all_sharing"):
		problems.addProblem(at, Error, "one_sharing and all_sharing are opposites")
	default:
		draft.GRES.N = draft.count // 0: as many as slurm.conf says
		g.Lines = append(g.Lines, draft.GresLine)
	}
}

// findOverlaps finds devices that two lines give to the same node.
func (g *Gres) findOverlaps(problems *Problems) {
	owner := make(map[string][]int)
	for i := range g.Lines {
		line := &g.Lines[i]
		for _, f := range line.Files {
			k := slices.IndexFunc(owner[f], func(other int) bool {
				return line.GRES.Name == g.Lines[other].GRES.Name &&
					shareNode(line.Nodes, g.Lines[other].Nodes)
			})
			if k >= 0 {
				at := line.Setting
				at.Key = "File"
				problems.addProblem(
					at,
					Error,
					"%s belongs to %s already",
					f,
					namePlace(at, g.Lines[owner[f][k]].Setting),
				)
			}
			owner[f] = append(owner[f], i)
		}
	}
}

// shareNode reports whether two node lists share a node; an empty one is all nodes.
func shareNode(a, b hostlist.List) bool {
	if a.Len() == 0 || b.Len() == 0 {
		return true
	}
	if a.Len() > b.Len() {
		a, b = b, a
	}
	for h := range a.All() {
		if b.Contains(h) {
			return true
		}
	}
	return false
}

// Detect is the detection mechanism for a node: nvml, off or empty.
func (g *Gres) Detect(node string) string {
	for i := range g.Lines {
		if line := &g.Lines[i]; line.AutoDetect != "" && line.For(node) {
			return line.AutoDetect
		}
	}
	return g.AutoDetect
}

// Merge completes the declared resources of nodes (Gres= of slurm.conf) with
// the devices, cores and links of gres.conf. A resource that several lines
// describe becomes several entries, which add up.
func (g *Gres) Merge(nodes []spec.NodeSpec) Problems {
	var problems Problems
	used := make([]bool, len(g.Lines))
	for i := range nodes {
		node := &nodes[i]
		var gres []spec.GRESSpec
		for _, want := range node.GRES {
			gres = append(gres, g.fillResource(node.Name, want, used, &problems)...)
		}
		node.GRES = gres
	}
	for i := range g.Lines {
		if line := &g.Lines[i]; !used[i] && line.GRES.Name != "" {
			at := line.Setting
			at.Key = ""
			problems.addProblem(
				at,
				Warning,
				"no node of this line has %s in its Gres= in slurm.conf, so the line is not used",
				label(line.GRES),
			)
		}
	}
	return problems.sortedByLine()
}

// fillResource describes one declared resource of a node by the lines about it.
func (g *Gres) fillResource(
	node string,
	want spec.GRESSpec,
	used []bool,
	problems *Problems,
) []spec.GRESSpec {
	var gres []spec.GRESSpec
	have, first := int64(0), Setting{}
	for i := range g.Lines {
		line := &g.Lines[i]
		otherType := want.Type != "" && line.GRES.Type != "" && line.GRES.Type != want.Type
		if line.GRES.Name != want.Name || !line.For(node) || otherType {
			continue
		}
		used[i] = true
		if first.File == "" {
			first = line.Setting
		}
		part := line.GRES
		if part.Type == "" {
			part.Type = want.Type
		}
		part.NoConsume = part.NoConsume || want.NoConsume
		if part.N == 0 {
			part.N = want.N
		}
		have += part.N
		gres = append(gres, line.splitFiles(part)...)
	}
	if first.File == "" {
		return []spec.GRESSpec{want}
	}
	if have != want.N {
		first.Key = ""
		problems.addProblem(
			first,
			Error,
			"%s has %d of %s by this file, but Gres= in slurm.conf says %d",
			node,
			have,
			label(want),
			want.N,
		)
	}
	return gres
}

// splitFiles gives each file of a sharing resource its own entry; others are one.
func (g *GresLine) splitFiles(part spec.GRESSpec) []spec.GRESSpec {
	if !spec.Shares(part.Name) || len(g.Files) == 0 {
		return []spec.GRESSpec{part}
	}
	n := int64(len(g.Files))
	gres := make([]spec.GRESSpec, n)
	for i := range gres {
		gres[i] = part
		gres[i].Files, gres[i].N = g.Files[i], part.N/n
		if int64(i) < part.N%n {
			gres[i].N++
		}
	}
	return gres
}

func label(gres spec.GRESSpec) string {
	if gres.Type == "" {
		return gres.Name
	}
	return gres.Name + ":" + gres.Type
}

// Cluster is slurm.conf with the files beside it.
type Cluster struct {
	*File
	Gres   *Gres   // never nil
	Cgroup *Cgroup // never nil; the defaults without a file
	// Containers is job_container.conf; nil where jobs have no private folders.
	Containers *JobContainer
	MPI        *MPI        // mpi.conf; never nil
	Gather     *GatherFile // acct_gather.conf; never nil
}

// ReadCluster reads slurm.conf, and gres.conf, cgroup.conf, job_container.conf, mpi.conf,
// oci.conf, acct_gather.conf and topology.conf where they are beside it, refuses what a plugstack.conf
// there would load, and completes the nodes' resources. It must not be used if the problems
// hold an Error.
func ReadCluster(fsys fs.FS, name string) (*Cluster, Problems) {
	file, problems := Read(fsys, name)
	cluster := &Cluster{
		File:   file,
		Gres:   &Gres{},
		Cgroup: cgroupDefaults(),
		MPI:    &MPI{},
		Gather: gatherDefaults(),
	}
	dir := path.Dir(name)
	if beside := path.Join(dir, "gres.conf"); fileExists(fsys, beside) {
		gres, more := ReadGres(fsys, beside)
		cluster.Gres, problems = gres, append(problems, more...)
		if more.Err() == nil {
			problems = append(problems, gres.Merge(file.Config.Nodes)...)
		}
	}
	if beside := path.Join(dir, "cgroup.conf"); fileExists(fsys, beside) {
		cgroup, more := ReadCgroup(fsys, beside)
		cluster.Cgroup, problems = cgroup, append(problems, more...)
		problems = file.warnUnconfined(cgroup, problems)
	}
	if beside := path.Join(dir, "mpi.conf"); fileExists(fsys, beside) {
		mpi, more := ReadMPI(fsys, beside)
		cluster.MPI, problems = mpi, append(problems, more...)
	}
	if beside := path.Join(dir, "oci.conf"); fileExists(fsys, beside) {
		problems = append(problems, ReadOCI(fsys, beside)...)
	}
	problems = cluster.addContainers(fsys, path.Join(dir, "job_container.conf"), problems)
	problems = cluster.addGather(fsys, path.Join(dir, "acct_gather.conf"), problems)
	problems = file.refusePlugstack(fsys, path.Join(dir, "plugstack.conf"), problems)
	problems = file.addScripts(fsys, dir, problems)
	return cluster, cluster.addTopology(fsys, path.Join(dir, "topology.conf"), problems).
		sortedByLine()
}

func fileExists(fsys fs.FS, name string) bool {
	_, err := fs.Stat(fsys, name)
	return err == nil
}
