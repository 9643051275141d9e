package spawn

import (
	"path/filepath"
	"strings"
)

// SearchPath gives the files that a command name may mean.
func SearchPath(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	var out []string
	for _, d := range strings.Split(path, ":") {
		out = append(out, filepath.Join(d, name))
	}
	return out
}
