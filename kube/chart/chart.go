// Package chart renders the Helm chart of muster-kube with Helm's own library, for
// tests and for the demo: they install what a site installs.
package chart

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

// Rendered is a chart with its values, as manifests.
type Rendered struct {
	CRDs  []byte
	Parts map[string][]byte // by file of the chart's templates
}

// Render makes the manifests of a release as `helm install` would for a server of
// this version.
func Render(folder, release, namespace, version string, values map[string]any) (*Rendered, error) {
	c, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	server, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(new(action.Configuration))
	install.ReleaseName = release
	install.Namespace = namespace
	install.DryRun = true
	install.ClientOnly = true
	install.KubeVersion = server
	made, err := install.Run(c, values)
	if err != nil {
		return nil, err
	}
	out := &Rendered{Parts: map[string][]byte{}}
	for _, crd := range c.CRDObjects() {
		out.CRDs = append(append(out.CRDs, "---\n"...), crd.File.Data...)
	}
	for doc := range strings.SplitSeq(made.Manifest, "\n---\n") {
		name, ok := strings.CutPrefix(strings.TrimPrefix(doc, "---\n"), "# Source: ")
		if !ok {
			return nil, fmt.Errorf("a manifest does not name its template: %.80q", doc)
		}
		name, body, _ := strings.Cut(name, "\n")
		file := path.Base(name)
		out.Parts[file] = append(out.Parts[file], "---\n"+body+"\n"...)
	}
	return out, nil
}

// All is one text with these parts, or with every part.
func (r *Rendered) All(files ...string) []byte {
	var b bytes.Buffer
	var names []string
	for name := range r.Parts {
		if len(files) == 0 || slices.Contains(files, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b.Write(r.Parts[name])
	}
	return b.Bytes()
}
