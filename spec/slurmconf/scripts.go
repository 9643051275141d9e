package slurmconf

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Names of the site's scripts, beside slurm.conf.
const (
	jobSubmitFile = "job_submit.lua"
	cliFilterFile = "cli_filter.lua"
)

// maxSiteScript bounds a script of the site: it travels in the ledger.
const maxSiteScript = 256 << 10

// scriptKeys are the settings that ask for a script; their file is read with the files that
// stand beside slurm.conf.
type scriptKeys struct{ jobSubmit, cliFilter *Setting }

// setJobSubmit reads JobSubmitPlugins. What the plugin of Kubernetes does, the ledger does.
func setJobSubmit(file *File, v value) {
	file.scripts.jobSubmit = nil
	for _, word := range v.splitItems() {
		switch strings.TrimPrefix(strings.ToLower(word), "job_submit/") {
		case "lua":
			at := v.Setting
			file.scripts.jobSubmit = &at
		case "k8s_resource_completion", "none", "(null)":
		default:
			v.failValue("%s is not supported, and to ignore it would be unsafe, because it changes or rejects submissions: say it in %s with JobSubmitPlugins=lua, or with partitions, QOS, associations and limits",
				quoteShort(word), jobSubmitFile)
		}
	}
}

// setCliFilter reads CliFilterPlugins.
func setCliFilter(file *File, v value) {
	file.scripts.cliFilter = nil
	for _, word := range v.splitItems() {
		switch strings.TrimPrefix(strings.ToLower(word), "cli_filter/") {
		case "lua":
			at := v.Setting
			file.scripts.cliFilter = &at
		case "none", "(null)":
		case "syslog", "user_defaults":
			v.failValue("%s is not supported: muster audit has every submission, and %s can set defaults with CliFilterPlugins=lua",
				quoteShort(word), cliFilterFile)
		default:
			v.failValue("%s is not supported: lua is", quoteShort(word))
		}
	}
}

// addScripts reads the scripts that slurm.conf asks for.
func (file *File) addScripts(fsys fs.FS, dir string, problems Problems) Problems {
	read := func(at *Setting, name string) *spec.SiteScript {
		if at == nil {
			return nil
		}
		full := path.Join(dir, name)
		text, err := fs.ReadFile(fsys, full)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems.addProblem(*at, Error, "/%s does not exist: write it, or take the line out", full)
			return nil
		case err != nil:
			problems.addProblem(*at, Error, "/%s cannot be read: %v", full, err)
			return nil
		case len(text) > maxSiteScript:
			problems.addProblem(*at, Error, "/%s has %d bytes; at most %d are possible", full, len(text), maxSiteScript)
			return nil
		}
		return &spec.SiteScript{Path: "/" + full, Text: string(text)}
	}
	file.Config.JobSubmit = read(file.scripts.jobSubmit, jobSubmitFile)
	file.Config.CliFilter = read(file.scripts.cliFilter, cliFilterFile)
	return problems
}
