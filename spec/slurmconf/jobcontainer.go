package slurmconf

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec/hostlist"
)

// JobContainer is a job_container.conf: which folders are private to each job.
type JobContainer struct {
	Name     string
	Settings []Setting
	// Auto is AutoBasePath of the whole file.
	Auto  bool
	lines []containerLine
}

// PrivateFolders are the folders that each job has for itself on a node.
type PrivateFolders struct {
	Base   string   // folder in which those of the jobs are made; empty: none are private
	Auto   bool     // make Base where it is missing
	Dirs   []string // what a job sees its own folder at
	Shared bool     // what is mounted on the node later is seen in jobs too
	Init   string   // program that runs before the folders of a job are mounted
}

// containerLine is one line; a key that it does not give is nil or empty.
type containerLine struct {
	Setting
	nodes  hostlist.List // empty = every node
	base   string
	auto   *bool
	dirs   []string
	shared *bool
	init   string
}

// containerTypes are the values of JobContainerType and NamespaceType that make
// folders private.
var containerTypes = []string{"job_container/tmpfs", "namespace/tmpfs"}

// defaultPrivate are the folders that are private unless Dirs says otherwise.
var defaultPrivate = []string{"/tmp", "/dev/shm"}

// setContainerType reads JobContainerType and its later name NamespaceType.
func setContainerType(file *File, v value) {
	word := strings.ToLower(v.Value)
	switch {
	case word == "none" || word == "job_container/none" || word == "namespace/none":
		file.Agent.PrivateFolders = false
	case slices.Contains(containerTypes, word):
		file.Agent.PrivateFolders = true
	default:
		v.failValue(
			"%s is not supported, and to ignore it would be unsafe: jobs would share /tmp and /dev/shm; there is %s",
			quoteShort(v.Value),
			strings.Join(containerTypes, " and "),
		)
	}
}

// containerKeys are the keys of job_container.conf.
//
//muster:table one row for each key
func containerKeys() []key[containerLine] {
	const whyClone = "no program runs inside a job's namespace before the job: InitScript runs before the folders are mounted"
	absolute := func(to func(*containerLine) *string) func(*containerLine, value) {
		return func(line *containerLine, v value) {
			if !path.IsAbs(v.Value) {
				v.failValue("%s is no absolute path", quoteShort(v.Value))
				return
			}
			*to(line) = path.Clean(v.Value)
		}
	}
	flag := func(to func(*containerLine) **bool) func(*containerLine, value) {
		return func(line *containerLine, v value) {
			if yes, ok := v.parseYes(); ok {
				*to(line) = &yes
			}
		}
	}
	return []key[containerLine]{
		{"AutoBasePath", implemented, "", "", flag(func(l *containerLine) **bool { return &l.auto })},
		{"BasePath", implemented, "", "", func(line *containerLine, v value) {
			if strings.EqualFold(v.Value, "none") {
				line.base = "none"
				return
			}
			absolute(func(l *containerLine) *string { return &l.base })(line, v)
		}},
		{"CloneNSEpilog", refused, "", whyClone, nil},
		{"CloneNSEpilog_Wait", meaningless, "", "it is about CloneNSEpilog", nil},
		{"CloneNSScript", refused, "", whyClone, nil},
		{"CloneNSScript_Wait", meaningless, "", "it is about CloneNSScript", nil},
		{"Dirs", implemented, "", "", setPrivateDirs},
		{"EntireStepInNS", meaningless, "", "what minds a step's tasks is always in the job's namespace", nil},
		{"InitScript", implemented, "", "", absolute(func(l *containerLine) *string { return &l.init })},
		{"NodeName", implemented, "", "", func(line *containerLine, v value) {
			nodes, err := hostlist.Parse(v.Value)
			if err != nil {
				v.failValue("%s", err)
				return
			}
			line.nodes = nodes
		}},
		{"Shared", implemented, "", "", flag(func(l *containerLine) **bool { return &l.shared })},
	}
}

// neverPrivate are folders without which no job could start.
var neverPrivate = []string{
	"/",
	"/bin",
	"/dev",
	"/etc",
	"/lib",
	"/lib64",
	"/proc",
	"/run",
	"/sbin",
	"/sys",
	"/usr",
	"/var",
}

