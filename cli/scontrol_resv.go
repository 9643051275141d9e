package cli

import (
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// createReservation is scontrol create reservation, nodename= or partitionname=.
func (c *call) createReservation(args []string) error {
	if len(args) == 0 {
		return fail(1, "too few arguments for keyword:create")
	}
	what, _, named := strings.Cut(strings.ToLower(args[0]), "=")
	switch {
	case begins("reservationname", what):
		if !named {
			args = args[1:]
		}
	case named && begins("nodename", what):
		return c.createNodes(args)
	case named && begins("partitionname", what):
		return c.changePartition(&apiv1.PartitionChange{Create: true}, args)
	default:
		return fail(1, "Invalid creation entity: "+args[0])
	}
	return c.changeReservation(apiv1.ReservationChange_CREATE, args)
}

// begins tells whether a word is the beginning of a key, three letters at least.
func begins(key, word string) bool { return len(word) >= 3 && strings.HasPrefix(key, word) }

// deleteReservation is scontrol delete reservation=NAME, or reservation NAME, nodename=
// or partitionname=.
func (c *call) deleteReservation(args []string) error {
	if len(args) == 0 {
		return fail(1, "too few arguments for keyword:delete")
	}
	what, name, named := strings.Cut(args[0], "=")
	if !named && len(args) > 1 {
		_, name, named = strings.Cut(args[1], "=")
		if !named {
			name = args[1]
		}
	}
	if named && begins("nodename", strings.ToLower(what)) {
		return c.deleteNodes(name)
	}
	if named && begins("partitionname", strings.ToLower(what)) {
		return c.changePartition(&apiv1.PartitionChange{Delete: true}, []string{"partitionname=" + name})
	}
	if !begins("reservationname", strings.ToLower(what)) {
		return c.errorf("%s is not deleted with scontrol; reservations are, and nodes and partitions that were created with it", what)
	}
	return c.changeReservation(apiv1.ReservationChange_DELETE, []string{"reservationname=" + name})
}

// createNodes is scontrol create nodename=NODES KEY=VALUE….
func (c *call) createNodes(args []string) error {
	words := make([]string, len(args))
	for i, a := range args {
		key, val, ok := strings.Cut(a, "=")
		if !ok {
			return fail(1, "Invalid input: "+a, "Request aborted")
		}
		if words[i] = key + "=" + strings.Trim(val, `"`); strings.ContainsAny(val, " \t") {
			words[i] = key + `="` + strings.Trim(val, `"`) + `"`
		}
	}
	return c.askNodes(&apiv1.NodeChange{Create: strings.Join(words, " ")}, "slurm_create_node error: ")
}

// deleteNodes is scontrol delete nodename=NODES.
func (c *call) deleteNodes(names string) error {
	return c.askNodes(&apiv1.NodeChange{Delete: names}, "slurm_delete_node error: ")
}

func (c *call) askNodes(req *apiv1.NodeChange, failed string) error {
	if err := c.ask(methodChangeNodes, req, &apiv1.NodeChangeReply{}); err != nil {
		r := explainError(err)
		return fail(1, append(r.before("scontrol"), failed+r.text)...)
	}
	return nil
}

// resvKey completes the beginning of a key, where it means one only; += and -=
// stay. What is no beginning of any is left for the controller to refuse.
func resvKey(key string) string {
	bare := strings.ToLower(strings.TrimRight(key, "+-"))
	found := ""
	for _, k := range [...]string{"accounts", "allowedpartitions", "burstbuffer", "comment", "corecnt", "duration", "endtime", "features", "flags", "groups", "licenses",
		"maxstartdelay", "nodecnt", "nodes", "partitionname", "qos", "reservationname", "skip", "starttime", "tres", "trespernode", "users"} {
		switch {
		case k == bare:
			return key
		case !strings.HasPrefix(k, bare) || bare == "":
		case found != "":
			return key
		default:
			found = k
		}
	}
	if found == "" {
		return key
	}
	return found + key[len(bare):]
}

// changeReservation sends a change. Times are made absolute here: the time
// zone is that of whoever types.
func (c *call) changeReservation(verb apiv1.ReservationChange_Verb, args []string) error {
	req := &apiv1.ReservationChange{Verb: verb}
	for _, a := range args {
		key, val, ok := strings.Cut(a, "=")
		if !ok {
			return fail(1, "Unknown parameter "+a, "No reservation "+map[bool]string{true: "created", false: "update"}[verb == apiv1.ReservationChange_CREATE]+".")
		}
		val = strings.Trim(val, `"`)
		key = resvKey(key)
		switch k := strings.ToLower(key); k {
		case "reservationname", "reservation":
			req.Name = val
			continue
		case "starttime", "endtime":
			now := c.Now()
			sec, err := format.ParseTime(val, format.Moment{Now: now.Unix(), Loc: c.Loc})
			if err != nil {
				return fail(1, "Invalid time specification: "+val)
			}
			val = strconv.FormatInt(sec*second, 10)
			if strings.EqualFold(key, "starttime") && sec == now.Unix() {
				val = "now"
			}
		}
		req.Set = append(req.Set, &apiv1.ConfigEntry{Key: key, Value: val})
	}
	var rep apiv1.ReservationChangeReply
	if err := c.ask(methodReserve, req, &rep); err != nil {
		r := explainError(err)
		what := map[apiv1.ReservationChange_Verb]string{apiv1.ReservationChange_CREATE: "Error creating the reservation: ", apiv1.ReservationChange_UPDATE: "Error updating the reservation: ",
			apiv1.ReservationChange_DELETE: "slurm_delete_reservation error: "}[verb]
		return fail(1, append(r.before("scontrol"), what+r.text)...)
	}
	switch verb {
	case apiv1.ReservationChange_CREATE:
		return c.write([]byte("Reservation created: " + rep.GetName() + "\n"))
	case apiv1.ReservationChange_UPDATE:
		return c.write([]byte("Reservation updated.\n"))
	}
	return nil
}

func (c *call) reservations() (*apiv1.ReservationsReply, error) {
	var rep apiv1.ReservationsReply
	if err := c.ask(methodReservations, &apiv1.ReservationsRequest{}, &rep); err != nil {
		r := explainError(err)
		return nil, fail(1, append(r.before(c.cmd.name), "slurm_load_reservations error: "+r.text)...)
	}
	return &rep, nil
}

// showReservations is scontrol show reservation.
func (c *call) showReservations(name string) error {
	rep, err := c.reservations()
	if err != nil {
		return err
	}
	if len(rep.GetReservations()) == 0 {
		return c.write([]byte("No reservations in the system\n"))
	}
	found := false
	k := c.clock()
	for _, r := range rep.GetReservations() {
		if name != "" && r.GetName() != name {
			continue
		}
		found = true
		if err := c.write([]byte(reservationRecord(r, k).text(c.opts.On("oneliner"), "\n"))); err != nil {
			return err
		}
	}
	if !found {
		return fail(1, "Reservation "+name+" not found")
	}
	return nil
}

// reservationRecord lays a reservation out as scontrol show reservation does.
func reservationRecord(r *apiv1.ReservationInfo, k clock) *record {
	list := func(s []string) string { return or(strings.Join(s, ","), null) }
	state := "INACTIVE"
	if r.GetActive() {
		state = "ACTIVE"
	}
	flags := r.GetFlags()
	if p := r.GetPurge(); p > 0 {
		flags = strings.Replace(flags, "PURGE_COMP", "PURGE_COMP="+format.Duration(p/second), 1)
	}
	rec := &record{}
	rec.line("ReservationName="+r.GetName(), "StartTime="+k.time(r.GetStart()), "EndTime="+k.time(r.GetEnd()), "Duration="+format.Duration((r.GetEnd()-r.GetStart())/second))
	rec.line("Nodes="+or(hostlist.FoldSorted(r.GetNodes()), null), "NodeCnt="+itoa(len(r.GetNodes())), "CoreCnt="+itoa(r.GetCores()), "Features="+or(r.GetFeatures(), null),
		"PartitionName="+or(r.GetPartition(), null), "Flags="+flags)
	tres := "TRES=cpu=" + itoa(r.GetTres().GetCpu())
	if t := r.GetTres(); t.GetMem() == 0 { // of cores and GPUs, not of whole nodes
		for _, o := range t.GetOther() {
			tres += "," + o.GetName() + "=" + itoa(o.GetN())
		}
	}
	rec.line(tres)
	rec.line("Users="+list(r.GetUsers()), "Groups="+list(r.GetGroups()), "Accounts="+list(r.GetAccounts()), "Licenses="+or(countsText(r.GetLicenses(), "", ":"), null), "State="+state, "BurstBuffer=(null)", "Watts=n/a")
	last := []string{"MaxStartDelay=(null)"}
	if len(r.GetQos()) > 0 {
		last = append(last, "QOS="+list(r.GetQos()))
	}
	if len(r.GetPartitions()) > 0 {
		last = append(last, "AllowedPartitions="+list(r.GetPartitions()))
	}
	if r.GetComment() != "" {
		last = append(last, "Comment="+r.GetComment())
	}
	rec.line(last...)
	return rec
}

// sinfoReservations is sinfo -T.
func (c *call) sinfoReservations() error {
	rep, err := c.reservations()
	if err != nil {
		return err
	}
	if len(rep.GetReservations()) == 0 {
		return c.write([]byte("No reservations in the system\n"))
	}
	width := len("RESV_NAME")
	for _, r := range rep.GetReservations() {
		width = max(width, len(r.GetName()))
	}
	var b strings.Builder
	row := func(name, state, start, end, length, nodes string) {
		b.WriteString(padded(name, -width) + " " + padded(state, 9) + " " + padded(start, 20) + " " + padded(end, 20) + " " + padded(length, 12) + "  " + nodes + "\n")
	}
	if !c.opts.On("noheader") {
		row("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")
	}
	k := c.clock()
	for _, r := range rep.GetReservations() {
		state := "INACTIVE"
		if r.GetActive() {
			state = "ACTIVE"
		}
		row(r.GetName(), state, k.time(r.GetStart()), k.time(r.GetEnd()), format.Duration((r.GetEnd()-r.GetStart())/second), hostlist.FoldSorted(r.GetNodes()))
	}
	return c.write([]byte(b.String()))
}

// padded fills a text with blanks, to the left or, with a negative width, to
// the right.
func padded(s string, width int) string {
	if width < 0 {
		return s + strings.Repeat(" ", max(-width-len(s), 0))
	}
	return strings.Repeat(" ", max(width-len(s), 0)) + s
}
