package spec

import (
	"slices"
	"strings"
)

// Reservation keeps nodes for some users for some time.
type Reservation struct {
	Name     string          `cbor:"1,keyasint"`
	Start    Instant         `cbor:"2,keyasint"` // of this occurrence
	End      Instant         `cbor:"3,keyasint"`
	Nodes    []string        `cbor:"4,keyasint,omitempty"` // in order
	Want     uint32          `cbor:"5,keyasint,omitempty"` // nodes asked for by number: what REPLACE keeps up
	Part     string          `cbor:"6,keyasint,omitempty"` // partition that they were chosen from
	Features string          `cbor:"7,keyasint,omitempty"` // that they were chosen by
	Users    []string        `cbor:"8,keyasint,omitempty"` // who may use it; -name may not
	Accounts []string        `cbor:"9,keyasint,omitempty"` // the same, with the accounts below them
	Groups   []string        `cbor:"10,keyasint,omitempty"`
	QOS      []string        `cbor:"11,keyasint,omitempty"`
	Parts    []string        `cbor:"12,keyasint,omitempty"` // AllowedPartitions
	Flags    ReservationFlag `cbor:"13,keyasint,omitempty"`
	Purge    Span            `cbor:"14,keyasint,omitempty"` // PURGE_COMP: idle this long
	IdleFrom Instant         `cbor:"15,keyasint,omitempty"` // PURGE_COMP: nobody uses it since; 0 = somebody does
	Ahead    Span            `cbor:"16,keyasint,omitempty"` // TIME_FLOAT: it begins this long after now, always
	Comment  string          `cbor:"17,keyasint,omitempty"`
	TRES     TRES            `cbor:"18,keyasint"` // what its nodes have
	Licenses []Count         `cbor:"60,keyasint,omitempty"`
	// Cores are how many cores of each of its Nodes it keeps, in their order; the
	// rest of the node is everybody's. Nil: it keeps whole nodes.
	Cores []uint32 `cbor:"61,keyasint,omitempty"`
	// GPUs are how many GPUs of each of its Nodes it keeps besides, in their order;
	// nil: none. Only where it has Cores.
	GPUs []uint32 `cbor:"62,keyasint,omitempty"`
}

// ReservationFlag is a set of flags.
type ReservationFlag uint32

// The flags; the values are stored.
const (
	ResvMaint ReservationFlag = 1 << iota
	ResvOverlap
	ResvIgnoreJobs
	ResvFlex
	ResvMagnetic
	ResvHourly
	ResvDaily
	ResvWeekday
	ResvWeekend
	ResvWeekly
	ResvPurgeComp
	ResvReplace
	ResvReplaceDown
	ResvTimeFloat
	ResvAnyNodes
	ResvStaticAlloc
	ResvNoHold
	ResvUserDelete
	ResvSpecNodes
	ResvAllNodes
	ResvPartNodes
	ResvLicenseOnly
	ResvForceStart // it may be said to have begun in the past
)

// ResvOpen are the flags of a reservation whose jobs may take more than it has,
// or have it without asking.
const ResvOpen = ResvFlex | ResvMagnetic | ResvAnyNodes

