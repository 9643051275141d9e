package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// reservationCommands creates, changes and deletes reservations, and chooses what
// they hold.
type reservationCommands struct{ *decision }

// yearly is how long a reservation lasts that says neither an end nor a duration.
const yearly = 365 * spec.Day

// createReservation makes a reservation from scontrol's keys and values.
func (d reservationCommands) createReservation(create CreateReservation) error {
	reservation := spec.Reservation{Name: create.Name}
	if reservation.Name == "" {
		reservation.Name = d.freeName(create.Set)
	}
	if strings.ContainsAny(reservation.Name, ", \t\n=") {
		return spec.Refuse(
			spec.CodeInvalidReservation,
			fmt.Sprintf("%q is not a valid reservation name", reservation.Name),
		)
	}
	if d.t.Reservation(reservation.Name) != nil {
		return spec.Refuse(
			spec.CodeReservationExists,
			"there is a reservation "+reservation.Name+" already",
		)
	}
	ask := &resvAsk{r: &reservation, fresh: true}
	if err := d.readReservation(ask, create.Set); err != nil {
		return err
	}
	if err := d.settleReservation(ask); err != nil {
		return err
	}
	d.res.Message = reservation.Name
	return d.Emit(&event.ReservationPut{Reservation: reservation})
}

// updateReservation changes one. What it does not name stays.
func (d reservationCommands) updateReservation(c UpdateReservation) error {
	old := d.t.Reservation(c.Name)
	if old == nil {
		return spec.Refuse(spec.CodeInvalidReservation, "there is no reservation "+c.Name)
	}
	reservation := *old
	ask := &resvAsk{r: &reservation, length: old.End.Sub(old.Start)}
	if err := d.readReservation(ask, c.Set); err != nil {
		return err
	}
	if ask.startGiven && timeline.ReservationActive(old, d.t.Now) &&
		reservation.Start != old.Start {
		return spec.Refuse(spec.CodeReservationInUse, "it has begun")
	}
	if err := d.settleReservation(ask); err != nil {
		return err
	}
	return d.Emit(&event.ReservationPut{Reservation: reservation})
}

// deleteReservation ends one that no job runs in. USER_DELETE lets those
// delete it who may use it.
func (d reservationCommands) deleteReservation(c DeleteReservation) error {
	reservation := d.t.Reservation(c.Name)
	if reservation == nil {
		return spec.Refuse(spec.CodeInvalidReservation, "there is no reservation "+c.Name)
	}
	if a := d.t.Actor; !c.Admin &&
		(!reservation.Flags.Has(spec.ResvUserDelete) || !slices.Contains(reservation.Users, a.Name)) {
		return spec.Refuse(spec.CodeAccessDenied, "")
	}
	if running, _ := d.resvJobs(reservation.Name); running > 0 {
		return spec.Refuse(spec.CodeReservationInUse, format.Plural(running, "job runs in it", "jobs run in it"))
	}
	return d.dropReservation(reservation, "")
}

// dropReservation ends a reservation. The jobs that wait for it go on waiting,
// or with NO_HOLD_JOBS_AFTER_END run without it.
func (d reservationCommands) dropReservation(reservation *spec.Reservation, why string) error {
	name, free := reservation.Name, reservation.Flags.Has(spec.ResvNoHold)
	if err := d.Emit(&event.ReservationRemoved{Name: name, Why: why}); err != nil || !free {
		return err
	}
	var waiting []spec.JobUID
	d.t.Waiting.Range(func(uid uint64, _ struct{}) bool {
		if d.t.Job(spec.JobUID(uid)).Spec.Place.Reservation == name {
			waiting = append(waiting, spec.JobUID(uid))
		}
		return true
	})
	for _, uid := range waiting {
		job := d.t.Job(uid)
		jobSpec := *job.Spec
		jobSpec.Place.Reservation = ""
		jobSpec.Queue.Hold = job.Hold
		jobSpec.Time.Begin = job.Begin
		if err := d.Emit(&event.JobUpdated{UID: uid, Spec: &jobSpec, Req: job.Req, Assoc: job.Assoc, Changed: []string{"Reservation"}}); err != nil {
			return err
		}
	}
	return nil
}

