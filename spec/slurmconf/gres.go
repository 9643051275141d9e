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
		return func(d *gresDraft, v value) {
			got, reason := expandDevices(v.Value)
			switch {
			case reason != "":
				v.failValue("%s", reason)
			case len(d.Files) > 0:
				v.failValue("File and MultipleFiles cannot be combined")
			default:
				d.Files = got
				d.Multiple = multiple
				d.GRES.Files = v.Value
			}
		}
	}
	return []key[gresDraft]{
		{"AutoDetect", implemented, "", "", setAutoDetect},
		{"Cores", implemented, "", "", func(d *gresDraft, v value) {
			if _, err := format.ParseArray(v.Value); err != nil {
				v.failValue("%s is no list of cores such as 0-15", quoteShort(v.Value))
				return
			}
			d.GRES.Cores = v.Value
		}},
		{"Count", implemented, "", "", func(d *gresDraft, v value) {
			n, err := format.ParseCount(v.Value)
			if err != nil {
				v.failValue("%s", err)
				return
			}
			d.count, d.haveCount = n, true
		}},
		{"CPUs", implemented, "", "", func(_ *gresDraft, v value) {
			v.failValue("Slurm replaced it by Cores, which counts cores and not CPUs")
		}},
		{"File", implemented, "", "", files(false)},
		{"Flags", implemented, "", "", func(d *gresDraft, v value) {
			v.checkOptions(gresFlags(), nil)
			d.GRES.Flags = v.Value
			d.GRES.NoConsume = slices.ContainsFunc(v.splitItems(), func(s string) bool { return strings.EqualFold(s, "no_consume") })
		}},
		{"Ignore", unsupported, "", "every line is read", nil},
		{"Link", implemented, "", "", setLinks},
		{"Links", implemented, "", "", setLinks},
		{"MultipleFiles", implemented, "", "", files(true)},
		{"Name", implemented, "", "", func(d *gresDraft, v value) {
			switch {
			case !gresName(v.Value):
				v.failValue("%s is no name for a resource", quoteShort(v.Value))
			default:
				d.GRES.Name = v.Value
			}
		}},
		{"NodeName", implemented, "", "", func(d *gresDraft, v value) {
			l, err := hostlist.Parse(v.Value)
			if err != nil {
				v.failValue("%s", err)
				return
			}
			d.Nodes = l
		}},
		{"Type", implemented, "", "", func(d *gresDraft, v value) {
			if !gresName(v.Value) {
				v.failValue("%s is no name for a type", quoteShort(v.Value))
				return
			}
			d.GRES.Type = v.Value
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

func setAutoDetect(d *gresDraft, v value) {
	switch w, _ := v.parseWord("nvml|nvidia|rsmi|oneapi|nrt|off"); w {
	case "nvml", "off":
		d.AutoDetect = w
	case "nvidia":
		v.noteValue("NVIDIA's library is asked, as with nvml")
		d.AutoDetect = "nvml"
	case "rsmi", "oneapi", "nrt":
		v.failValue("%s is not supported: only NVIDIA's GPUs are found by themselves; write Name, Type and File", w)
	}
}

func setLinks(d *gresDraft, v value) {
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
	d.GRES.Links = v.Value
}

// ReadGres reads gres.conf. The Gres is never nil; it must not be used if the
// problems hold an Error.
func ReadGres(fsys fs.FS, name string) (*Gres, Problems) {
	var ps Problems
	g := &Gres{Name: name}
	t := newTable("a line of gres.conf", gresKeys())
	recs, _ := lexFiles(fsys, name, &ps)
	for _, rec := range recs {
		g.Settings = append(g.Settings, rec...)
		var d gresDraft
		d.Setting = rec[0]
		before := len(ps.AtLeast(Error))
		applyAll(&d, t, rec, &ps)
		if len(ps.AtLeast(Error)) == before {
			g.keepLine(&d, &ps)
		}
	}
	g.findOverlaps(&ps)
	return g, ps.sortedByLine()
}

// keepLine checks a line as a whole and keeps it.
func (g *Gres) keepLine(d *gresDraft, ps *Problems) {
	at := d.Setting
	at.Key = ""
	n := len(d.Files)
	if d.Multiple {
		n = 1
	}
	switch {
	case d.GRES.Name == "" && (n > 0 || d.haveCount || d.GRES.Type != "" || d.GRES.Cores != "" || d.GRES.Links != "" || d.GRES.Flags != ""):
		ps.addProblem(at, Error, "the line says what a resource is like, but Name is missing")
		return
	case d.GRES.Name == "" && d.Nodes.Len() == 0 && d.AutoDetect != "":
		if g.AutoDetect != "" && g.AutoDetect != d.AutoDetect {
			ps.addProblem(d.Setting, Error, "is %s and %s for the same nodes", g.AutoDetect, d.AutoDetect)
		}
		g.AutoDetect = d.AutoDetect
		return
	case spec.Shares(d.GRES.Name):
		g.keepShares(d, at, ps)
		return
	case n > 0 && d.haveCount && d.count != int64(n):
		ps.addProblem(at, Error, "Count=%d, but the files are %d", d.count, n)
		return
	case d.GRES.Links != "" && n > 1:
		ps.addProblem(at, Error, "Links describes one device, but the files are %d: write one line for each", n)
		return
	}
	switch {
	case n > 0:
		d.GRES.N = int64(n)
	case d.haveCount:
		d.GRES.N = d.count
	case d.GRES.Name != "":
		d.GRES.N = 1
	}
	g.Lines = append(g.Lines, d.GresLine)
}

// keepShares checks and keeps a line of a sharing resource: its Count is spread over
// its files, or over all GPUs of the node.
func (g *Gres) keepShares(d *gresDraft, at Setting, ps *Problems) {
	switch {
	case d.Multiple:
		ps.addProblem(at, Error, "MultipleFiles is for MIG, whose instances are GPUs of their own; %s is a part of one File", d.GRES.Name)
	case len(d.Files) > 0 && !d.haveCount:
		ps.addProblem(at, Error, "Count is missing: how many %s its devices have together", d.GRES.Name)
	case d.haveCount && d.count < max(int64(len(d.Files)), 1):
		ps.addProblem(at, Error, "Count=%d is fewer than its devices", d.count)
	case d.GRES.NoConsume:
		ps.addProblem(at, Error, "no_consume: what of a GPU is shared is counted")
	case d.GRES.HasFlag("one_sharing") && d.GRES.HasFlag("all_sharing"):
		ps.addProblem(at, Error, "one_sharing and all_sharing are opposites")
	default:
		d.GRES.N = d.count // 0: as many as slurm.conf says
		g.Lines = append(g.Lines, d.GresLine)
	}
}

// findOverlaps finds devices that two lines give to the same node.
func (g *Gres) findOverlaps(ps *Problems) {
	owner := make(map[string][]int)
	for i := range g.Lines {
		l := &g.Lines[i]
		for _, f := range l.Files {
			k := slices.IndexFunc(owner[f], func(other int) bool {
				return l.GRES.Name == g.Lines[other].GRES.Name && shareNode(l.Nodes, g.Lines[other].Nodes)
			})
			if k >= 0 {
				at := l.Setting
				at.Key = "File"
				ps.addProblem(at, Error, "%s belongs to %s already", f, namePlace(at, g.Lines[owner[f][k]].Setting))
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
		if l := &g.Lines[i]; l.AutoDetect != "" && l.For(node) {
			return l.AutoDetect
		}
	}
	return g.AutoDetect
}

// Merge completes the declared resources of nodes (Gres= of slurm.conf) with
// the devices, cores and links of gres.conf. A resource that several lines
// describe becomes several entries, which add up.
func (g *Gres) Merge(nodes []spec.NodeSpec) Problems {
	var ps Problems
	used := make([]bool, len(g.Lines))
	for i := range nodes {
		n := &nodes[i]
		var out []spec.GRESSpec
		for _, want := range n.GRES {
			out = append(out, g.fillResource(n.Name, want, used, &ps)...)
		}
		n.GRES = out
	}
	for i := range g.Lines {
		if l := &g.Lines[i]; !used[i] && l.GRES.Name != "" {
			at := l.Setting
			at.Key = ""
			ps.addProblem(at, Warning, "no node of this line has %s in its Gres= in slurm.conf, so the line is not used", label(l.GRES))
		}
	}
	return ps.sortedByLine()
}

// fillResource describes one declared resource of a node by the lines about it.
func (g *Gres) fillResource(node string, want spec.GRESSpec, used []bool, ps *Problems) []spec.GRESSpec {
	var out []spec.GRESSpec
	have, first := int64(0), Setting{}
	for i := range g.Lines {
		l := &g.Lines[i]
		if l.GRES.Name != want.Name || !l.For(node) || (want.Type != "" && l.GRES.Type != "" && l.GRES.Type != want.Type) {
			continue
		}
		used[i] = true
		if first.File == "" {
			first = l.Setting
		}
		part := l.GRES
		if part.Type == "" {
			part.Type = want.Type
		}
		part.NoConsume = part.NoConsume || want.NoConsume
		if part.N == 0 {
			part.N = want.N
		}
		have += part.N
		out = append(out, l.splitFiles(part)...)
	}
	if first.File == "" {
		return []spec.GRESSpec{want}
	}
	if have != want.N {
		first.Key = ""
		ps.addProblem(first, Error, "%s has %d of %s by this file, but Gres= in slurm.conf says %d", node, have, label(want), want.N)
	}
	return out
}

// splitFiles gives each file of a sharing resource its own entry; others are one.
func (g *GresLine) splitFiles(part spec.GRESSpec) []spec.GRESSpec {
	if !spec.Shares(part.Name) || len(g.Files) == 0 {
		return []spec.GRESSpec{part}
	}
	n := int64(len(g.Files))
	out := make([]spec.GRESSpec, n)
	for i := range out {
		out[i] = part
		out[i].Files, out[i].N = g.Files[i], part.N/n
		if int64(i) < part.N%n {
			out[i].N++
		}
	}
	return out
}

func label(g spec.GRESSpec) string {
	if g.Type == "" {
		return g.Name
	}
	return g.Name + ":" + g.Type
}

// Cluster is slurm.conf with the files beside it.
type Cluster struct {
	*File
	Gres   *Gres   // never nil
	Cgroup *Cgroup // never nil; the defaults without a file
	// Containers is job_container.conf; nil where jobs have no private folders.
	Containers *JobContainer
}

// ReadCluster reads slurm.conf, and gres.conf, cgroup.conf, job_container.conf and
// topology.conf where they are beside it, refuses what a plugstack.conf there would load, and
// completes the nodes' resources. It must not be used if the problems hold an Error.
func ReadCluster(fsys fs.FS, name string) (*Cluster, Problems) {
	f, ps := Read(fsys, name)
	c := &Cluster{File: f, Gres: &Gres{}, Cgroup: cgroupDefaults()}
	dir := path.Dir(name)
	if beside := path.Join(dir, "gres.conf"); fileExists(fsys, beside) {
		g, more := ReadGres(fsys, beside)
		c.Gres, ps = g, append(ps, more...)
		if more.Err() == nil {
			ps = append(ps, g.Merge(f.Config.Nodes)...)
		}
	}
	if beside := path.Join(dir, "cgroup.conf"); fileExists(fsys, beside) {
		g, more := ReadCgroup(fsys, beside)
		c.Cgroup, ps = g, append(ps, more...)
	}
	ps = c.addContainers(fsys, path.Join(dir, "job_container.conf"), ps)
	ps = f.refusePlugstack(fsys, path.Join(dir, "plugstack.conf"), ps)
	return c, c.addTopology(fsys, path.Join(dir, "topology.conf"), ps).sortedByLine()
}

func fileExists(fsys fs.FS, name string) bool {
	_, err := fs.Stat(fsys, name)
	return err == nil
}
