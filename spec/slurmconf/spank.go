package slurmconf

import (
	"io/fs"
	"path"
	"strings"
)

// refusePlugstack refuses what plugstack.conf beside slurm.conf would load: Slurm reads that
// file though no key names it. Where PlugStackConfig stands, it has its own say.
func (f *File) refusePlugstack(fsys fs.FS, name string, problems Problems) Problems {
	if _, named := f.Value("PlugStackConfig"); !named && fileExists(fsys, name) {
		plugStack(fsys, name, &problems, 0)
	}
	return problems
}

// plugStack reads one file and what it includes.
func plugStack(fsys fs.FS, name string, problems *Problems, depth int) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil || depth > 8 {
		problems.addProblem(
			Setting{File: name},
			Error,
			"cannot be read: whether it loads SPANK plugins is not known",
		)
		return
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		at := Setting{File: name, Line: n, Key: words[0]}
		if !strings.EqualFold(words[0], "include") || len(words) < 2 {
			problems.addProblem(
				at,
				Error,
				"SPANK plugins are not loaded, and to ignore one would be unsafe: it may isolate jobs, or change what they ask for: take the line out, or set PlugStackConfig=none in slurm.conf",
			)
			continue
		}
		pattern := path.Join(path.Dir(name), words[1])
		if strings.HasPrefix(words[1], "/") {
			pattern = strings.TrimPrefix(path.Clean(words[1]), "/")
		}
		more, err := fs.Glob(fsys, pattern)
		if err != nil {
			problems.addProblem(at, Error, "%s is no usable path", quoteShort(words[1]))
		}
		for _, one := range more {
			plugStack(fsys, one, problems, depth+1)
		}
	}
}
