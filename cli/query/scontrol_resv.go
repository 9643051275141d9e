package query

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// createEntity is scontrol create: a reservation, or nodename= or partitionname=.
func createEntity(call *tool.Call, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for create keyword")
	}
	what, _, named := strings.Cut(strings.ToLower(args[0]), "=")
	switch {
	case beginsKey("reservationname", what):
		if !named {
			args = args[1:]
		}
	case named && beginsKey("nodename", what):
		return createNodes(call, args)
	case named && beginsKey("partitionname", what):
		return createPartition(call, args)
	default:
		return call.Errorf("Invalid creation entity: %s", args[0])
	}
	return changeReservation(call, apiv1.ReservationChange_CREATE, args)
}

// beginsKey tells whether a word is the beginning of a key, three letters at least.
func beginsKey(key, word string) bool { return len(word) >= 3 && strings.HasPrefix(key, word) }

// reservationError words the refusal of a change as scontrol does.
func reservationError(request *apiv1.ReservationChange, err error) error {
	refusal, lines := operatorRefusal(err)
	switch request.GetVerb() {
	case apiv1.ReservationChange_CREATE:
		lines = append(lines, "Error creating the reservation: "+refusal.Text)
	case apiv1.ReservationChange_UPDATE:
		lines = append(
			lines,
			"Error updating the reservation: "+refusal.Text,
			"slurm_update error: "+refusal.Text,
		)
	default:
		lines = append(lines, "delete_reservation reservation="+request.GetName()+": "+refusal.Text)
	}
	return tool.Fail(1, lines...)
}

// deleteEntity is scontrol delete: reservation=NAME or reservation NAME, nodename= or
// partitionname=.
func deleteEntity(call *tool.Call, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for delete keyword")
	}
	what, name, named := strings.Cut(args[0], "=")
	if !named && len(args) == 1 {
		return call.Errorf("Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'")
	}
	if !named {
		_, name, named = strings.Cut(args[1], "=")
		if !named {
			name = args[1]
			named = true
		}
	}
	if named && beginsKey("nodename", strings.ToLower(what)) {
		return deleteNodes(call, name)
	}
	if named && beginsKey("partitionname", strings.ToLower(what)) {
		return deletePartition(call, name)
	}
	if !beginsKey("reservationname", strings.ToLower(what)) {
		return call.Errorf(
			"%s is not deleted with scontrol; reservations are, and nodes and partitions that were created with it",
			what,
		)
	}
	return changeReservation(call, apiv1.ReservationChange_DELETE, []string{"reservationname=" +
		name})
}

// deletePartition words a refusal as scontrol does.
func deletePartition(call *tool.Call, name string) error {
	request := &apiv1.PartitionChange{Name: name, Delete: true}
	err := call.RPC(tool.MethodChangePartition, request, &apiv1.PartitionChangeReply{})
	if err == nil {
		return nil
	}
	refusal, lines := operatorRefusal(err)
	return tool.Fail(1, append(lines, "delete_partition partitionname="+name+": "+refusal.Text)...)
}

// createNodes is scontrol create nodename=NODES KEY=VALUE….
func createNodes(call *tool.Call, args []string) error {
	words := make([]string, len(args))
	for i, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			return tool.Fail(1, "Invalid input: "+a, "Request aborted")
		}
		words[i] = key + "=" + strings.Trim(value, `"`)
		if strings.ContainsAny(value, " \t") {
			words[i] = key + `="` + strings.Trim(value, `"`) + `"`
		}
	}
	return changeNodeList(
		call,
		&apiv1.NodeChange{Create: strings.Join(words, " ")},
		"slurm_create_node error: ",
	)
}

// deleteNodes is scontrol delete nodename=NODES.
func deleteNodes(call *tool.Call, names string) error {
	return changeNodeList(call, &apiv1.NodeChange{Delete: names}, "slurm_delete_node error: ")
}

// changeNodeList sends a request to create or delete nodes. failed begins the message if it is
// refused.
func changeNodeList(call *tool.Call, request *apiv1.NodeChange, failed string) error {
	if err := call.RPC(tool.MethodChangeNodes, request, &apiv1.NodeChangeReply{}); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(1, append(refusal.Preamble("scontrol"), failed+refusal.Text)...)
	}
	return nil
}

// resvKey completes an abbreviated key, if only one key begins so, and keeps a + or - before the =.
// Any other key stays as it is, and the controller refuses it.
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

