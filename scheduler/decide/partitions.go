package decide

import (
	"reflect"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// partitionCommands creates, changes and deletes partitions.
type partitionCommands struct{ *decision }

// updatePartition changes a partition. Jobs that run go on, also on nodes that it
// loses; those that wait meet what is new at the next pass.
func (d partitionCommands) updatePartition(command UpdatePartition) error {
	partition := d.t.Parts.Find(command.New.Name)
	if partition == nil {
		return spec.Refuse(spec.CodeInvalidPartition, command.New.Name)
	}
	now := *partition.Spec
	old := command.Old
	next := command.New
	if !command.Nodes {
		now, old, next = now.WithoutNodes(), old.WithoutNodes(), next.WithoutNodes()
	}
	if !reflect.DeepEqual(now, old) {
		return spec.Refuse(spec.CodeBadRequest, "partition "+command.New.Name+
			" was changed at the same time: look at it and try again")
	}
	if reflect.DeepEqual(now, next) {
		return nil // as it is already
	}
	if err := d.checkQOS(&now, &next); err != nil {
		return err
	}
	if err := d.oneDefault(&next); err != nil {
		return err
	}
	return d.Emit(&event.PartitionPut{Partition: next, Nodes: command.Nodes})
}

// checkQOS refuses names of QOS that do not exist, but for those that the partition had
// before: a QOS may have been deleted since.
func (d partitionCommands) checkQOS(old, next *spec.PartitionSpec) error {
	had := slices.Concat(old.AllowQOS, old.DenyQOS, []string{old.QOS, ""})
	for _, name := range slices.Concat(next.AllowQOS, next.DenyQOS, []string{next.QOS}) {
		if !slices.Contains(had, name) && d.t.Policy.FindQOS(name) == nil {
			return spec.Refuse(spec.CodeInvalidQOS, name)
		}
	}
	return nil
}

// oneDefault takes Default from the partition that has it, if another gets it.
func (d partitionCommands) oneDefault(next *spec.PartitionSpec) error {
	old := d.t.Parts.Default()
	if old == nil || !next.Default || !old.Spec.Default || old.Spec.Name == next.Name {
		return nil
	}
	was := old.Spec.WithoutNodes()
	was.Default = false
	return d.Emit(&event.PartitionPut{Partition: was})
}

// createPartition adds a partition.
func (d partitionCommands) createPartition(create CreatePartition) error {
	if d.t.Parts.Find(create.New.Name) != nil {
		return spec.Refuse(spec.CodeInvalidPartition, create.New.Name+" exists already")
	}
	if err := d.checkQOS(&spec.PartitionSpec{}, &create.New); err != nil {
		return err
	}
	if err := d.oneDefault(&create.New); err != nil {
		return err
	}
	return d.Emit(&event.PartitionAdded{Partition: create.New})
}

// deletePartition takes a partition away that was added while the cluster ran and
// that no job is in and no reservation names.
func (d partitionCommands) deletePartition(command DeletePartition) error {
	partition := d.t.Parts.Find(command.Name)
	switch {
	case partition == nil:
		return spec.Refuse(spec.CodeInvalidPartition, command.Name)
	case !partition.Spec.Dynamic:
		return spec.Refuse(spec.CodeInvalidPartition, command.Name+
			" is defined in slurm.conf; remove it there and run scontrol reconfigure")
	}
	jobs := 0
	d.t.Active.Range(func(uid uint64, _ struct{}) bool {
		allocation := d.t.Job(spec.JobUID(uid)).Alloc
		if allocation != nil && allocation.Partition == command.Name {
			jobs++
		}
		return true
	})
	d.t.Waiting.Range(func(uid uint64, _ struct{}) bool {
		if slices.Contains(d.t.Job(spec.JobUID(uid)).Spec.Partitions, command.Name) {
			jobs++
		}
		return true
	})
	if jobs > 0 {
		return spec.Refuse(
			spec.CodePartitionInUse,
			format.Plural(jobs, "job waits for it or runs in it", "jobs wait for it or run in it"),
		)
	}
	for i := range d.t.Reservations {
		if reservation := &d.t.Reservations[i]; reservation.Part == command.Name ||
			slices.Contains(reservation.Parts, command.Name) {
			return spec.Refuse(spec.CodePartitionInUse, "reservation "+reservation.Name+" names it")
		}
	}
	return d.Emit(&event.PartitionGone{Name: command.Name})
}
