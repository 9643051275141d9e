// Package confdoc turns the comments of conffile.Config into the reference of
// muster.yaml and into its annotated default file, so that there is one text.
package confdoc

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"

	"github.com/musterhpc/muster/internal/conffile"
)

// Comments are the texts of struct fields by "Struct.Field", and of structs by
// name, one paragraph each.
type Comments map[string]string

// Read takes the comments from the source of the package that declares Config.
func Read(source []byte) (Comments, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "config.go", source, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("reading the comments of Config: %w", err)
	}
	comments := Comments{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			t := s.(*ast.TypeSpec)
			if st, ok := t.Type.(*ast.StructType); ok {
				comments[t.Name.Name] = paragraph(g.Doc)
				for _, field := range st.Fields.List {
					for _, name := range field.Names {
						comments[t.Name.Name+"."+name.Name] = paragraph(field.Doc)
					}
				}
			}
		}
	}
	return comments, nil
}

// paragraph joins the first paragraph of a comment into one line.
func paragraph(doc *ast.CommentGroup) string {
	first, _, _ := strings.Cut(doc.Text(), "\n\n")
	return strings.Join(strings.Fields(first), " ")
}

// of gives the comment of a key; a key without one cannot be documented.
func (c Comments) of(key conffile.Key) (string, error) {
	text := c[key.Struct+"."+key.Field]
	if text == "" {
		return "", fmt.Errorf("%s (%s.%s) has no comment", key.Path, key.Struct, key.Field)
	}
	return text, nil
}

const annotatedHead = `# muster.yaml: what is Muster's own. The cluster itself stands in slurm.conf.
#
# Every line is optional; the value shown is the default. Take the # in front of
# a key away to change it. Relative paths start from the folder of this file.
# An unknown key is an error, so a misspelt one is never silently ignored.
`

// Annotated writes the default file, every key with its comment.
func Annotated(comments Comments) (string, error) {
	var b strings.Builder
	b.WriteString(annotatedHead)
	for _, key := range conffile.Keys() {
		text, err := comments.of(key)
		if err != nil {
			return "", err
		}
		indent := strings.Repeat("  ", key.Depth())
		b.WriteString("\n")
		for _, line := range wrap(text, 78-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		switch {
		case key.Section():
			fmt.Fprintf(&b, "%s%s:\n", indent, key.Name())
		case key.Default != "":
			fmt.Fprintf(&b, "%s#%s: %s\n", indent, key.Name(), key.Default)
		default:
			fmt.Fprintf(&b, "%s#%s: %s\n", indent, key.Name(), key.Example)
		}
	}
	return b.String(), nil
}

func wrap(text string, width int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}

const markdownHead = `# muster.yaml

Generated from the comments in ` + "`internal/conffile/config.go` by `make generate`" +
	`; do not edit.

The file is read strictly: an unknown key, a value of the wrong kind or two keys that contradict each other are
errors, reported all at once with file and line. Relative paths start from the file's folder. Secrets come from files
of mode 0600. Units are always written: ` +
	"`200ms`, `10s`, `5m`, `1h`, `7d`, `forever`; `256MiB`, `4GiB`" + `. An address is
a port, ` + "`host:port` or `off`" + `.
`

// Markdown writes docs/muster.yaml.md: one table for each section.
func Markdown(comments Comments) (string, error) {
	var b strings.Builder
	b.WriteString(markdownHead)
	section := "-"
	for _, key := range conffile.Keys() {
		text, err := comments.of(key)
		if err != nil {
			return "", err
		}
		if key.Section() {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", key.Path, text)
			continue
		}
		if at := strings.TrimSuffix(strings.TrimSuffix(key.Path, key.Name()), "."); at != section {
			section = at
			b.WriteString("\n| key | value | default | meaning |\n|---|---|---|---|\n")
		}
		value := "-"
		if key.Default != "" {
			value = "`" + key.Default + "`"
		}
		if key.Default == "" && key.Example != "" {
			text += " As in `" + key.Example + "`."
		}
		fmt.Fprintf(
			&b,
			"| `%s` | %s | %s | %s |\n",
			key.Path,
			strings.ReplaceAll(key.Type, "|", `\|`),
			value,
			strings.ReplaceAll(text, "|", `\|`),
		)
	}
	return b.String(), nil
}
