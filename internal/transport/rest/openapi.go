package rest

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// object is a JSON object; encoding/json writes its keys in order.
type object = map[string]any

// OpenAPI describes what the gateway serves, as OpenAPI 3.1. The same services
// give the same bytes.
func (g *Gateway) OpenAPI() []byte {
	schemas := object{"Error": errorSchema()}
	paths := object{}
	for _, path := range g.paths() {
		m := g.methods[path]
		addSchema(schemas, m.desc.Input())
		addSchema(schemas, m.desc.Output())
		kind := "application/json"
		if m.stream != nil {
			kind = "application/x-ndjson"
		}
		content := func(kind string, of protoreflect.MessageDescriptor) object {
			return object{kind: object{"schema": ref(of)}}
		}
		operation := func() object {
			return object{
				"tags": []string{
					string(m.desc.Parent().Name()),
				}, "operationId": string(m.desc.Parent().Name()) +
					"." + string(m.desc.Name()),
				"responses": object{
					"200": object{
						"description": "the answer",
						"content":     content(kind, m.desc.Output()),
					},
					"default": object{"description": "an error", "content": object{
						"application/json": object{
							"schema": object{"$ref": "#/components/schemas/Error"},
						}}},
				},
			}
		}
		post := operation()
		post["requestBody"] = object{"content": content("application/json", m.desc.Input())}
		item := object{"post": post}
		if m.safe {
			get := operation()
			get["operationId"] = get["operationId"].(string) + ".get"
			get["parameters"] = parameters(m.desc.Input(), "", nil)
			item["get"] = get
		}
		paths[path] = item
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "Muster",
			"version":     g.cfg.Version,
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "The services of a Muster controller as JSON. Times are nanoseconds since 1970, spans nanoseconds, sizes bytes unless a field says otherwise.",
		},
		"paths": paths,
		"components": object{"schemas": schemas, "securitySchemes": object{
			"token": object{
				"type":         "http",
				"scheme":       "bearer",
				"bearerFormat": "JWT",
				"description":  "made by scontrol token",
			},
			"slurmToken": object{"type": "apiKey", "in": "header", "name": "X-SLURM-USER-TOKEN"},
			"certificate": object{
				"type":        "mutualTLS",
				"description": "an administrator's certificate",
			},
		}},
		"security": []object{
			{"token": []string{}},
			{"slurmToken": []string{}},
			{"certificate": []string{}},
		},
	}
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		panic("BUG: rest: " + err.Error()) // maps of texts always encode
	}
	return append(text, '\n')
}

func (g *Gateway) paths() []string {
	out := make([]string, 0, len(g.methods))
	for p := range g.methods {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func ref(m protoreflect.MessageDescriptor) object {
	return object{"$ref": "#/components/schemas/" + schemaName(m)}
}

// schemaName is the message's name without the package, Outer.Inner for inner
// ones.
func schemaName(m protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(m.FullName()), string(m.ParentFile().Package())+".")
}

func errorSchema() object {
	text := object{"type": "string"}
	return object{
		"type": "object",
		"properties": object{
			"error": object{
				"type":     "object",
				"required": []string{"code", "message"},
				"properties": object{
					"code": text, "number": object{"type": "integer"}, "message": text, "slurm": text,
					"details": object{"type": "object", "additionalProperties": text},
				},
			},
		},
	}
}

// addSchema adds a message and all that it holds.
func addSchema(schemas object, m protoreflect.MessageDescriptor) {
	name := schemaName(m)
	if _, there := schemas[name]; there {
		return
	}
	properties := object{}
	schemas[name] = object{"type": "object", "properties": properties}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		var s object
		switch {
		case f.IsMap():
			s = object{"type": "object", "additionalProperties": fieldSchema(schemas, f.MapValue())}
		case f.IsList():
			s = object{"type": "array", "items": fieldSchema(schemas, f)}
		default:
			s = fieldSchema(schemas, f)
		}
		properties[string(f.Name())] = s
	}
}

// fieldSchema is the type of one value, as protobuf's JSON mapping writes it.
func fieldSchema(schemas object, f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		addSchema(schemas, f.Message())
		return ref(f.Message())
	case protoreflect.EnumKind:
		var names []string
		for i := range f.Enum().Values().Len() {
			names = append(names, string(f.Enum().Values().Get(i).Name()))
		}
		return object{"type": "string", "enum": names}
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return object{"type": "string", "format": "int64"}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{"type": "string", "format": "uint64"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return object{"type": "number"}
	case protoreflect.Int32Kind,
		protoreflect.Sint32Kind,
		protoreflect.Sfixed32Kind,
		protoreflect.Uint32Kind,
		protoreflect.Fixed32Kind:
		return object{"type": "integer"}
	case protoreflect.StringKind:
	}
	return object{"type": "string"}
}

// parameters are the fields that fit into a query.
func parameters(
	m protoreflect.MessageDescriptor,
	prefix string,
	above []protoreflect.FullName,
) []object {
	out := []object{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := prefix + string(f.Name())
		switch {
		case f.IsMap() || (f.IsList() && f.Kind() == protoreflect.MessageKind):
		case f.Kind() == protoreflect.MessageKind:
			if !slices.Contains(above, f.Message().FullName()) {
				out = append(out, parameters(f.Message(), name+".", append(above, m.FullName()))...)
			}
		case f.IsList():
			out = append(
				out,
				object{
					"name":   name,
					"in":     "query",
					"schema": object{"type": "array", "items": fieldSchema(nil, f)},
				},
			)
		default:
			out = append(out, object{"name": name, "in": "query", "schema": fieldSchema(nil, f)})
		}
	}
	return out
}