func setPrivateDirs(line *containerLine, v value) {
	var dirs []string
	for _, d := range v.splitItems() {
		clean := path.Clean(d)
		switch {
		case !path.IsAbs(d):
			v.failValue("%s is no absolute path", quoteShort(d))
			return
		case slices.Contains(neverPrivate, clean):
			v.failValue("%s cannot be private: no program would find what it needs there", clean)
			return
		case strings.HasPrefix(clean, "/dev/") && clean != "/dev/shm":
			v.failValue("%s cannot be private: of the devices' folder only /dev/shm can", clean)
			return
		case slices.ContainsFunc(dirs, func(o string) bool { return Within(clean, o) || Within(o, clean) }):
			v.failValue("%s is named twice, or lies in another folder of the list", clean)
			return
		}
		dirs = append(dirs, clean)
	}
	line.dirs = dirs
}

// Within tells that a path is a folder or lies in it.
func Within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// ReadJobContainer reads job_container.conf. The result is never nil; it must not
// be used if the problems hold an Error.
func ReadJobContainer(fsys fs.FS, name string) (*JobContainer, Problems) {
	var problems Problems
	container := &JobContainer{Name: name}
	t := newTable("a line of job_container.conf", containerKeys())
	recs, _ := lexFiles(fsys, name, &problems)
	for _, record := range recs {
		container.Settings = append(container.Settings, record...)
		var line containerLine
		line.Setting = record[0]
		applyAll(&line, t, record, &problems)
		if line.auto != nil && line.nodes.Len() == 0 {
			container.Auto = *line.auto
		}
		container.lines = append(container.lines, line)
	}
	readable := len(problems.AtLeast(Error)) == 0
	for i := range container.lines {
		line := &container.lines[i]
		at := line.Setting
		at.Key = ""
		dirs := line.dirs
		if len(dirs) == 0 {
			dirs = defaultPrivate
		}
		for _, d := range dirs {
			if line.base != "" && Within(line.base, d) {
				problems.addProblem(
					at,
					Error,
					"BasePath %s lies in %s, which is private to each job: put it elsewhere",
					line.base,
					d,
				)
			}
		}
	}
	if readable &&
		!slices.ContainsFunc(container.lines, func(l containerLine) bool { return l.base != "" }) {
		problems.addProblem(
			Setting{File: name},
			Error,
			"BasePath is missing: the folder in which the private folders of jobs are made",
		)
	}
	return container, problems.sortedByLine()
}

// Of gives the private folders of jobs on a node. Later lines count, key by key,
// those that name the node before those for all.
func (c *JobContainer) Of(node, host string) PrivateFolders {
	folders := PrivateFolders{Auto: c.Auto, Dirs: defaultPrivate}
	for _, named := range []bool{false, true} {
		for i := range c.lines {
			line := &c.lines[i]
			if named != (line.nodes.Len() > 0) || named && !line.nodes.Contains(node) {
				continue
			}
			line.mergeInto(&folders)
		}
	}
	folders.Base = strings.NewReplacer("%h", host, "%n", node).Replace(folders.Base)
	if folders.Base == "none" || folders.Base == "" {
		return PrivateFolders{}
	}
	return folders
}

// mergeInto writes what a line says over what lines before it have said.
func (l *containerLine) mergeInto(private *PrivateFolders) {
	if l.base != "" {
		private.Base = l.base
	}
	if l.auto != nil {
		private.Auto = *l.auto
	}
	if len(l.dirs) > 0 {
		private.Dirs = l.dirs
	}
	if l.shared != nil {
		private.Shared = *l.shared
	}
	if l.init != "" {
		private.Init = l.init
	}
}

// addContainers reads job_container.conf where slurm.conf asks for it.
func (c *Cluster) addContainers(fsys fs.FS, name string, problems Problems) Problems {
	there := fileExists(fsys, name)
	switch {
	case c.Agent.PrivateFolders && !there:
		problems.addProblem(
			Setting{File: c.File.Name, Key: "JobContainerType"},
			Error,
			"job_container.conf is missing beside slurm.conf: it names BasePath",
		)
	case c.Agent.PrivateFolders:
		container, more := ReadJobContainer(fsys, name)
		c.Containers, problems = container, append(problems, more...)
	case there:
		problems.addProblem(
			Setting{File: name},
			Warning,
			"has no effect without JobContainerType=job_container/tmpfs in slurm.conf",
		)
	}
	return problems
}
