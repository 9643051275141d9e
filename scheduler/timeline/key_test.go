package timeline

import (
	"reflect"
	"testing"

	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// notOfNode names the fields of a demand that do not change what a given number of
// its tasks need of one node, each with the reason.
var notOfNode = map[string]string{
	"MinNodes":     "how many nodes, not what each gives",
	"MaxNodes":     "how many nodes, not what each gives",
	"Stretch":      "how many nodes, not what each gives",
	"Grow":         "it has raised the number of nodes before anybody looks for them",
	"Tasks":        "the tasks of one node are part of the key",
	"TasksPerNode": "the tasks of one node are part of the key",
	"SocketGPUs":   "which of a node's GPUs are taken, not how many",
	"Cores":        "the same for the whole cluster",
	"Memory":       "the same for the whole cluster",
	"Emptiest":     "the same for the whole cluster",
	"Limit":        "each question has its own",
	"Bill":         "of what was allocated",
	"Share":        "follows from the class of the tenant, a partition with one number of sharers",
}

// TestKeyLooksAtEveryField fails for a field of a demand that is neither part of the
// key of an index nor named in notOfNode: demands that differ in it would share an
// index, and one of them would get the nodes that suit the other.
func TestKeyLooksAtEveryField(t *testing.T) {
	line := &Timeline{apart: true}
	line.shapes.Caps = []place.Cap{{}}
	typ := reflect.TypeFor[place.Demand]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		var changed place.Demand
		v := reflect.ValueOf(&changed).Elem().Field(i)
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.String:
			v.SetString("x")
		case reflect.Int64:
			v.SetInt(7)
		case reflect.Uint8:
			v.SetUint(1)
		case reflect.Slice:
			v.Set(reflect.ValueOf([]spec.Count{{Name: "gpu", N: 1}}))
		case reflect.Struct:
			v.Set(reflect.ValueOf(place.Tenant{Apart: 1}))
		default:
			t.Fatalf("%s: the test cannot change a %s: teach it", name, v.Kind())
		}
		why, ignored := notOfNode[name]
		same := line.keyOf(&place.Demand{}, 1) == line.keyOf(&changed, 1)
		if same && !ignored {
			t.Errorf("%s: the key does not hold it: add it, or say in notOfNode why not", name)
		}
		if !same && ignored {
			t.Errorf("%s: the key holds it, and notOfNode says %q", name, why)
		}
	}
	for name := range notOfNode {
		if _, ok := typ.FieldByName(name); !ok {
			t.Errorf("notOfNode names %s, which no demand has", name)
		}
	}
}