// resvJobs counts the jobs that run in a reservation, and those that ask for it.
func (d reservationCommands) resvJobs(name string) (running, waiting int) {
	d.t.Active.Range(func(uid uint64, _ struct{}) bool {
		if j := d.t.Job(spec.JobUID(uid)); j.Alloc != nil && j.Alloc.Reservation == name {
			running++
		}
		return true
	})
	d.t.Waiting.Range(func(uid uint64, _ struct{}) bool {
		if slices.Contains(
			strings.Split(d.t.Job(spec.JobUID(uid)).Spec.Place.Reservation, ","),
			name,
		) {
			waiting++
		}
		return true
	})
	return running, waiting
}

// freeName makes a name as Slurm does: the first user or account and a number.
func (d reservationCommands) freeName(set []spec.KeyValue) string {
	who := "resv"
	for _, kv := range set {
		if k := strings.ToLower(kv.Key); (k == "users" || k == "accounts") && kv.Value != "" {
			who, _, _ = strings.Cut(kv.Value, ",")
			break
		}
	}
	for n := 1; ; n++ {
		if name := who + "_" + strconv.Itoa(n); d.t.Reservation(name) == nil {
			return name
		}
	}
}

// resvAsk is a reservation being read.
type resvAsk struct {
	r          *spec.Reservation
	fresh      bool
	length     spec.Span // Duration, or how long it was
	nodes      string    // Nodes=, perhaps ALL
	startGiven bool
	endGiven   bool
	choose     bool     // nodes have to be chosen
	cores      []uint32 // CoreCnt: all together, or of each of Nodes
	cpus       int64    // TRES=cpu: the same in CPUs
	gpus       int64    // TRES=gres/gpu: how many GPUs, all together
	gpuType    string
	perNode    bool // TRESPerNode: cpus and gpus are of each node
}

// readReservation applies keys and values.
func (d reservationCommands) readReservation(ask *resvAsk, set []spec.KeyValue) error {
	for _, kv := range set {
		if err := d.readResvKey(ask, kv); err != nil {
			return err
		}
	}
	return nil
}

//muster:table one case for each key
func (d reservationCommands) readResvKey(ask *resvAsk, kv spec.KeyValue) (err error) {
	reservation, v := ask.r, kv.Value
	key, mode := strings.ToLower(kv.Key), byte(0)
	if n := len(key); n > 0 && (key[n-1] == '+' || key[n-1] == '-') {
		key, mode = key[:n-1], key[n-1]
	}
	switch key {
	case "starttime":
		reservation.Start, err = d.parseInstant(v)
		ask.startGiven = true
	case "endtime":
		reservation.End, err = d.parseInstant(v)
		ask.endGiven = true
	case "duration":
		ask.length, err = resvLength(ask.length, v, mode)
	case "nodes":
		ask.nodes = v
	case "nodecnt", "nodecount":
		err = ask.nodeCount(v)
	case "corecnt", "corecount":
		err = ask.coreCount(v)
	case "tres":
		err = d.resvTRES(ask, v)
	case "trespernode":
		ask.perNode = true
		err = d.resvTRES(ask, v)
	case "partitionname", "partition":
		if d.t.Parts.Find(v) == nil {
			return spec.Refuse(spec.CodeInvalidPartition, v)
		}
		reservation.Part = v
	case "features":
		reservation.Features = v
	case "users":
		err = d.resvNames(&reservation.Users, v, mode, nil, 0)
	case "accounts":
		err = d.resvNames(&reservation.Accounts, v, mode, func(n string) bool { return d.t.Policy.FindAccount(n) != nil }, spec.CodeInvalidAccount)
	case "groups":
		err = d.resvNames(&reservation.Groups, v, mode, nil, 0)
	case "qos":
		err = d.resvNames(&reservation.QOS, v, mode, func(n string) bool { return d.t.Policy.FindQOS(n) != nil }, spec.CodeInvalidQOS)
	case "allowedpartitions", "allowedpartition":
		err = d.resvNames(&reservation.Parts, v, mode, func(n string) bool { return d.t.Parts.Find(n) != nil }, spec.CodeInvalidPartition)
	case "flags":
		err = resvFlags(reservation, v, mode)
	case "comment":
		reservation.Comment = v
	case "licenses":
		reservation.Licenses, err = d.resvLicences(v)
	case "burstbuffer", "maxstartdelay", "watts", "skip":
		return spec.Refuse(spec.CodeDisabled, kv.Key+" of a reservation is not implemented in this release: nodes, cores, GPUs and licences are reserved")
	default:
		return spec.RefuseUnknown(spec.Unknown{
			Kind:    "option",
			Word:    kv.Key,
			Of:      "a reservation",
			Nearest: spec.Nearest(kv.Key, reservationKeys()),
		})
	}
	return err
}

