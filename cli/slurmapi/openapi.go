package slurmapi

import (
	"net/http"
	"strings"

	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Description serves what the API looks like, OpenAPI 3, made from the table. It
// holds nothing of the cluster, so that anybody may have it.
type Description struct {
	API *API
}

// Refuse answers as the API itself does.
func (d Description) Refuse(
	writer http.ResponseWriter, r *http.Request, code int, e *rpcstatus.Error,
) {
	d.API.Refuse(writer, r, code, e)
}

// ServeHTTP implements http.Handler.
func (d Description) ServeHTTP(writer http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writer.Header().Set("Allow", http.MethodGet)
		http.Error(writer, "use GET", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/openapi", "/openapi/v3", "/openapi.json":
	default:
		http.Error(writer, "the description is at /openapi/v3", http.StatusNotFound)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	if err := tree.WriteJSON(writer, d.API.OpenAPI(), true); err != nil {
		d.API.host.Log.Debug("the description could not be sent", "error", err)
	}
}

// schemaPrefix begins the names of a version's schemas.
func schemaPrefix(version schema.Version) string { return version.String() + "_" }

// OpenAPI describes the paths that are answered, in all versions.
func (a *API) OpenAPI() tree.Object {
	var paths, schemas tree.Object
	for _, version := range schema.Versions() {
		contract := schema.Of(version)
		for _, name := range contract.Names() {
			schemas = append(
				schemas,
				tree.Member{
					Key:   schemaPrefix(version) + name,
					Value: describeBody(version, contract.Type(name)),
				},
			)
		}
		byPath := map[string]int{}
		for i := range contract.Paths {
			path := &contract.Paths[i]
			at := a.routes[path.Method+" "+path.Plain]
			if at.refused != "" {
				continue
			}
			place, there := byPath[path.Path]
			if !there {
				place = len(paths)
				byPath[path.Path] = place
				paths = append(paths, tree.Member{Key: path.Path, Value: tree.Object{}})
			}
			operations, _ := paths[place].Value.(tree.Object)
			paths[place].Value = append(
				operations,
				tree.Member{
					Key:   strings.ToLower(path.Method),
					Value: describePath(version, path, at),
				},
			)
		}
	}
	return tree.Object{
		{Key: "openapi", Value: "3.0.3"},
		{
			Key: "info",
			Value: tree.Object{
				{Key: "title", Value: "Muster: Slurm's REST API"},
				{Key: "version", Value: a.host.Version},
			},
		},
		{Key: "paths", Value: paths},
		{
			Key: "components",
			Value: tree.Object{
				{Key: "schemas", Value: schemas},
				{Key: "securitySchemes", Value: tree.Object{
					{
						Key: "user",
						Value: tree.Object{
							{Key: "type", Value: "apiKey"},
							{Key: "in", Value: "header"},
							{Key: "name", Value: "X-SLURM-USER-NAME"},
						},
					},
					{
						Key: "token",
						Value: tree.Object{
							{Key: "type", Value: "apiKey"},
							{Key: "in", Value: "header"},
							{Key: "name", Value: "X-SLURM-USER-TOKEN"},
						},
					},
					{
						Key: "bearerAuth",
						Value: tree.Object{
							{Key: "type", Value: "http"},
							{Key: "scheme", Value: "bearer"},
							{Key: "bearerFormat", Value: "JWT"},
						},
					},
				}},
			},
		},
		{Key: "security", Value: tree.List{
			tree.Object{
				{Key: "user", Value: tree.List{}},
				{Key: "token", Value: tree.List{}},
			}, tree.Object{{Key: "token", Value: tree.List{}}}, tree.Object{{Key: "bearerAuth", Value: tree.List{}}}}},
	}
}

// operationID names an operation for clients that are generated: slurm_v0044_get_jobs.
func operationID(version schema.Version, path *schema.Path) string {
	words := strings.FieldsFunc(
		strings.TrimPrefix(path.Plain, "/"+path.Tag+"/*"),
		func(r rune) bool { return strings.ContainsRune("/{}", r) },
	)
	return path.Tag + "_" + strings.ReplaceAll(version.String(), ".", "") + "_" +
		strings.ToLower(path.Method) + "_" + strings.Join(words, "_")
}

func describePath(version schema.Version, path *schema.Path, at route) tree.Object {
	object := tree.Object{
		{Key: "operationId", Value: operationID(version, path)},
		{Key: "tags", Value: tree.List{path.Tag}},
	}
	if at.note != "" {
		object = append(object, tree.Member{Key: "description", Value: at.note})
	}
	params := tree.List{}
	for _, one := range path.Params {
		place := "query"
		kind := tree.Object{{Key: "type", Value: "string"}}
		if one.InPath {
			place = "path"
		}
		if one.Enum != nil { // words may be joined by commas
			kind = tree.Object{
				{Key: "type", Value: "array"},
				{
					Key: "items",
					Value: tree.Object{
						{Key: "type", Value: "string"},
						{Key: "enum", Value: tree.Strings(one.Enum)},
					},
				},
			}
		}
		param := tree.Object{
			{Key: "name", Value: one.Name},
			{Key: "in", Value: place},
			{Key: "required", Value: one.InPath || one.Required},
		}
		if one.Enum != nil {
			param = append(
				param,
				tree.Member{Key: "style", Value: "form"},
				tree.Member{Key: "explode", Value: false},
			)
		}
		params = append(params, append(param, tree.Member{Key: "schema", Value: kind}))
	}
	object = append(object, tree.Member{Key: "parameters", Value: params})
	body := func(t *schema.Type) tree.Object {
		return tree.Object{
			{
				Key:   "application/json",
				Value: tree.Object{{Key: "schema", Value: typeReference(version, t)}},
			},
		}
	}
	if path.Request != nil {
		object = append(
			object,
			tree.Member{
				Key: "requestBody",
				Value: tree.Object{
					{Key: "required", Value: true},
					{Key: "content", Value: body(path.Request)},
				},
			},
		)
	}
	return append(object, tree.Member{Key: "responses", Value: tree.Object{
		{
			Key: "200",
			Value: tree.Object{
				{Key: "description", Value: "the answer"},
				{Key: "content", Value: body(path.Answer)},
			},
		},
		{
			Key: "default",
			Value: tree.Object{
				{Key: "description", Value: "an error, in errors"},
				{Key: "content", Value: body(path.Answer)},
			},
		},
	}})
}

// typeReference is a type where it is used.
func typeReference(version schema.Version, t *schema.Type) tree.Object {
	if t.Name == "" {
		return describeBody(version, t)
	}
	return tree.Object{{Key: "$ref", Value: "#/components/schemas/" + schemaPrefix(version) +
		t.Name}}
}

// describeBody is a type where it is defined.
func describeBody(version schema.Version, t *schema.Type) tree.Object {
	switch t.Kind {
	case schema.Text:
		object := tree.Object{{Key: "type", Value: "string"}}
		if t.Enum != nil {
			object = append(object, tree.Member{Key: "enum", Value: tree.Strings(t.Enum)})
		}
		return object
	case schema.Truth:
		return tree.Object{{Key: "type", Value: "boolean"}}
	case schema.Integer:
		// Some of what Slurm calls int32 is unsigned, so that the format of all is
		// the one in which they fit.
		return tree.Object{{Key: "type", Value: "integer"}, {Key: "format", Value: "int64"}}
	case schema.Decimal:
		return tree.Object{{Key: "type", Value: "number"}, {Key: "format", Value: "double"}}
	case schema.List:
		return tree.Object{
			{Key: "type", Value: "array"},
			{Key: "items", Value: typeReference(version, t.Elem)},
		}
	case schema.Record:
	}
	var fields tree.Object
	required := tree.List{}
	for _, field := range t.Fields {
		fields = append(
			fields,
			tree.Member{Key: field.Name, Value: typeReference(version, field.Type)},
		)
		if field.Required {
			required = append(required, field.Name)
		}
	}
	out := tree.Object{{Key: "type", Value: "object"}, {Key: "properties", Value: fields}}
	if len(required) > 0 {
		out = append(out, tree.Member{Key: "required", Value: required})
	}
	return out
}
