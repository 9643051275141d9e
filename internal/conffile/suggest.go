package conffile

import (
	"reflect"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// suggestKey gives the end of a message about an unknown key: the key that was
// probably meant, or the section it belongs to, or the keys there are.
func suggestKey(key string, section reflect.Type, path string, root reflect.Type) string {
	names := keysOf(section)
	// Sections have few keys, so that a guess may be further away than elsewhere.
	best := spec.NearestWithin(key, names, 1+len(key)/3)
	if best != "" {
		return "did you mean " + best + "?"
	}
	if at := elsewhere(strings.ToLower(key), root, ""); at != "" && at != path {
		return "did you mean " + at + "?"
	}
	return "known here: " + strings.Join(names, ", ")
}

func keysOf(typ reflect.Type) []string {
	var out []string
	for i := range typ.NumField() {
		if name := typ.Field(i).Tag.Get("yaml"); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// elsewhere finds the path of a key of exactly that name in another section.
func elsewhere(key string, typ reflect.Type, prefix string) string {
	for i := range typ.NumField() {
		f := typ.Field(i)
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