// ReservationFlags lists the flags with Slurm's names, in the order in which
// they are shown.
func ReservationFlags() []struct {
	Flag ReservationFlag
	Name string
} {
	return []struct {
		Flag ReservationFlag
		Name string
	}{
		{
			ResvMaint,
			"MAINT",
		}, {ResvFlex, "FLEX"}, {ResvOverlap, "OVERLAP"}, {ResvIgnoreJobs, "IGNORE_JOBS"}, {ResvHourly, "HOURLY"},
		{
			ResvDaily,
			"DAILY",
		}, {ResvWeekday, "WEEKDAY"}, {ResvWeekend, "WEEKEND"}, {ResvWeekly, "WEEKLY"}, {ResvSpecNodes, "SPEC_NODES"},
		{
			ResvAllNodes,
			"ALL_NODES",
		}, {ResvAnyNodes, "ANY_NODES"}, {ResvStaticAlloc, "STATIC_ALLOC"}, {ResvPartNodes, "PART_NODES"},
		{
			ResvTimeFloat,
			"TIME_FLOAT",
		}, {ResvReplace, "REPLACE"}, {ResvReplaceDown, "REPLACE_DOWN"}, {ResvPurgeComp, "PURGE_COMP"},
		{
			ResvNoHold,
			"NO_HOLD_JOBS_AFTER_END",
		}, {ResvMagnetic, "MAGNETIC"}, {ResvUserDelete, "USER_DELETE"}, {ResvLicenseOnly, "LICENSE_ONLY"},
		{ResvForceStart, "FORCE_START"},
	}
}

// Has tells whether all of some flags are set.
func (f ReservationFlag) Has(g ReservationFlag) bool { return f&g == g }

// String writes flags as Slurm does: MAINT,SPEC_NODES.
func (f ReservationFlag) String() string {
	var out []string
	for _, e := range ReservationFlags() {
		if f.Has(e.Flag) {
			out = append(out, e.Name)
		}
	}
	return strings.Join(out, ",")
}

// CoresOf is how many cores of a node it keeps where it keeps no whole nodes.
func (r *Reservation) CoresOf(node string) int64 {
	if i := slices.Index(r.Nodes, node); i >= 0 && i < len(r.Cores) {
		return int64(r.Cores[i])
	}
	return 0
}

// GPUsOf is how many GPUs of a node it keeps where it keeps no whole nodes.
func (r *Reservation) GPUsOf(node string) int64 {
	if i := slices.Index(r.Nodes, node); i >= 0 && i < len(r.GPUs) {
		return int64(r.GPUs[i])
	}
	return 0
}

// Heeds tells whether a reservation, and the jobs in it, leave another one what
// that keeps: maintenance heeds none, and one that may overlap others only
// maintenance.
func (r *Reservation) Heeds(o *Reservation) bool {
	return !r.Flags.Has(ResvMaint) && (!r.Flags.Has(ResvOverlap) || o.Flags.Has(ResvMaint))
}

// Repeats tells a reservation that comes again.
func (r *Reservation) Repeats() bool {
	return r.Flags&(ResvHourly|ResvDaily|ResvWeekday|ResvWeekend|ResvWeekly) != 0
}

// Next is the beginning of the occurrence after the one that begins at an
// instant; FarFuture if there is none. Days are of 24 hours; weekdays are
// those of UTC.
func (r *Reservation) Next(start Instant) Instant {
	switch {
	case r.Flags.Has(ResvHourly):
		return start.Add(Hour)
	case r.Flags.Has(ResvDaily):
		return start.Add(Day)
	case r.Flags.Has(ResvWeekly):
		return start.Add(7 * Day)
	case r.Flags&(ResvWeekday|ResvWeekend) != 0:
		for next := start.Add(Day); ; next = next.Add(Day) {
			weekend := weekday(next) == 0 || weekday(next) == 6
			if weekend == r.Flags.Has(ResvWeekend) {
				return next
			}
		}
	}
	return FarFuture
}

// weekday is the day of the week in UTC, Sunday being 0.
func weekday(t Instant) int64 {
	days := int64(t) / int64(Day)
	if int64(t)%int64(Day) < 0 {
		days--
	}
	return ((days+4)%7 + 7) % 7
}

// Admits tells whether a list of names with exceptions admits one: some of
// the names that stand for it (an account and those above it) are listed, or
// nothing but exceptions that do not name it.
func Admits(list []string, names ...string) bool {
	open := true
	for _, e := range list {
		if no, denied := strings.CutPrefix(e, "-"); denied {
			if slices.Contains(names, no) {
				return false
			}
			continue
		}
		if slices.Contains(names, e) {
			return true
		}
		open = false
	}
	return open
}
