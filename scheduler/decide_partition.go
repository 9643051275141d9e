package scheduler

import (
	"reflect"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// updatePartition changes a partition but for its nodes. Jobs that run go on;
// those that wait meet the new limits at the next pass.
func (d *decision) updatePartition(c UpdatePartition) error {
	p := d.t.Parts.Find(c.New.Name)
	if p == nil {
		return spec.Refuse(spec.CodeInvalidPartition, c.New.Name)
	}
	now, next := p.Spec.WithoutNodes(), c.New.WithoutNodes()
	if !reflect.DeepEqual(now, c.Old.WithoutNodes()) {
		return spec.Refuse(spec.CodeBadRequest, "partition "+c.New.Name+" was changed at the same time: look at it and try again")
	}
	if reflect.DeepEqual(now, next) {
		return nil // as it is already
	}
	return d.emit(&event.PartitionPut{Partition: next})
}
