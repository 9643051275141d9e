// Package schema is the contract of Slurm's REST API as a table: the paths, and
// the fields of every document with their types, for the three versions that are
// served (v0.0.43 to v0.0.45).
//
// Everything that speaks of these documents reads the same table. Documents of
// commands (squeue --json) and answers of the API are brought into its shape by
// [Type.Conform], requests are read by [Type.Read], and OpenAPI describes it.
//
// The table is two files. In fields.tsv a line @NAME begins a schema, with the
// versions that have it where not all do; each line
// below it is a field: its name with ! where it is required, its type, and the
// versions that have it where not all do. A field [] means that the schema is a
// list, not an object; a field with + is Muster's own, beside Slurm's. In paths.tsv a line is a
// method, a path with * for the version, the schemas of request and answer, the parameters, and
// the versions.
package schema

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/musterhpc/muster/spec"
)

//go:embed fields.tsv
var fieldTable string

//go:embed paths.tsv
var pathTable string

// Version is a version of the API: 44 is v0.0.44.
type Version uint8

// Versions are those that are served, the oldest first.
func Versions() []Version { return []Version{43, 44, 45} }

// Default is the version of documents for which no version was asked.
const Default Version = 44

// String returns the version as paths have it: v0.0.44.
func (v Version) String() string { return "v0.0." + strconv.Itoa(int(v)) }

// ParseVersion reads the argument of --json: v0.0.44, data_parser/v0.0.44, with
// Slurm's flags behind a plus sign, or nothing.
func ParseVersion(text string) (Version, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "data_parser/"), "+")
	switch name {
	case "":
		return Default, nil
	case "latest":
		return Versions()[len(Versions())-1], nil
	}
	for _, v := range Versions() {
		if v.String() == name {
			return v, nil
		}
	}
	return 0, fmt.Errorf(
		"data parser %q is not available: expected v0.0.43, v0.0.44 or v0.0.45",
		text,
	)
}

// Kind is what a value is.
type Kind uint8

// The kinds.
const (
	Text Kind = iota
	Integer
	Decimal
	Truth
	List
	Record
)

// Type is the type of a value.
type Type struct {
	Kind Kind
	// Name is the schema's name, empty of a type that is written in place.
	Name   string
	Format string   // of an integer or decimal: int32, int64, double
	Enum   []string // what a text may be; nil = anything
	Elem   *Type    // of a list
	Fields []Field  // of a record
	places map[string]int
	// number: the record is {set, infinite, number}.
	number bool
	unset  any // the value of a field that is not given
}

// Field is a field of a record.
type Field struct {
	Name     string
	Required bool
	Own      bool // Muster's, not Slurm's
	Type     *Type
}

// Field finds a field by its name, or returns nil.
func (t *Type) Field(name string) *Field {
	if i, ok := t.places[name]; ok {
		return &t.Fields[i]
	}
	return nil
}

// suggest names the field that was probably meant by a name that is none; empty = nothing
// is near.
func (t *Type) suggest(name string) string {
	names := make([]string, len(t.Fields))
	for i := range t.Fields {
		names[i] = t.Fields[i].Name
	}
	if near := spec.Nearest(name, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// IsNumber tells that the record is a number that may be unset or infinite.
func (t *Type) IsNumber() bool { return t.number }

// Contract is one version of the API.
type Contract struct {
	Version Version
	types   map[string]*Type
	names   []string
	Paths   []Path
}

// Path is one method of one path.
type Path struct {
	Method string
	Path   string // with the version in it: /slurm/v0.0.44/job/{job_id}
	Plain  string // with * for the version
	Tag    string // slurm, slurmdb or util
	// Request and Answer are the schemas of the bodies; Request is nil without one.
	Request *Type
	Answer  *Type
	Params  []Param
}

// Param is a parameter of the path or of the query.
type Param struct {
	Name     string
	InPath   bool
	Required bool
	Enum     []string
}

// Param finds a parameter of the query by its name, or returns nil.
func (p *Path) Param(name string) *Param {
	for i := range p.Params {
		if p.Params[i].Name == name && !p.Params[i].InPath {
			return &p.Params[i]
		}
	}
	return nil
}

// contracts are read from the table when they are first asked for: most commands
// never need one.
var contracts = map[Version]func() *Contract{
	43: sync.OnceValue(func() *Contract { return readContract(43) }),
	44: sync.OnceValue(func() *Contract { return readContract(44) }),
	45: sync.OnceValue(func() *Contract { return readContract(45) }),
}

// Of returns the contract of a version that Versions lists.
func Of(version Version) *Contract { return contracts[version]() }

// Type finds a schema by its name, or returns nil.
func (c *Contract) Type(name string) *Type { return c.types[name] }

// Names are the names of all schemas, in order.
func (c *Contract) Names() []string { return c.names }

// readContract reads the rows of one version.
func readContract(version Version) *Contract {
	contract := &Contract{Version: version, types: map[string]*Type{}}
	var at *Type
	for line := range strings.Lines(fieldTable) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "@"); ok {
			name, versions, some := strings.Cut(name, "\t")
			at = nil
			if !some || hasVersion(versions, version) {
				at = contract.named(name)
			}
			continue
		}
		cells := strings.Split(line, "\t")
		if at == nil || (len(cells) > 2 && !hasVersion(cells[2], version)) {
			continue
		}
		parser := &typeParser{contract: contract, text: cells[1]}
		if cells[0] == "[]" {
			list := parser.read()
			at.Kind = List
			at.Elem = list.Elem
			continue
		}
		name, own := strings.CutPrefix(cells[0], "+")
		name, required := strings.CutSuffix(name, "!")
		at.add(Field{Name: name, Required: required, Own: own, Type: parser.read()})
	}
	for name, t := range contract.types {
		if t.Kind == Record && len(t.Fields) == 0 {
			delete(contract.types, name) // no field of it belongs to this version
			continue
		}
		t.number = strings.HasSuffix(name, "_no_val_struct")
		contract.names = append(contract.names, name)
	}
	for _, t := range contract.types {
		t.prepareUnset()
	}
	slices.Sort(contract.names)
	for line := range strings.Lines(pathTable) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) > 5 && !hasVersion(cells[5], version) {
			continue
		}
		contract.Paths = append(contract.Paths, contract.path(cells))
	}
	return contract
}

