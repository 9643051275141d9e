package slurmconf

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxFile  = 16 << 20 // bytes of one file; a cluster of 10,000 nodes needs 1 MiB
	maxFiles = 64       // files of one configuration
	maxDepth = 8        // Include inside Include
)

// Setting is one key = value as it was written.
type Setting struct {
	Key   string // as written; the tables hold the spelling to print
	Value string // without quotes; Secret where it is a password
	File  string
	Line  int
}

// Secret stands for the value of a password: it never leaves the file.
const Secret = "(secret)"

func (s Setting) isSecret() bool { return strings.HasSuffix(strings.ToLower(s.Key), "pass") }

// Record is a line that describes one thing: NodeName=… and what follows it.
// A line with one setting is a record of one.
type Record []Setting

// lexer turns files into records.
type lexer struct {
	fsys     fs.FS
	base     string // folder of the main file: where relative includes are
	open     []string
	files    int
	cluster  string // ClusterName so far, for %c in Include
	records  []Record
	modes    []fileMode
	problems *Problems
}

type fileMode struct {
	name string
	mode fs.FileMode
}

// readFile reads one file and what it includes. from is the Include line, if any.
func (l *lexer) readFile(name string, from Setting) {
	at := from
	if at.File == "" {
		at = Setting{File: name}
	}
	if slices.Contains(l.open, name) {
		l.problems.addProblem(at, Error, "%s includes itself", name)
		return
	}
	l.files++
	if len(l.open) >= maxDepth || l.files > maxFiles {
		l.problems.addProblem(
			at,
			Error,
			"more than %d files or %d levels of Include",
			maxFiles,
			maxDepth,
		)
		return
	}
	data, mode, err := read(l.fsys, name)
	if err != nil {
		if from.File != "" {
			l.problems.addProblem(at, Error, "%s: %s", name, plainError(err))
		} else {
			l.problems.addProblem(at, Error, "%s", plainError(err))
		}
		return
	}
	l.modes = append(l.modes, fileMode{name, mode})
	l.open = append(l.open, name)
	l.joinLines(name, strings.TrimPrefix(data, "\ufeff"))
	l.open = l.open[:len(l.open)-1]
}

func read(fsys fs.FS, name string) (string, fs.FileMode, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() {
		return "", 0, errors.New("is not a regular file")
	}
	if info.Size() > maxFile {
		return "", 0, errors.New("is larger than 16 MiB")
	}
	data, err := fs.ReadFile(fsys, name)
	return string(data), info.Mode(), err
}

// plainError drops the path of an fs error: the problem names the file already.
func plainError(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "does not exist"
	}
	return err.Error()
}

// logical is a line with its continuations joined; piece k of it begins at
// byte starts[k] and stood on physical line first+k.
type logical struct {
	text   string
	first  int
	starts []int
}

func (g *logical) lineAt(at int) int {
	k, found := slices.BinarySearch(g.starts, at)
	if !found {
		k--
	}
	return g.first + k
}

// joinLines joins continued lines and hands each to record.
func (l *lexer) joinLines(name, data string) {
	var g logical
	quoted, n := false, 0
	for line := range strings.SplitSeq(data, "\n") {
		n++
		var text string
		text, quoted = cutComment(strings.TrimSuffix(line, "\r"), quoted)
		if len(g.starts) == 0 {
			g.first = n
		}
		g.starts = append(g.starts, len(g.text))
		body, more := strings.CutSuffix(strings.TrimRight(text, " \t\v\f"), `\`)
		if more {
			g.text += body
			continue
		}
		g.text += text
		l.splitLine(name, &g)
		g, quoted = logical{}, false
	}
	if len(g.starts) > 0 {
		l.problems.addProblem(
			Setting{File: name, Line: n},
			Error,
			`the file ends after a "\" that continues the line`,
		)
		l.splitLine(name, &g)
	}
}

// cutComment cuts a comment off, but not inside quotes; "\#" is a plain '#'.
func cutComment(text string, quoted bool) (string, bool) {
	if strings.IndexByte(text, '#') < 0 {
		return text, quoted != (strings.Count(text, `"`)%2 == 1)
	}
	buffer := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && text[i+1] == '#':
			buffer = append(buffer, '#')
			i++
			continue
		case c == '"':
			quoted = !quoted
		case c == '#' && !quoted:
			return string(buffer), quoted
		}
		buffer = append(buffer, text[i])
	}
	return string(buffer), quoted
}

