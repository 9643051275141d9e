package tidy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// largestFile is the size in bytes that no tracked file may exceed: a clone
// keeps a program that was built in the wrong place for ever.
const largestFile = 1 << 20

// wording is a pattern that must not stand in any file of the repository.
type wording struct {
	pattern *regexp.Regexp
	why     string
	// but lists values of the pattern's last group that are fine.
	but []string
}

// The brackets keep the patterns from finding themselves.
var forbiddenText = [...]wording{
	{
		pattern: regexp.MustCompile("(?:^|[\\s\"'`=(:,<>|])/(w[o]rk|r[o]ot|f[a]rm)/"),
		why:     "is a path of the machine it was written on",
	},
	{
		pattern: regexp.MustCompile(
			`(?i)\b(?:registry|proxy|artifactory|nexus|mirror|goproxy|npm|pypi)[a-z0-9.-]*\.(internal|intranet|corp|lan|local)\b`,
		),
		why: "names a private registry",
	},
	{
		pattern: regexp.MustCompile(
			`(?i)(?:goproxy|registry|index-url)\s*[= ]\s*["']?https?://([a-z0-9.-]+)`,
		),
		why: "points to a registry other than the public one",
		but: []string{"registry.npmjs.org", "proxy.golang.org", "pypi.org"},
	},
	{pattern: regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE (KEY)-----`), why: "is a private key"},
}

// Text reads every file that git tracks or would add (every file, where there
// is no git) and reports forbidden wording by line.
func Text(root string) ([]Breach, error) {
	files, err := trackedFiles(root)
	if err != nil {
		return nil, err
	}
	var breaches []Breach
	for _, name := range files {
		info, err := os.Lstat(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // tracked but deleted
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		if info.Size() > largestFile {
			breaches = append(
				breaches,
				Breach{
					"text",
					filepath.ToSlash(name),
					0,
					fmt.Sprintf(
						"has %d MiB: programs and data do not belong in the tree",
						info.Size()>>20,
					),
				},
			)
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("reading for forbidden wording: %w", err)
		}
		breaches = append(breaches, textBreaches(filepath.ToSlash(name), content)...)
	}
	return breaches, nil
}

func textBreaches(name string, content []byte) []Breach {
	if bytes.IndexByte(content, 0) >= 0 {
		return nil // not text
	}
	var breaches []Breach
	for i, line := range bytes.Split(content, []byte("\n")) {
		for _, w := range forbiddenText {
			for _, m := range w.pattern.FindAllSubmatch(line, -1) {
				if !slices.Contains(w.but, string(m[len(m)-1])) {
					breaches = append(
						breaches,
						Breach{
							"text",
							name,
							i + 1,
							fmt.Sprintf("%q %s", bytes.TrimSpace(m[0]), w.why),
						},
					)
				}
			}
		}
	}
	return breaches
}

func trackedFiles(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil {
		names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
		slices.Sort(names)
		return slices.Compact(names), nil
	}
	var names []string
	err := filepath.WalkDir(root, func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); p != root &&
				(name == "bin" || name == ".cache" || name == ".git") {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, p)
		names = append(names, rel)
		return err
	})
	return names, err
}

// Decisions reports modules that the tree imports and no file of
// docs/decisions names: a dependency is chosen, and the choice is written down.
func Decisions(tree *Tree, modules, decisions []string) []Breach {
	text := strings.Join(decisions, "\n")
	used := map[string]string{} // module -> first file that imports it
	for _, pkg := range tree.Packages {
		for _, file := range slices.Concat(pkg.Files, pkg.Tests) {
			for _, imp := range importsOf(file) {
				if m := moduleOf(imp.path, modules); m != "" && used[m] == "" {
					used[m] = file.Path
				}
			}
		}
	}
	var breaches []Breach
	for _, m := range modules {
		if used[m] != "" && !strings.Contains(text, "`"+m+"`") {
			breaches = append(breaches,
				Breach{Rule: "decisions", Path: used[m], Text: "imports " + m +
					", which no file of docs/decisions explains"})
		}
	}
	return breaches
}

// moduleOf finds the module a package belongs to: the longest that fits.
func moduleOf(importPath string, modules []string) string {
	best := ""
	for _, m := range modules {
		if isWithin(importPath, m) && len(m) > len(best) {
			best = m
		}
	}
	return best
}