func hasVersion(list string, version Version) bool {
	return slices.Contains(strings.Split(list, ","), strconv.Itoa(int(version)))
}

// named returns the schema of a name, which may not have been read yet.
func (c *Contract) named(name string) *Type {
	t := c.types[name]
	if t == nil {
		t = &Type{Kind: Record, Name: name}
		c.types[name] = t
	}
	return t
}

func (t *Type) add(field Field) {
	if t.places == nil {
		t.places = map[string]int{}
	}
	t.places[field.Name] = len(t.Fields)
	t.Fields = append(t.Fields, field)
}

// path reads a row of the table of paths.
func (c *Contract) path(cells []string) Path {
	path := Path{
		Method: cells[0],
		Plain:  cells[1],
		Path:   strings.Replace(cells[1], "*", c.Version.String(), 1),
	}
	path.Tag, _, _ = strings.Cut(strings.TrimPrefix(path.Plain, "/"), "/")
	path.Request = c.types[strings.TrimPrefix(cells[2], "@")]
	path.Answer = c.types[strings.TrimPrefix(cells[3], "@")]
	if cells[4] == "" {
		return path
	}
	for _, text := range strings.Split(cells[4], "; ") {
		open := strings.LastIndexByte(text, '(')
		name, rest := text[:open], text[open+1:]
		place, kind, _ := strings.Cut(rest, ") ")
		param := Param{Name: name, InPath: place[0] == 'p', Required: strings.HasSuffix(place, "!")}
		if list, ok := strings.CutPrefix(kind, "enum:"); ok {
			param.Enum = strings.Split(list, ",")
		}
		path.Params = append(path.Params, param)
	}
	return path
}

// typeParser reads a type as the table writes it.
type typeParser struct {
	contract *Contract
	text     string
}

// take cuts what stands before one of the stop characters.
func (p *typeParser) take(stops string) string {
	end := strings.IndexAny(p.text, stops)
	if end < 0 {
		end = len(p.text)
	}
	word := p.text[:end]
	p.text = p.text[end:]
	return word
}

func (p *typeParser) skip(mark string) bool {
	rest, ok := strings.CutPrefix(p.text, mark)
	if ok {
		p.text = rest
	}
	return ok
}

// read reads one type. In place, an enumeration ends with the bracket around it.
func (p *typeParser) read() *Type {
	switch {
	case p.skip("@"):
		return p.contract.named(p.take(",}>"))
	case p.skip("array<>"):
		return &Type{Kind: List, Elem: &Type{Kind: Text}}
	case p.skip("array<"):
		t := &Type{Kind: List, Elem: p.read()}
		p.skip(">")
		return t
	case p.skip("enum:"):
		return &Type{Kind: Text, Enum: strings.Split(p.take(">}"), ",")}
	case p.skip("object{"):
		t := &Type{Kind: Record}
		for !p.skip("}") {
			name := p.take(":")
			p.skip(":")
			t.add(Field{Name: name, Type: p.read()})
			p.skip(",")
		}
		return t
	}
	name, format, _ := strings.Cut(p.take(",}>"), "/")
	switch name {
	case "integer":
		return &Type{Kind: Integer, Format: format}
	case "number":
		return &Type{Kind: Decimal, Format: format}
	case "boolean":
		return &Type{Kind: Truth}
	}
	return &Type{Kind: Text}
}