// changeReservation sends a request to create, change or delete a reservation. Times become
// absolute here, because they are meant in the time zone of the user.
func changeReservation(call *tool.Call, verb apiv1.ReservationChange_Verb, args []string) error {
	request := &apiv1.ReservationChange{Verb: verb}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			return tool.Fail(1, "Unknown parameter "+a, "No reservation "+
				map[bool]string{true: "created", false: "update"}[verb == apiv1.ReservationChange_CREATE]+
				".")
		}
		value = strings.Trim(value, `"`)
		key = resvKey(key)
		switch k := strings.ToLower(key); k {
		case "reservationname", "reservation":
			request.Name = value
			continue
		case "starttime", "endtime":
			now := call.Now()
			seconds, err := format.ParseTime(value, format.Moment{Now: now.Unix(), Loc: call.Loc})
			if err != nil {
				return tool.Fail(1, "Invalid time specification: "+value)
			}
			value = strconv.FormatInt(seconds*tool.Second, 10)
			if strings.EqualFold(key, "starttime") && seconds == now.Unix() {
				value = "now"
			}
		}
		request.Set = append(request.Set, &apiv1.ConfigEntry{Key: key, Value: value})
	}
	if what := completeReservation(request); what != "" {
		return tool.Fail(1, "scontrol: error: "+what+"  No reservation created.")
	}
	var reply apiv1.ReservationChangeReply
	if err := call.RPC(tool.MethodReserve, request, &reply); err != nil {
		return reservationError(request, err)
	}
	switch verb {
	case apiv1.ReservationChange_CREATE:
		return call.WriteOut([]byte("Reservation created: " + reply.GetName() + "\n"))
	case apiv1.ReservationChange_UPDATE:
		return call.WriteOut([]byte("Reservation updated.\n"))
	}
	return nil
}

// completeReservation tells what a new reservation lacks, in Slurm's words and order; empty if
// nothing. It sets Nodes=ALL where only a partition is given. Programs that use the API may omit
// the times, as Slurm's slurmctld lets them. The command requires them, because a reservation that
// lasts a year by accident blocks the nodes of everybody.
func completeReservation(request *apiv1.ReservationChange) string {
	if request.GetVerb() != apiv1.ReservationChange_CREATE {
		return ""
	}
	given := map[string]bool{}
	for _, entry := range request.GetSet() {
		given[strings.ToLower(strings.TrimRight(entry.GetKey(), "+-"))] = entry.GetValue() != ""
	}
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return given[key] })
	}
	switch {
	case !has("starttime"):
		return "A start time must be given."
	case !has("endtime", "duration"):
		return "An end time or duration must be given."
	}
	if !has("nodes", "nodecnt", "nodecount", "corecnt", "corecount", "tres", "trespernode", "licenses") {
		if !has("partitionname", "partition") {
			return "CoreCnt, Nodes, NodeCnt, TRES or Licenses must be specified."
		}
		request.Set = append(request.Set, &apiv1.ConfigEntry{Key: "nodes", Value: "ALL"})
	}
	if !has("users", "accounts", "groups", "qos", "allowedpartitions", "allowedpartition") {
		return "Either Users/Groups and/or Accounts must be specified."
	}
	return ""
}

// showReservations is scontrol show reservation.
func showReservations(call *tool.Call, name string) error {
	reply, err := fetch.Reservations(call)
	if err != nil {
		return err
	}
	if render.WantsDocument(call) {
		return reservationsDocument(call, reply, name)
	}
	if len(reply.GetReservations()) == 0 && name == "" {
		return call.WriteOut([]byte("No reservations in the system\n"))
	}
	found := false
	clock := render.NewClock(call.Env)
	for _, reservation := range reply.GetReservations() {
		if name != "" && reservation.GetName() != name {
			continue
		}
		found = true
		if err := call.WriteOut(
			[]byte(reservationRecord(reservation, clock).Text(call.Opts.On("oneliner"), "\n")),
		); err != nil {
			return err
		}
	}
	if !found {
		return tool.Unknown(spec.CodeInvalidReservation, "Reservation "+name+" not found")
	}
	return nil
}

// reservationsDocument is scontrol show reservation --json.
func reservationsDocument(call *tool.Call, reply *apiv1.ReservationsReply, name string) error {
	list := tree.List{}
	for _, reservation := range reply.GetReservations() {
		if name == "" || reservation.GetName() == name {
			list = append(list, reservationTree(reservation, call.Cluster()))
		}
	}
	if name != "" && len(list) == 0 {
		return tool.Unknown(spec.CodeInvalidReservation, "Reservation "+name+" not found")
	}
	return render.Answer(
		call,
		"openapi_reservation_resp",
		tree.Member{Key: "reservations", Value: list},
		tree.Member{Key: "last_update", Value: render.Instant(call.LastUpdate(reply.GetNow()))},
	)
}

