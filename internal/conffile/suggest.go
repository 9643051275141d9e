package conffile

import (
	"reflect"
	"strings"
)

// suggestKey gives the end of a message about an unknown key: the key that was
// probably meant, or the section it belongs to, or the keys there are.
func suggestKey(key string, section reflect.Type, path string, root reflect.Type) string {
	names := keysOf(section)
	best, distance := "", 1+len(key)/3
	for _, n := range names {
		if d := editDistance(strings.ToLower(key), n); d <= distance && d < len(n) {
			if best == "" || d < distance {
				best, distance = n, d
			}
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	if at := elsewhere(strings.ToLower(key), root, ""); at != "" && at != path {
		return "did you mean " + at + "?"
	}
	return "known here: " + strings.Join(names, ", ")
}

func keysOf(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// elsewhere finds the path of a key of exactly that name in another section.
func elsewhere(key string, t reflect.Type, prefix string) string {
	for i := range t.NumField() {
		f := t.Field(i)
		name := prefix + f.Tag.Get("yaml")
		if f.Tag.Get("yaml") == key {
			return name
		}
		if f.Type.Kind() == reflect.Struct {
			if at := elsewhere(key, f.Type, name+"."); at != "" {
				return at
			}
		}
	}
	return ""
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours between two keys; keys that are far too long are just far away.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
