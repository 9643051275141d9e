package schema

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/cli/tree"
)

// Conform brings a document into the shape of the type: every field of the type,
// in its order, and no other. What the document does not have is unset, 0, empty
// or false, as Slurm writes it. Words of an enumeration that this version of the
// API does not know are left out.
//
// A value of another kind becomes unset too; [Type.Mismatches] finds such values,
// and the tests ask it about every document.
func (t *Type) Conform(value any) any {
	if value == nil {
		return t.zero()
	}
	switch t.Kind {
	case Record:
		return t.conformRecord(value)
	case List:
		return t.conformList(value)
	case Integer:
		return asInteger(value)
	case Decimal:
		return asDecimal(value)
	case Truth:
		on, _ := value.(bool)
		return on
	case Text:
	}
	return asText(value)
}

func (t *Type) conformRecord(v any) any {
	if t.number {
		return asNumber(v)
	}
	object, ok := v.(tree.Object)
	if !ok {
		return t.zero()
	}
	out := make(tree.Object, len(t.Fields))
	// Documents are mostly written in the order of the table, so that the next
	// member is mostly the one that is looked for.
	next := 0
	for i := range t.Fields {
		field := &t.Fields[i]
		at := next
		if at >= len(object) || object[at].Key != field.Name {
			at = slices.IndexFunc(object, func(m tree.Member) bool { return m.Key == field.Name })
		}
		var value any
		if at >= 0 {
			value = object[at].Value
			next = at + 1
		}
		out[i] = tree.Member{Key: field.Name, Value: field.Type.Conform(value)}
	}
	return out
}

func (t *Type) conformList(value any) any {
	switch v := value.(type) {
	case tree.List:
		if t.Elem.Kind == Text && !slices.ContainsFunc(v, func(x any) bool { return !t.Elem.fits(x) }) {
			return v
		}
		out := make(tree.List, 0, len(v))
		for _, x := range v {
			if t.Elem.knows(x) {
				out = append(out, t.Elem.Conform(x))
			}
		}
		return out
	case tree.Seq:
		return tree.Seq(func(yield func(any) bool) {
			v(func(x any) bool { return yield(t.Elem.Conform(x)) })
		})
	}
	return t.zero()
}

// fits tells that a value of a text is in shape already.
func (t *Type) fits(value any) bool {
	_, text := value.(string)
	return text && t.knows(value)
}

// knows tells that a word may be said in this version of the API.
func (t *Type) knows(value any) bool {
	word, ok := value.(string)
	return t.Enum == nil || (ok && slices.Contains(t.Enum, word))
}

func asInteger(value any) any {
	switch v := value.(type) {
	case int, int32, int64, uint32, uint64:
		return v
	case tree.Number:
		return v.N
	}
	return 0
}

func asDecimal(value any) any {
	switch v := value.(type) {
	case float64, int, int32, int64, uint32, uint64:
		return v
	}
	return 0.0
}

func asText(value any) any {
	switch v := value.(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case uint32:
		return strconv.FormatUint(uint64(v), 10)
	}
	return ""
}

func asNumber(value any) any {
	switch v := value.(type) {
	case tree.Number, tree.Object: // of a decimal, it is an object
		return v
	case int:
		return tree.Number{N: int64(v), Set: true}
	case int64:
		return tree.Number{N: v, Set: true}
	case uint32:
		return tree.Number{N: int64(v), Set: true}
	}
	return tree.Number{}
}

// zero is the value of a field that a document does not have.
func (t *Type) zero() any { return t.unset }

// prepareUnset makes the unset values of a type and of all in it. A list is empty, so
// that types which contain themselves come to an end.
func (t *Type) prepareUnset() any {
	switch {
	case t.unset != nil:
		return t.unset
	case t.Kind == Record && !t.number:
		object := make(tree.Object, len(t.Fields))
		for i := range t.Fields {
			object[i] = tree.Member{Key: t.Fields[i].Name, Value: t.Fields[i].Type.prepareUnset()}
		}
		t.unset = object
		return object
	}
	switch t.Kind {
	case Text:
		t.unset = ""
	case Integer:
		t.unset = 0
	case Decimal:
		t.unset = 0.0
	case Truth:
		t.unset = false
	case List:
		t.unset = tree.List{}
		t.Elem.prepareUnset()
	case Record:
		t.unset = tree.Number{}
	}
	return t.unset
}

// Mismatches lists what Conform would lose of a document: members that the type
// does not have, values of another kind, and words that are not in their
// enumeration. Each is named with its path.
func (t *Type) Mismatches(value any) []string { return t.mismatches(nil, "#", value) }

func (t *Type) mismatches(found []string, path string, value any) []string {
	if value == nil {
		return found
	}
	wrong := func() []string {
		return append(found, fmt.Sprintf("%s: %T is not a %s", path, value, t.typeWord()))
	}
	switch t.Kind {
	case Record:
		if t.number {
			switch value.(type) {
			case tree.Number, tree.Object, int, int64, uint32:
				return found
			}
			return wrong()
		}
		object, ok := value.(tree.Object)
		if !ok {
			return wrong()
		}
		for _, member := range object {
			field := t.Field(member.Key)
			if field == nil {
				found = append(found, path+"/"+member.Key+": no such field of "+t.typeWord())
				continue
			}
			found = field.Type.mismatches(found, path+"/"+member.Key, member.Value)
		}
		return found
	case List:
		each := func(x any) bool {
			if !t.Elem.knows(x) {
				found = append(found, fmt.Sprintf("%s: %v is not in the enumeration", path, x))
			} else {
				found = t.Elem.mismatches(found, path+"/[]", x)
			}
			return true
		}
		switch v := value.(type) {
		case tree.List:
			for _, x := range v {
				each(x)
			}
		case tree.Seq:
			v(each)
		default:
			return wrong()
		}
		return found
	case Truth:
		if _, ok := value.(bool); !ok {
			return wrong()
		}
	case Text:
		if _, ok := value.(string); !ok {
			return wrong()
		}
	case Integer:
		if value != asInteger(value) {
			return wrong()
		}
	case Decimal:
		if value != asDecimal(value) {
			return wrong()
		}
	}
	return found
}

// typeWord is what the type is called in messages.
func (t *Type) typeWord() string {
	switch t.Kind {
	case Text:
		return "string"
	case Integer:
		return "integer"
	case Decimal:
		return "number"
	case Truth:
		return "boolean"
	case List:
		return "list"
	case Record:
	}
	if t.number {
		return "number or {set, infinite, number}"
	}
	if t.Name != "" {
		return t.Name
	}
	return "object"
}
