package gpuseries

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhpc/muster/accounting/tally"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// TestFiguresAreAll: every list of figures in the message has one row, in the order of the message
// and of the columns of the store, and the row leads to that list.
func TestFiguresAreAll(t *testing.T) {
	var lists []protoreflect.FieldDescriptor
	fields := (&apiv1.GpuSeries{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.IsList() && field.Kind() == protoreflect.Sint64Kind { // not the times, which are int64
			lists = append(lists, field)
		}
	}
	columns := tally.SampleColumns()
	if len(lists) != len(figures) || len(columns) != len(figures) {
		t.Fatalf("%d lists, %d figures, %d columns", len(lists), len(figures), len(columns))
	}
	for i, figure := range Figures() {
		series := &apiv1.GpuSeries{}
		*figure.List(series) = []int64{7}
		if series.ProtoReflect().Get(lists[i]).List().Len() != 1 {
			t.Errorf("row %d (%s) does not lead to the list %s", i, figure.Column, lists[i].Name())
		}
		if figure.Column != columns[i].Name {
			t.Errorf("row %d is the column %s, in the store it is %s", i, figure.Column, columns[i].Name)
		}
	}
}

// TestFiguresAreRead: each figure but the number of processes is a field that devices have, and no
// two figures are read from the same one.
func TestFiguresAreRead(t *testing.T) {
	known := map[device.Field]bool{}
	for _, info := range device.Fields() {
		known[info.Field] = true
	}
	for _, figure := range Figures() {
		if figure.Column == "processes" {
			continue
		}
		if !known[figure.Field] || figure.Scale < 1 {
			t.Errorf("%s is read from field %d, scaled by %d", figure.Column, figure.Field, figure.Scale)
		}
		known[figure.Field] = false
	}
}
