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
	request := &resvAsk{r: &reservation, fresh: true}
	if err := d.readReservation(request, create.Set); err != nil {
		return err
	}
	if err := d.settleReservation(request); err != nil {
		return err
	}
	d.res.Message = reservation.Name
	return d.Emit(&event.ReservationPut{Reservation: reservation})
}

// updateReservation changes one. What it does not name stays.
func (d reservationCommands) updateReservation(command UpdateReservation) error {
	old := d.t.Reservation(command.Name)
	if old == nil {
		return spec.Refuse(spec.CodeInvalidReservation, "there is no reservation "+command.Name)
	}
	reservation := *old
	request := &resvAsk{r: &reservation, length: old.End.Sub(old.Start)}
	if err := d.readReservation(request, command.Set); err != nil {
		return err
	}
	if request.startGiven && timeline.ReservationActive(old, d.t.Now) &&
		reservation.Start != old.Start {
		return spec.Refuse(spec.CodeReservationInUse, "it has begun")
	}
	if err := d.settleReservation(request); err != nil {
		return err
	}
	return d.Emit(&event.ReservationPut{Reservation: reservation})
}

// deleteReservation ends one that no job runs in. USER_DELETE lets those
// delete it who may use it.
func (d reservationCommands) deleteReservation(command DeleteReservation) error {
	reservation := d.t.Reservation(command.Name)
	if reservation == nil {
		return spec.Refuse(spec.CodeInvalidReservation, "there is no reservation "+command.Name)
	}
	if a := d.t.Actor; !command.Admin &&
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
func (d reservationCommands) dropReservation(reservation *spec.Reservation, reason string) error {
	name, free := reservation.Name, reservation.Flags.Has(spec.ResvNoHold)
	if err := d.Emit(&event.ReservationRemoved{Name: name, Why: reason}); err != nil || !free {
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
		if job := d.t.Job(spec.JobUID(uid)); job.Alloc != nil && job.Alloc.Reservation == name {
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
func (d reservationCommands) readReservation(request *resvAsk, set []spec.KeyValue) error {
	for _, kv := range set {
		if err := d.readResvKey(request, kv); err != nil {
			return err
		}
	}
	return nil
}

//muster:table one case for each key
func (d reservationCommands) readResvKey(request *resvAsk, kv spec.KeyValue) (err error) {
	reservation, value := request.r, kv.Value
	key, mode := strings.ToLower(kv.Key), byte(0)
	if n := len(key); n > 0 && (key[n-1] == '+' || key[n-1] == '-') {
		key, mode = key[:n-1], key[n-1]
	}
	switch key {
	case "starttime":
		reservation.Start, err = d.parseInstant(value)
		request.startGiven = true
	case "endtime":
		reservation.End, err = d.parseInstant(value)
		request.endGiven = true
	case "duration":
		request.length, err = resvLength(request.length, value, mode)
	case "nodes":
		request.nodes = value
	case "nodecnt", "nodecount":
		err = request.nodeCount(value)
	case "corecnt", "corecount":
		err = request.coreCount(value)
	case "tres":
		err = d.resvTRES(request, value)
	case "trespernode":
		request.perNode = true
		err = d.resvTRES(request, value)
	case "partitionname", "partition":
		if d.t.Parts.Find(value) == nil {
			return spec.Refuse(spec.CodeInvalidPartition, value)
		}
		reservation.Part = value
	case "features":
		reservation.Features = value
	case "users":
		err = d.resvNames(&reservation.Users, value, mode, nil, 0)
	case "accounts":
		err = d.resvNames(&reservation.Accounts, value, mode, func(n string) bool {
			return d.t.Policy.FindAccount(n) != nil
		}, spec.CodeInvalidAccount)
	case "groups":
		err = d.resvNames(&reservation.Groups, value, mode, nil, 0)
	case "qos":
		err = d.resvNames(&reservation.QOS, value, mode, func(n string) bool {
			return d.t.Policy.FindQOS(n) != nil
		}, spec.CodeInvalidQOS)
	case "allowedpartitions", "allowedpartition":
		err = d.resvNames(&reservation.Parts, value, mode, func(n string) bool {
			return d.t.Parts.Find(n) != nil
		}, spec.CodeInvalidPartition)
	case "flags":
		err = resvFlags(reservation, value, mode)
	case "comment":
		reservation.Comment = value
	case "licenses":
		reservation.Licenses, err = d.resvLicences(value)
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
func (d reservationCommands) resvLicences(value string) ([]spec.Count, error) {
	var counts []spec.Count
	for item := range strings.SplitSeq(value, ",") {
		name, number, counted := strings.Cut(item, ":")
		if !counted {
			name, number, counted = strings.Cut(item, "=")
		}
		n := int64(1)
		if counted {
			var err error
			n, err = strconv.ParseInt(number, 10, 32)
			if err != nil {
				return nil, spec.Refuse(spec.CodeInvalidLicense, item)
			}
		}
		if n <= 0 || n > d.t.LicenseTotal(name) || eligible.Amount(counts, name) > 0 {
			return nil, spec.Refuse(spec.CodeInvalidLicense, item)
		}
		counts = append(counts, spec.Count{Name: name, N: n})
	}
	return counts, nil
}

// parseInstant reads now, now+span or nanoseconds since 1970.
func (d reservationCommands) parseInstant(value string) (spec.Instant, error) {
	if rest, ok := strings.CutPrefix(value, "now"); ok {
		if rest == "" {
			return d.t.Now, nil
		}
		if seconds, err := format.ParseDuration(strings.TrimPrefix(rest, "+")); err == nil &&
			rest[0] == '+' &&
			seconds != format.Infinite {
			return d.t.Now.Add(spec.Seconds(seconds)), nil
		}
	} else if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > 0 {
		return spec.Instant(n), nil
	}
	return 0, spec.Refuse(spec.CodeInvalidTime, value)
}

// resvLength reads a duration; a plain number is minutes. += and -= change it.
func resvLength(old spec.Span, value string, mode byte) (spec.Span, error) {
	seconds, err := format.ParseDuration(value)
	if err != nil {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, err.Error())
	}
	n := yearly
	if seconds != format.Infinite {
		n = spec.Seconds(seconds)
	}
	switch mode {
	case '+':
		n += old
	case '-':
		n = old - n
	}
	if n <= 0 || n > maxSpan {
		return 0, spec.Refuse(spec.CodeInvalidTimeLimit, value)
	}
	return n, nil
}

// resvNames sets, adds to or takes from a list of names; -name is an exception.
func (d reservationCommands) resvNames(
	to *[]string,
	value string,
	mode byte,
	known func(string) bool,
	code spec.Code,
) error {
	var names []string
	for _, name := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' }) {
		if mode == 0 && name[0] == '+' {
			mode, name = '+', name[1:]
		}
		if bare := strings.TrimPrefix(name, "-"); known != nil && !known(bare) {
			return spec.Refuse(code, bare+" is not known")
		}
		names = append(names, name)
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
func resvFlags(reservation *spec.Reservation, value string, mode byte) error {
	var given spec.ReservationFlag
	for _, word := range strings.FieldsFunc(strings.ToUpper(value), func(c rune) bool {
		return c == ','
	}) {
		if word[0] == '+' || word[0] == '-' {
			mode, word = word[0], word[1:]
		}
		w, arg, hasArg := strings.Cut(word, "=")
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
			seconds, err := format.ParseDuration(arg)
			if err != nil || seconds == format.Infinite {
				return spec.Refuse(spec.CodeInvalidTime, "PURGE_COMP="+arg)
			}
			reservation.Purge = spec.Seconds(seconds)
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

// settleReservation computes times and nodes, and refuses an impossible reservation.
func (d reservationCommands) settleReservation(request *resvAsk) error {
	if err := d.settleResvTime(request); err != nil {
		return err
	}
	reservation := request.r
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
	return d.settleResvNodes(request)
}

func (d reservationCommands) settleResvTime(request *resvAsk) error {
	reservation := request.r
	switch {
	case reservation.Start == 0:
		reservation.Start = d.t.Now
	case request.fresh && reservation.Start < d.t.Now.Add(-spec.Minute) &&
		!reservation.Flags.Has(spec.ResvForceStart):
		return spec.Refuse(spec.CodeInvalidTime, "it would begin in the past")
	}
	if request.length == 0 {
		request.length = yearly
	}
	if !request.endGiven {
		reservation.End = reservation.Start.Add(request.length)
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
	if reservation.Flags.Has(spec.ResvTimeFloat) && (request.startGiven || request.fresh) {
		reservation.Ahead = reservation.Start.Sub(d.t.Now)
		if reservation.Ahead < 0 {
			reservation.Ahead = 0
		}
	}
	return nil
}

func (d reservationCommands) settleResvNodes(request *resvAsk) error {
	reservation := request.r
	if reservation.Flags.Has(spec.ResvLicenseOnly) {
		if len(reservation.Licenses) == 0 || request.nodes != "" || request.choose ||
			len(reservation.Nodes) > 0 {
			return spec.Refuse(
				spec.CodeInvalidLicense,
				"a reservation with LICENSE_ONLY has Licenses and no nodes",
			)
		}
		return nil
	}
	asked := request.cores != nil || request.cpus > 0 || request.gpus > 0
	if request.nodes == "" && (request.choose || asked) {
		d.settleResvPartition(reservation)
	}
	if asked || reservation.Cores != nil {
		return d.settleResvCores(request)
	}
	switch {
	case request.nodes != "":
		if err := d.namedResvNodes(request); err != nil {
			return err
		}
	case request.choose:
		reservation.Flags &^= spec.ResvSpecNodes | wholeResv
		nodes := d.chooseResvNodes(reservation, int(reservation.Want), nil)
		if nodes == nil {
			return spec.Refuse(spec.CodeNodesBusy, "")
		}
		reservation.Nodes = nodes
	case request.fresh:
		return spec.Refuse(spec.CodeNodeCountInvalid, "the nodes are missing; set Nodes or NodeCnt")
	}
	for _, name := range reservation.Nodes {
		if by := d.resvConflict(reservation, name); by != "" {
			return spec.Refuse(spec.CodeReservationOverlap, name+" is in "+by)
		}
	}
	reservation.TRES = spec.TRES{}
	for _, name := range reservation.Nodes {
		if node := d.t.Node(name); node != nil {
			reservation.TRES = reservation.TRES.Add(node.Spec.NodeTRES())
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
func (d reservationCommands) namedResvNodes(request *resvAsk) error {
	reservation, before := request.r, request.r.Nodes
	if err := d.listResvNodes(request); err != nil {
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
func (d reservationCommands) listResvNodes(request *resvAsk) error {
	reservation := request.r
	var names []string
	reservation.Flags = reservation.Flags&^wholeResv | spec.ResvSpecNodes
	if strings.EqualFold(request.nodes, "ALL") {
		whole := spec.ResvAllNodes
		if reservation.Part != "" {
			whole = spec.ResvPartNodes
		}
		reservation.Flags |= whole
		for id := range len(d.t.NodeIDs) {
			node := d.t.NodeByID(spec.NodeID(id))
			if partition := d.t.Parts.Find(reservation.Part); node != nil && !node.Removed &&
				(partition == nil || partition.Nodes.Has(id)) {
				names = append(names, node.Spec.Name)
			}
		}
	} else {
		list, err := hostlist.Expand(request.nodes)
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
		job := d.t.Job(uid)
		return job.State.Active() && max(job.Deadline(), d.t.Now) > reservation.Start
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
	return slices.ContainsFunc(a, func(window timeline.Window) bool {
		return slices.ContainsFunc(
			b,
			func(w timeline.Window) bool { return window.From < w.To && w.From < window.To },
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
	for _, node := range d.resvNodes(reservation) {
		if len(out) < want && !slices.Contains(out, node.Spec.Name) &&
			!d.busyInto(reservation, node) &&
			d.resvConflict(reservation, node.Spec.Name) == "" {
			out = append(out, node.Spec.Name)
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
		constraint, err := eligible.ParseConstraint(reservation.Features)
		if err != nil || len(constraint.Counts)+len(constraint.OneOf) > 0 {
			return nil
		}
		match = constraint.All
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
	for _, reservation := range slices.Clone(d.t.Reservations) {
		if err := d.tickReservation(reservation); err != nil {
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
		node := d.t.Node(name)
		return node == nil || !node.Usable() ||
			(reservation.Flags.Has(spec.ResvReplace) && len(node.Jobs) > 0)
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