// splitLine splits one logical line into settings, or follows an Include.
func (l *lexer) splitLine(name string, g *logical) {
	text := g.text
	here := func(at int) Setting { return Setting{File: name, Line: g.lineAt(at)} }
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			l.problems.addProblem(here(i), Error, "control character %#02x", c)
			return
		}
	}
	if !utf8.ValidString(text) {
		l.problems.addProblem(here(0), Error, "the line is not UTF-8 text")
		return
	}
	at := skip(text, 0)
	if at == len(text) {
		return
	}
	if word := text[at:keyEnd(text, at)]; strings.EqualFold(word, "include") &&
		!strings.HasPrefix(strings.TrimLeft(text[at+len(word):], " \t"), "=") {
		l.followInclude(here(at), strings.TrimSpace(text[at+len(word):]))
		return
	}
	var record Record
	for at < len(text) {
		setting, next, reason := readSetting(text, at)
		setting.File, setting.Line = name, g.lineAt(at)
		if len(record) > 0 && record[0].isSecret() {
			// What follows may be the rest of the password: name nothing of it.
			setting, reason = record[0],
				"something follows the value; put a value with blanks in double quotes"
		} else if reason != "" && setting.isSecret() {
			reason = "the value cannot be read; put a value with blanks in double quotes"
		}
		if reason != "" {
			l.problems.addProblem(setting, Error, "%s", reason)
			break
		}
		if setting.isSecret() {
			setting.Value = Secret
		}
		record = append(record, setting)
		at = skip(text, next)
	}
	if len(record) == 0 {
		return
	}
	if strings.EqualFold(record[0].Key, "ClusterName") {
		l.cluster = record[0].Value
	}
	l.records = append(l.records, record)
}

// readSetting reads Key = Value at a position. A reason says why it is none.
func readSetting(text string, at int) (setting Setting, next int, reason string) {
	end := keyEnd(text, at)
	if end == at {
		return setting, at, "expected Key=value, found " + quoteShort(text[at:])
	}
	setting.Key = text[at:end]
	p := skip(text, end)
	if p == len(text) || text[p] != '=' {
		if p+1 < len(text) && strings.IndexByte("+-*/", text[p]) >= 0 && text[p+1] == '=' {
			return setting, p, "write the whole value with =, not a change with " + text[p:p+2]
		}
		if p == end && p < len(text) { // a strange character inside the word
			return Setting{}, p, "expected Key=value, found " + quoteShort(text[at:])
		}
		return Setting{}, p, quoteShort(text[at:end]) +
			" has no value; expected Key=value (put a value with blanks in double quotes)"
	}
	p++
	v := skip(text, p)
	if v == len(text) {
		return setting, v, "its value is missing"
	}
	if text[v] == '"' {
		q := strings.IndexByte(text[v+1:], '"')
		if q < 0 {
			return setting, v, "a double quote is not closed"
		}
		setting.Value = text[v+1 : v+1+q]
		next = v + q + 2
		if next < len(text) && text[next] != ' ' && text[next] != '\t' {
			return setting, next, "text follows the closing quote: " + quoteShort(text[next:])
		}
		return setting, next, ""
	}
	for next = v; next < len(text) && text[next] != ' ' && text[next] != '\t'; next++ {
		if text[next] == '"' {
			return setting, next, "a double quote must stand at the beginning of the value"
		}
	}
	setting.Value = text[v:next]
	if k := keyEnd(setting.Value, 0); v > p && k > 0 && k < len(setting.Value) &&
		setting.Value[k] == '=' {
		return setting, next, "its value is missing: " + quoteShort(setting.Value) +
			" is the next setting"
	}
	return setting, next, ""
}

func skip(text string, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t') {
		at++
	}
	return at
}

func keyEnd(text string, at int) int {
	for at < len(text) {
		c := text[at]
		if !isLetterOrDigit(c) && c != '_' {
			break
		}
		at++
	}
	return at
}

// isLetterOrDigit tells a letter or digit of ASCII.
func isLetterOrDigit(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// quoteShort quotes the beginning of a text for a message.
func quoteShort(text string) string {
	const most = 40
	if len(text) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "..."
	}
	return `"` + text + `"`
}

// followInclude follows an Include line. %c is the cluster's name; a relative path
// is looked up beside the main file.
func (l *lexer) followInclude(at Setting, arg string) {
	at.Key = "Include"
	if len(arg) > 1 && arg[0] == '"' && arg[len(arg)-1] == '"' {
		arg = arg[1 : len(arg)-1]
	}
	switch {
	case arg == "":
		l.problems.addProblem(at, Error, "the file name is missing")
		return
	case strings.Contains(arg, "%c") && l.cluster == "":
		l.problems.addProblem(at, Error, "%%c needs ClusterName, which must stand above this line")
		return
	}
	arg = strings.ReplaceAll(arg, "%c", l.cluster)
	name := path.Join(l.base, arg)
	if strings.HasPrefix(arg, "/") {
		name = strings.TrimPrefix(path.Clean(arg), "/")
	}
	if !fs.ValidPath(name) {
		l.problems.addProblem(at, Error, "%s is no usable path", quoteShort(arg))
		return
	}
	l.readFile(name, at)
}