// reservationTree is one reservation.
//
//muster:table one entry for each key
func reservationTree(reservation *apiv1.ReservationInfo, cluster string) tree.Object {
	return tree.Object{
		{Key: "accounts", Value: strings.Join(reservation.GetAccounts(), ",")},
		{Key: "core_count", Value: reservation.GetCores()},
		{Key: "end_time", Value: render.Instant(reservation.GetEnd())},
		{Key: "features", Value: reservation.GetFeatures()},
		{Key: "flags", Value: tree.Strings(tool.SplitList(reservation.GetFlags()))},
		{Key: "groups", Value: strings.Join(reservation.GetGroups(), ",")},
		{Key: "licenses", Value: render.CountsText(reservation.GetLicenses(), "", ":")},
		{Key: "name", Value: reservation.GetName()},
		{Key: "node_count", Value: len(reservation.GetNodes())},
		{Key: "node_list", Value: hostlist.FoldSorted(reservation.GetNodes())},
		{Key: "partition", Value: reservation.GetPartition()},
		{Key: "purge_completed", Value: tree.Object{{Key: "time", Value: render.Number(reservation.GetPurge()/tool.Second, reservation.GetPurge() > 0, false)}}},
		{Key: "start_time", Value: render.Instant(reservation.GetStart())},
		{Key: "tres", Value: render.TRESText(reservation.GetTres())},
		{Key: "users", Value: strings.Join(reservation.GetUsers(), ",")},
		{Key: "qos", Value: strings.Join(reservation.GetQos(), ",")},
		{Key: "allowed_partitions", Value: strings.Join(reservation.GetPartitions(), ",")},
		{Key: "comment", Value: reservation.GetComment()},
	}
}

// reservationRecord lays a reservation out as scontrol show reservation does.
func reservationRecord(reservation *apiv1.ReservationInfo, clock render.Clock) *render.Record {
	list := func(s []string) string { return cmp.Or(strings.Join(s, ","), render.Null) }
	state := "INACTIVE"
	if reservation.GetActive() {
		state = "ACTIVE"
	}
	flags := reservation.GetFlags()
	if p := reservation.GetPurge(); p > 0 {
		flags = strings.Replace(flags, "PURGE_COMP", "PURGE_COMP="+
			format.Duration(p/tool.Second), 1)
	}
	record := &render.Record{}
	record.Line("ReservationName="+reservation.GetName(), "StartTime="+
		clock.Time(reservation.GetStart()), "EndTime="+clock.Time(reservation.GetEnd()),
		"Duration="+
			format.Duration((reservation.GetEnd()-reservation.GetStart())/tool.Second))
	record.Line("Nodes="+cmp.Or(hostlist.FoldSorted(reservation.GetNodes()), render.Null),
		"NodeCnt="+
			tool.Itoa(
				len(reservation.GetNodes()),
			), "CoreCnt="+tool.Itoa(reservation.GetCores()), "Features="+
			cmp.Or(reservation.GetFeatures(), render.Null),
		"PartitionName="+cmp.Or(reservation.GetPartition(), render.Null), "Flags="+flags)
	tres := "TRES=cpu=" + tool.Itoa(reservation.GetTres().GetCpu())
	if t := reservation.GetTres(); t.GetMem() == 0 { // of cores and GPUs, not of whole nodes
		for _, o := range t.GetOther() {
			tres += "," + o.GetName() + "=" + tool.Itoa(o.GetN())
		}
	}
	record.Line(tres)
	record.Line(
		"Users="+list(reservation.GetUsers()),
		"Groups="+list(reservation.GetGroups()),
		"Accounts="+
			list(reservation.GetAccounts()),
		"Licenses="+
			cmp.Or(render.CountsText(reservation.GetLicenses(), "", ":"), render.Null),
		"State="+
			state,
		"BurstBuffer=(null)",
		"Watts=n/a",
	)
	last := []string{"MaxStartDelay=(null)"}
	if len(reservation.GetQos()) > 0 {
		last = append(last, "QOS="+list(reservation.GetQos()))
	}
	if len(reservation.GetPartitions()) > 0 {
		last = append(last, "AllowedPartitions="+list(reservation.GetPartitions()))
	}
	if reservation.GetComment() != "" {
		last = append(last, "Comment="+reservation.GetComment())
	}
	record.Line(last...)
	return record
}

// padText fills a text with blanks, to the left or, with a negative width, to
// the right.
func padText(text string, width int) string {
	if width < 0 {
		return text + strings.Repeat(" ", max(-width-len(text), 0))
	}
	return strings.Repeat(" ", max(width-len(text), 0)) + text
}
