package tidy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// phrase is wording that readers stumble over, with what to write instead.
// docs/style.md has the rules behind the list.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// awkward lists phrases that were edited out once. The brackets keep the
// patterns from finding themselves.
var awkward = [...]phrase{
	{regexp.MustCompile(`\bw[i]shed for\b`), `"requested", "desired" or "preferred"`},
	{regexp.MustCompile(`\bevery so m[a]ny\b`), `"interval in seconds", or "every N seconds"`},
	{
		regexp.MustCompile(`\bas (few|many|little|near|far|soon) as m[a]y be\b`),
		`"as few as possible"`,
	},
	{regexp.MustCompile(`\bc[a]nnot be so\b`), `"invalid ..." and what is expected`},
	{regexp.MustCompile(`\bcould not be [a]sked\b`), `"queries failed for ..."`},
	{regexp.MustCompile(`\b(come|comes|came) to r[e]st\b`), `"becomes idle"`},
	{regexp.MustCompile(`\bso without the [o]ption\b`), `"(default)"`},
	{regexp.MustCompile(`\bn[o]body comes in\b`), `"access is revoked"`},
	{regexp.MustCompile(`\bn[o]body takes samples\b`), `"no endpoint accepts ..."`},
	{regexp.MustCompile(`\bn[o]body answers on it\b`), `"no daemon answers"`},
	{regexp.MustCompile(`\bso n[o]body knows\b`), `"is unknown"`},
	{regexp.MustCompile(`\belect s[o]mebody\b`), `"elect a leader"`},
	{regexp.MustCompile(`\bserved by s[o]mebody else\b`), `"another process serves ..."`},
	{regexp.MustCompile(`\bwhich \w+ it w[a]nts"`), `"the request names no ..."`},
	{regexp.MustCompile(`\bsignal %d is n[o]ne\b`), `"invalid signal %d"`},
	{regexp.MustCompile(`\bof a time that is not y[e]t\b`), `"in the future"`},
}

// Words reports awkward phrases in the tracked text files of a tree. The style
// guide quotes them and is left out.
func Words(root string) ([]Breach, error) {
	files, err := trackedFiles(root)
	if err != nil {
		return nil, err
	}
	var breaches []Breach
	for _, name := range files {
		slashed := filepath.ToSlash(name)
		if slashed == "docs/style.md" {
			continue
		}
		switch filepath.Ext(name) {
		case ".go", ".md", ".proto", ".c", ".h", ".yaml", ".yml", ".sh", ".txt":
		default:
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // tracked but deleted
		}
		if err != nil {
			return nil, fmt.Errorf("reading for awkward phrases: %w", err)
		}
		breaches = append(breaches, wordBreaches(slashed, content)...)
	}
	return breaches, nil
}

func wordBreaches(name string, content []byte) []Breach {
	var breaches []Breach
	for i, line := range bytes.Split(content, []byte("\n")) {
		for _, p := range awkward {
			if found := p.pattern.Find(line); found != nil {
				breaches = append(
					breaches,
					Breach{
						"words",
						name,
						i + 1,
						fmt.Sprintf("%q: write %s (docs/style.md)", found, p.instead),
					},
				)
			}
		}
	}
	return breaches
}
