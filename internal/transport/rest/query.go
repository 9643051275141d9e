package rest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// fromQuery fills a message from query parameters: field names as in the
// .proto file, of inner messages with dots (filter.users=ada), repeated
// parameters for repeated fields. Everything wrong is said at once.
func fromQuery(query url.Values, into proto.Message) error {
	root := map[string]any{}
	var wrong []string
	for name := range query {
		if err := put(root, into.ProtoReflect().Descriptor(), strings.Split(name, "."), query[name]); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return rpcstatus.New(rpcstatus.InvalidArgument, "the query: %s", strings.Join(wrong, "; "))
	}
	text, err := json.Marshal(root)
	if err != nil {
		return rpcstatus.New(rpcstatus.InvalidArgument, "the query: %v", err)
	}
	if err := protojson.Unmarshal(text, into); err != nil {
		return rpcstatus.New(
			rpcstatus.InvalidArgument,
			"the query is not a %s: %v",
			into.ProtoReflect().Descriptor().Name(),
			err,
		)
	}
	return nil
}

// put places one parameter in the JSON form of a message.
func put(at map[string]any, desc protoreflect.MessageDescriptor, path, values []string) error {
	f := desc.Fields().ByName(protoreflect.Name(path[0]))
	switch {
	case f == nil:
		return fmt.Errorf("%s has no field %q", desc.Name(), path[0])
	case f.IsMap() || (f.IsList() && f.Kind() == protoreflect.MessageKind):
		return fmt.Errorf("%q does not fit into a query: use POST", path[0])
	case f.Kind() == protoreflect.MessageKind:
		if len(path) == 1 {
			return fmt.Errorf("%q is a message: name a field of it, %s.…", path[0], path[0])
		}
		inner, ok := at[path[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[path[0]] = inner
		}
		return put(inner, f.Message(), path[1:], values)
	case len(path) > 1:
		return fmt.Errorf("%q has no fields", path[0])
	case !f.IsList() && len(values) > 1:
		return fmt.Errorf("given %d times", len(values))
	}
	list := make([]any, len(values))
	for i, v := range values {
		x, err := scalar(f, v)
		if err != nil {
			return err
		}
		list[i] = x
	}
	if f.IsList() {
		at[path[0]] = list
	} else {
		at[path[0]] = list[0]
	}
	return nil
}

// scalar writes a parameter as protobuf's JSON reads it; numbers may be
// strings there.
func scalar(f protoreflect.FieldDescriptor, value string) (any, error) {
	if f.Kind() != protoreflect.BoolKind {
		return value, nil
	}
	switch value {
	case "", "1", "true", "yes":
		return true, nil
	case "0", "false", "no":
		return false, nil
	}
	return nil, fmt.Errorf("%q is neither true nor false", value)
}