// resvLicences reads the licences of a reservation: a:2,b.
func (d reservationCommands) resvLicences(v string) ([]spec.Count, error) {
	var out []spec.Count
	for item := range strings.SplitSeq(v, ",") {
		name, num, counted := strings.Cut(item, ":")
		if !counted {
			name, num, counted = strings.Cut(item, "=")
		}
		n := int64(1)
		if counted {
			var err error
			n, err = strconv.ParseInt(num, 10, 32)
			if err != nil {
				return nil, spec.Refuse(spec.CodeInvalidLicense, item)
			}
		}
		if n <= 0 || n > d.t.LicenseTotal(name) || eligible.Amount(out, name) > 0 {
			return nil, spec.Refuse(spec.CodeInvalidLicense, item)
		}
		out = append(out, spec.Count{Name: name, N: n})
	}
	return out, nil
}

// parseInstant reads now, now+span or nanoseconds since 1970.
func (d reservationCommands) parseInstant(v string) (spec.Instant, error) {
	if rest, ok := strings.CutPrefix(v, "now"); ok {
		if rest == "" {
			return d.t.Now, nil
		}
		if sec, err := format.ParseDuration(strings.TrimPrefix(rest, "+")); err == nil &&
			rest[0] == '+' &&
			sec != format.Infinite {
			return d.t.Now.Add(spec.Seconds(sec)), nil
		}
	} else if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 {
		return spec.Instant(n), nil
	}
	return 0, spec.Refuse(spec.CodeInvalidTime, v)
}

// resvLength reads a duration; a plain number is minutes. += and -= change it.
func resvLength(old spec.Span, v string, mode byte) (spec.Span, error) {
	sec, err := format.ParseDuration(v)
	if err != nil {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, err.Error())
	}
	n := yearly
	if sec != format.Infinite {
		n = spec.Seconds(sec)
	}
	switch mode {
	case '+':
		n += old
	case '-':
		n = old - n
	}
	if n <= 0 || n > maxSpan {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, v)
	}
	return n, nil
}

// resvNames sets, adds to or takes from a list of names; -name is an exception.
func (d reservationCommands) resvNames(
	to *[]string,
	v string,
	mode byte,
	known func(string) bool,
	code spec.Code,
) error {
	var names []string
	for _, n := range strings.FieldsFunc(v, func(c rune) bool { return c == ',' }) {
		if mode == 0 && n[0] == '+' {
			mode, n = '+', n[1:]
		}
		if bare := strings.TrimPrefix(n, "-"); known != nil && !known(bare) {
			return spec.Refuse(code, bare+" is not known")
		}
		names = append(names, n)
	}
	switch out := slices.Clone(*to); mode {
	case '+':
		for _, n := range names {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
		*to = out
	case '-':
		*to = slices.DeleteFunc(out, func(n string) bool { return slices.Contains(names, n) })
	default:
		*to = names
	}
	return nil
}

// resvFlags sets, adds or takes flags away.
func resvFlags(reservation *spec.Reservation, v string, mode byte) error {
	var given spec.ReservationFlag
	for _, w := range strings.FieldsFunc(strings.ToUpper(v), func(c rune) bool { return c == ',' }) {
		if w[0] == '+' || w[0] == '-' {
			mode, w = w[0], w[1:]
		}
		w, arg, hasArg := strings.Cut(w, "=")
		if w == "NO_HOLD_JOBS_AFTER" {
			w = "NO_HOLD_JOBS_AFTER_END"
		}
		i := slices.IndexFunc(spec.ReservationFlags(), func(e struct {
			Flag spec.ReservationFlag
			Name string
		}) bool {
			return e.Name == w
		})
		switch {
		case i < 0 || (hasArg && w != "PURGE_COMP"):
			return spec.Refuse(spec.CodeBadRequest, "unknown flag "+w+" of a reservation")
		case hasArg:
			sec, err := format.ParseDuration(arg)
			if err != nil || sec == format.Infinite {
				return spec.Refuse(spec.CodeInvalidTime, "PURGE_COMP="+arg)
			}
			reservation.Purge = spec.Seconds(sec)
		}
		given |= spec.ReservationFlags()[i].Flag
	}
	kept := reservation.Flags & (spec.ResvSpecNodes | wholeResv)
	switch mode {
	case '+':
		reservation.Flags |= given
	case '-':
		reservation.Flags &^= given
	default:
		reservation.Flags = given | kept
	}
	return nil
}

// settleReservation works out times and nodes and refuses what cannot be.
func (d reservationCommands) settleReservation(ask *resvAsk) error {
	if err := d.settleResvTime(ask); err != nil {
		return err
	}
	reservation := ask.r
	if len(reservation.Users)+len(reservation.Accounts)+len(reservation.Groups)+len(reservation.QOS)+len(reservation.Parts) == 0 {
		return spec.Refuse(spec.CodeReservationEmpty, "")
	}
	repeats := 0
	for _, f := range [...]spec.ReservationFlag{spec.ResvHourly, spec.ResvDaily, spec.ResvWeekday, spec.ResvWeekend, spec.ResvWeekly, spec.ResvTimeFloat} {
		if reservation.Flags.Has(f) {
			repeats++
		}
	}
	if repeats > 1 {
		return spec.Refuse(spec.CodeBadRequest, "a reservation repeats in one way, and one with TIME_FLOAT in none")
	}
	if reservation.Repeats() && reservation.Next(reservation.Start) < reservation.End {
		return spec.Refuse(spec.CodeInvalidTimeLimit, "it would last longer than until it comes again")
	}
	if reservation.Flags.Has(spec.ResvPurgeComp) && reservation.Purge == 0 {
		reservation.Purge = 5 * spec.Minute
	}
	return d.settleResvNodes(ask)
}

func (d reservationCommands) settleResvTime(ask *resvAsk) error {
	reservation := ask.r
	switch {
	case reservation.Start == 0:
		reservation.Start = d.t.Now
	case ask.fresh && reservation.Start < d.t.Now.Add(-spec.Minute) && !reservation.Flags.Has(spec.ResvForceStart):
		return spec.Refuse(spec.CodeInvalidTime, "it would begin in the past")
	}
	if ask.length == 0 {
		ask.length = yearly
	}
	if !ask.endGiven {
		reservation.End = reservation.Start.Add(ask.length)
	}
	for reservation.Flags.Has(spec.ResvForceStart) && reservation.Repeats() && reservation.Start < reservation.End && reservation.End <= d.t.Now {
		reservation.Start, reservation.End = reservation.Next(
			reservation.Start,
		), reservation.Next(reservation.Start).
			Add(reservation.End.Sub(reservation.Start))
		// the one that would be now
	}
	if reservation.End <= reservation.Start || reservation.End <= d.t.Now {
		return spec.Refuse(spec.CodeInvalidTime, "it would end before it begins, or in the past")
	}
	if reservation.Flags.Has(spec.ResvTimeFloat) && (ask.startGiven || ask.fresh) {
		reservation.Ahead = reservation.Start.Sub(d.t.Now)
		if reservation.Ahead < 0 {
			reservation.Ahead = 0
		}
	}
	return nil
}

func (d reservationCommands) settleResvNodes(ask *resvAsk) error {
	reservation := ask.r
	if reservation.Flags.Has(spec.ResvLicenseOnly) {
		if len(reservation.Licenses) == 0 || ask.nodes != "" || ask.choose ||
			len(reservation.Nodes) > 0 {
			return spec.Refuse(
				spec.CodeInvalidLicense,
				"a reservation with LICENSE_ONLY has Licenses and no nodes",
			)
		}
		return nil
	}
	asked := ask.cores != nil || ask.cpus > 0 || ask.gpus > 0
	if ask.nodes == "" && (ask.choose || asked) {
		d.settleResvPartition(reservation)
	}
	if asked || reservation.Cores != nil {
		return d.settleResvCores(ask)
	}
	switch {
	case ask.nodes != "":
		if err := d.namedResvNodes(ask); err != nil {
			return err
		}
	case ask.choose:
		reservation.Flags &^= spec.ResvSpecNodes | wholeResv
		nodes := d.chooseResvNodes(reservation, int(reservation.Want), nil)
		if nodes == nil {
			return spec.Refuse(spec.CodeNodesBusy, "")
		}
		reservation.Nodes = nodes
	case ask.fresh:
		return spec.Refuse(spec.CodeNodeCountInvalid, "the nodes are missing; set Nodes or NodeCnt")
	}
	for _, name := range reservation.Nodes {
		if by := d.resvConflict(reservation, name); by != "" {
			return spec.Refuse(spec.CodeReservationOverlap, name+" is in "+by)
		}
	}
	reservation.TRES = spec.TRES{}
	for _, name := range reservation.Nodes {
		if n := d.t.Node(name); n != nil {
			reservation.TRES = reservation.TRES.Add(n.Spec.NodeTRES())
		}
	}
	return nil
}

// settleResvPartition gives a reservation whose nodes are chosen here the default partition,
// because that is where they are chosen from.
func (d reservationCommands) settleResvPartition(reservation *spec.Reservation) {
	if reservation.Part != "" {
		return
	}
	if part := d.t.Parts.Default(); part != nil {
		reservation.Part = part.Spec.Name
	}
}

// namedResvNodes takes the nodes that were named; ALL are those of the
// partition that was named, or of the cluster. Their jobs must end before,
// unless they are to be ignored.
func (d reservationCommands) namedResvNodes(ask *resvAsk) error {
	reservation, before := ask.r, ask.r.Nodes
	if err := d.listResvNodes(ask); err != nil {
		return err
	}
	for _, name := range reservation.Nodes {
		if !slices.Contains(before, name) && d.busyInto(reservation, d.t.Node(name)) {
			return spec.Refuse(spec.CodeNodesBusy, name+
				": jobs run there into the reservation; add the flag IGNORE_JOBS, or begin later")
		}
	}
	return nil
}

// wholeResv are the flags of a reservation of Nodes=ALL: of the cluster, or of its partition.
const wholeResv = spec.ResvAllNodes | spec.ResvPartNodes

// listResvNodes sets the nodes of a reservation to those that were named.
func (d reservationCommands) listResvNodes(ask *resvAsk) error {
	reservation := ask.r
	var names []string
	reservation.Flags = reservation.Flags&^wholeResv | spec.ResvSpecNodes
	if strings.EqualFold(ask.nodes, "ALL") {
		whole := spec.ResvAllNodes
		if reservation.Part != "" {
			whole = spec.ResvPartNodes
		}
		reservation.Flags |= whole
		for id := range len(d.t.NodeIDs) {
			n := d.t.NodeByID(spec.NodeID(id))
			if p := d.t.Parts.Find(reservation.Part); n != nil && !n.Removed &&
				(p == nil || p.Nodes.Has(id)) {
				names = append(names, n.Spec.Name)
			}
		}
	} else {
		list, err := hostlist.Expand(ask.nodes)
		if err != nil {
			return spec.Refuse(spec.CodeInvalidNodeName, err.Error())
		}
		for _, name := range list {
			if n := d.t.Node(name); n == nil || n.Removed {
				return spec.Refuse(spec.CodeInvalidNodeName, "there is no node "+name)
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	reservation.Nodes, reservation.Want = names, 0
	return nil
}

// busyInto tells whether a job on a node may run into a reservation.
func (d reservationCommands) busyInto(reservation *spec.Reservation, node *state.Node) bool {
	if reservation.Flags.Has(spec.ResvIgnoreJobs) {
		return false
	}
	return slices.ContainsFunc(node.Jobs, func(uid spec.JobUID) bool {
		j := d.t.Job(uid)
		return j.State.Active() && max(j.Deadline(), d.t.Now) > reservation.Start
	})
}

// resvShare are the flags of reservations that may have what others have too.
const resvShare = spec.ResvMaint | spec.ResvOverlap

// resvConflict names a reservation that has a node at the same time. MAINT
// and OVERLAP may share.
func (d reservationCommands) resvConflict(reservation *spec.Reservation, node string) string {
	if reservation.Flags&resvShare != 0 {
		return ""
	}
	mine := timeline.Windows(reservation, d.t.Now)
	for i := range d.t.Reservations {
		o := &d.t.Reservations[i]
		if o.Name != reservation.Name && o.Flags&resvShare == 0 && slices.Contains(o.Nodes, node) &&
			windowsMeet(mine, timeline.Windows(o, d.t.Now)) {
			return o.Name
		}
	}
	return ""
}

// windowsMeet tells whether two lists of windows have an instant in common.
func windowsMeet(a, b []timeline.Window) bool {
	return slices.ContainsFunc(a, func(m timeline.Window) bool {
		return slices.ContainsFunc(
			b,
			func(w timeline.Window) bool { return m.From < w.To && w.From < m.To },
		)
	})
}

// chooseResvNodes picks nodes in service that no job and no other reservation
// holds in that time: those of the lowest weight, idle ones first. keep are
// nodes it has already; nil if there are not enough.
func (d reservationCommands) chooseResvNodes(
	reservation *spec.Reservation,
	want int,
	keep []string,
) []string {
	out := slices.Clone(keep)
	for _, n := range d.resvNodes(reservation) {
		if len(out) < want && !slices.Contains(out, n.Spec.Name) && !d.busyInto(reservation, n) &&
			d.resvConflict(reservation, n.Spec.Name) == "" {
			out = append(out, n.Spec.Name)
		}
	}
	if len(out) < want {
		return nil
	}
	slices.SortFunc(out, func(a, b string) int { return int(d.t.NodeIDs[a]) - int(d.t.NodeIDs[b]) })
	return out
}

// resvNodes are the nodes in service that a reservation may be given: those of
// its partition with its features, the lowest weight and the idle ones first.
func (d reservationCommands) resvNodes(reservation *spec.Reservation) []*state.Node {
	match := eligible.MatchAny
	if reservation.Features != "" {
		m, err := eligible.ParseConstraint(reservation.Features)
		if err != nil || len(m.Counts)+len(m.OneOf) > 0 {
			return nil
		}
		match = m.All
	}
	part := d.t.Parts.Find(reservation.Part)
	switch {
	case part == nil && reservation.Part == "":
		part = d.t.Parts.Default()
	case part == nil:
		return nil // it is in the configuration no more
	}
	var list []*state.Node
	d.t.Nodes.Range(func(id uint64, node *state.Node) bool {
		if node.Usable() && (part == nil || part.Nodes.Has(int(id))) && match(node.Spec.Features) {
			list = append(list, node)
		}
		return true
	})
	slices.SortStableFunc(list, func(a, b *state.Node) int {
		if a.Spec.Weight != b.Spec.Weight {
			return int(int64(a.Spec.Weight) - int64(b.Spec.Weight))
		}
		return min(len(a.Jobs), 1) - min(len(b.Jobs), 1)
	})
	return list
}

// tickReservations lets reservations end, come again, be purged when nobody
// uses them, and replace nodes.
func (d reservationCommands) tickReservations() error {
	for _, r := range slices.Clone(d.t.Reservations) {
		if err := d.tickReservation(r); err != nil {
			return err
		}
	}
	return nil
}

func (d reservationCommands) tickReservation(reservation spec.Reservation) error {
	float := reservation.Flags.Has(spec.ResvTimeFloat)
	if !float && reservation.End <= d.t.Now {
		if !reservation.Repeats() {
			return d.dropReservation(&reservation, "its time is over")
		}
		length := reservation.End.Sub(reservation.Start)
		for reservation.Start.Add(length) <= d.t.Now {
			reservation.Start = reservation.Next(reservation.Start)
		}
		reservation.End, reservation.IdleFrom = reservation.Start.Add(length), 0
		return d.Emit(&event.ReservationPut{Reservation: reservation})
	}
	if reservation.Flags.Has(spec.ResvPurgeComp) && reservation.Start <= d.t.Now && !float {
		if gone, err := d.purgeReservation(&reservation); gone || err != nil {
			return err
		}
	}
	if reservation.Flags&(spec.ResvReplace|spec.ResvReplaceDown) == 0 {
		return nil
	}
	if reservation.Cores != nil {
		return d.replaceCores(&reservation)
	}
	keep := slices.DeleteFunc(slices.Clone(reservation.Nodes), func(name string) bool {
		n := d.t.Node(name)
		return n == nil || !n.Usable() ||
			(reservation.Flags.Has(spec.ResvReplace) && len(n.Jobs) > 0)
	})
	if len(keep) == len(reservation.Nodes) {
		return nil
	}
	nodes := d.chooseResvNodes(&reservation, len(reservation.Nodes), keep)
	if nodes == nil || slices.Equal(nodes, reservation.Nodes) {
		return nil
	}
	reservation.Nodes = nodes
	return d.Emit(&event.ReservationPut{Reservation: reservation})
}

// purgeReservation notes since when nobody uses a reservation, and ends it
// when that is long enough ago.
func (d reservationCommands) purgeReservation(
	reservation *spec.Reservation,
) (gone bool, err error) {
	running, waiting := d.resvJobs(reservation.Name)
	switch idle := running+waiting == 0; {
	case idle && reservation.IdleFrom == 0:
		reservation.IdleFrom = d.t.Now
	case !idle && reservation.IdleFrom != 0:
		reservation.IdleFrom = 0
	case idle && d.t.Now.Sub(reservation.IdleFrom) >= reservation.Purge:
		return true, d.dropReservation(reservation, "it was not used")
	default:
		return false, nil
	}
	return false, d.Emit(&event.ReservationPut{Reservation: *reservation})
}

// reservationKeys are the keys of scontrol create and update reservation.
func reservationKeys() []string {
	return []string{
		"Accounts",
		"AllowedPartitions",
		"Comment",
		"CoreCnt",
		"Duration",
		"EndTime",
		"Features",
		"Flags",
		"Groups",
		"Licenses",
		"NodeCnt",
		"Nodes",
		"PartitionName",
		"QOS",
		"StartTime",
		"TRES",
		"TRESPerNode",
		"Users",
	}
}
