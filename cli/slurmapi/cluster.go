package slurmapi

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// getReconfigure is GET reconfigure, which Slurm's API has as a GET.
func getReconfigure(q *request) (tree.Object, error) {
	var reply apiv1.ReconfigureReply
	if err := q.callRPC(tool.MethodReconfigure, &apiv1.ReconfigureRequest{}, &reply); err != nil {
		return nil, err
	}
	for _, text := range reply.GetWarnings() {
		q.addWarning(q.path.Path, text)
	}
	return nil, nil
}

// updateNode is POST node/{node_name}.
func updateNode(q *request) (tree.Object, error) {
	return q.changeNodes(q.given["node_name"])
}

// updateNodes is POST nodes: the nodes that the body names.
func updateNodes(q *request) (tree.Object, error) {
	names := strings.Join(q.body.Texts("name"), ",")
	if names == "" {
		return nil, problems{{Path: "#/name", Text: "the field is required: the nodes to change"}}
	}
	return q.changeNodes(names)
}

// nodeStates are the states that can be set, in Muster's words.
func nodeStates() map[string]string {
	return map[string]string{
		"DRAIN":            "drain",
		"UNDRAIN":          "undrain",
		"RESUME":           "resume",
		"DOWN":             "down",
		"FAIL":             "fail",
		"IDLE":             "idle",
		"POWER_UP":         "power_up",
		"POWER_DOWN":       "power_down",
		"REBOOT_REQUESTED": "reboot",
		"REBOOT_CANCELED":  "cancel_reboot",
	}
}

func (q *request) changeNodes(names string) (tree.Object, error) {
	req := &apiv1.UpdateNodeRequest{Nodes: names, Reason: q.body.Text("reason")}
	var wrong problems
	states := nodeStates()
	given := q.body.Texts("state")
	switch {
	case len(given) > 1:
		wrong = append(
			wrong,
			schema.Problem{Path: "#/state", Text: "one state can be set at a time"},
		)
	case len(given) == 1 && states[given[0]] == "":
		wrong = append(wrong, schema.Problem{Path: "#/state", Text: given[0] + " cannot be set"})
	case len(given) == 1:
		req.State = states[given[0]]
	}
	set := func(key, value string) {
		req.Set = append(req.Set, &apiv1.ConfigEntry{Key: key, Value: value})
	}
	for _, field := range q.path.Request.Fields {
		value, there := q.body[field.Name]
		switch field.Name {
		case "state", "name":
		case "comment", "extra":
			if there {
				set(field.Name, plainValue(value))
			}
		case "reason":
			if there && req.GetState() == "" {
				set("reason", plainValue(value))
			}
		case "features":
			if there {
				set("features", plainValue(value))
			}
		case "features_act":
			if there {
				set("activefeatures", plainValue(value))
			}
		case "weight":
			if there {
				set("weight", plainValue(value))
			}
		default:
			if there && !asksNothing(value) {
				wrong = append(
					wrong,
					schema.Problem{
						Path: "#/" + field.Name,
						Text: "it is set in the configuration of the nodes",
					},
				)
			}
		}
	}
	switch {
	case wrong != nil:
		return nil, wrong
	case req.GetState() == "" && len(req.GetSet()) == 0:
		return nil, spec.Refuse(spec.CodeQueryInvalid, "the body changes nothing")
	case slices.Contains([]string{"drain", "down", "fail"}, req.GetState()) && req.GetReason() == "":
		return nil, problems{
			{Path: "#/reason", Text: "the field is required to set nodes down, failed or draining"},
		}
	}
	var reply apiv1.UpdateNodeReply
	if err := q.callRPC(tool.MethodUpdateNode, req, &reply); err != nil {
		return nil, err
	}
	if len(reply.GetUnknown()) > 0 {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, strings.Join(reply.GetUnknown(), ","))
	}
	return nil, nil
}

// createNode is POST new/node: a line as in slurm.conf.
func createNode(q *request) (tree.Object, error) {
	return nil, q.callRPC(
		"/muster.v1.Cluster/ChangeNodes",
		&apiv1.NodeChange{Create: q.body.Text("node_conf")},
		&apiv1.NodeChangeReply{},
	)
}

func deleteNode(q *request) (tree.Object, error) {
	return nil, q.callRPC(
		tool.MethodChangeNodes,
		&apiv1.NodeChange{Delete: q.given["node_name"]},
		&apiv1.NodeChangeReply{},
	)
}

func deletePartition(q *request) (tree.Object, error) {
	return nil, q.callRPC(
		tool.MethodChangePartition,
		&apiv1.PartitionChange{Name: q.given["partition_name"], Delete: true},
		&apiv1.PartitionChangeReply{},
	)
}

func deleteReservation(q *request) (tree.Object, error) {
	req := &apiv1.ReservationChange{
		Verb: apiv1.ReservationChange_DELETE,
		Name: q.given["reservation_name"],
	}
	return nil, q.callRPC(tool.MethodReserve, req, &apiv1.ReservationChangeReply{})
}

// setReservation is POST reservation.
func setReservation(q *request) (tree.Object, error) {
	return q.setReservations([]place{{q.body, "#"}})
}

// setReservations is POST reservations.
func setReservations(q *request) (tree.Object, error) {
	var places []place
	for i, values := range q.body.Records("reservations") {
		places = append(places, place{values, "#/reservations/" + tool.Itoa(i)})
	}
	return q.setReservations(places)
}

// setReservations makes reservations, and changes those that exist.
func (q *request) setReservations(places []place) (tree.Object, error) {
	var have apiv1.ReservationsReply
	if err := q.callRPC(tool.MethodReservations, &apiv1.ReservationsRequest{}, &have); err != nil {
		return nil, err
	}
	var reqs []*apiv1.ReservationChange
	var wrong problems
	for _, at := range places {
		req, why := reservationChange(at)
		if slices.ContainsFunc(
			have.GetReservations(),
			func(r *apiv1.ReservationInfo) bool { return r.GetName() == req.GetName() },
		) {
			req.Verb = apiv1.ReservationChange_UPDATE
		}
		reqs = append(reqs, req)
		wrong = append(wrong, why...)
	}
	if wrong != nil {
		return nil, wrong
	}
	list := tree.List{}
	for _, req := range reqs {
		var reply apiv1.ReservationChangeReply
		if err := q.callRPC(tool.MethodReserve, req, &reply); err != nil {
			return nil, err
		}
		name := reply.GetName()
		if name == "" {
			name = req.GetName()
		}
		list = append(list, tree.Object{{Key: "name", Value: name}})
	}
	return tree.Object{{Key: "reservations", Value: list}}, nil
}

// reservationChange makes a change of a description.
func reservationChange(at place) (*apiv1.ReservationChange, problems) {
	req := &apiv1.ReservationChange{Name: at.values.Text("name")}
	var wrong problems
	set := func(key, value string) {
		req.Set = append(req.Set, &apiv1.ConfigEntry{Key: key, Value: value})
	}
	seconds := func(v any) string {
		number, _ := v.(tree.Number)
		return tool.Itoa(number.N * tool.Second)
	}
	for _, field := range schema.Of(schema.Default).Type("reservation_desc_msg").Fields {
		value, given := at.values[field.Name]
		if !given || asksNothing(value) {
			continue
		}
		switch field.Name {
		case "name":
		case "accounts", "comment", "features", "groups", "licenses", "users":
			set(field.Name, plainValue(value))
		case "partition":
			set("partitionname", plainValue(value))
		case "flags":
			set("flags", plainValue(value))
		case "node_list":
			set("nodes", hostlist.FoldSorted(expandNodes(at.values.Texts("node_list"))))
		case "node_count":
			set("nodecnt", plainValue(value))
		case "core_count":
			set("corecnt", plainValue(value))
		case "duration":
			set("duration", plainValue(value))
		case "start_time":
			set("starttime", seconds(value))
		case "end_time":
			set("endtime", seconds(value))
		case "tres":
			var parts []string
			for _, values := range at.values.Records("tres") {
				name := values.Text("type")
				if values.Text("name") != "" {
					name += "/" + values.Text("name")
				}
				parts = append(parts, name+"="+plainValue(values["count"]))
			}
			set("tres", strings.Join(parts, ","))
		default:
			wrong = append(
				wrong,
				schema.Problem{
					Path: at.path + "/" + field.Name,
					Text: "Muster's reservations have no such thing",
				},
			)
		}
	}
	return req, wrong
}

// expandNodes are the nodes of several hostlists. What is not one stays as it is, so
// that the controller refuses it by name.
func expandNodes(lists []string) []string {
	var out []string
	for _, list := range lists {
		names, err := hostlist.Expand(list)
		if err != nil {
			names = []string{list}
		}
		out = append(out, names...)
	}
	return out
}

// getLayout is GET resources/{job_id}: what the job holds on each node.
func getLayout(q *request) (tree.Object, error) {
	id, err := q.jobID()
	if err != nil {
		return nil, err
	}
	var reply apiv1.ListJobsReply
	if err := q.callRPC(
		tool.MethodListJobs,
		&apiv1.ListJobsRequest{
			Filter: &apiv1.JobFilter{Jobs: []string{id}, AllStates: true}, Detail: true,
		},
		&reply,
	); err != nil {
		return nil, err
	}
	if len(reply.GetJobs()) == 0 {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	list := tree.List{}
	for _, job := range reply.GetJobs() {
		for _, node := range job.GetAllocation() {
			gres := tree.List{}
			byType := map[string]spec.Bitset{}
			var types []string
			for _, gpu := range node.GetGpus() {
				if _, seen := byType[gpu.GetType()]; !seen {
					types = append(types, gpu.GetType())
				}
				byType[gpu.GetType()] = byType[gpu.GetType()].Set(int(gpu.GetIndex()))
			}
			for _, t := range types {
				gres = append(
					gres,
					tree.Object{
						{Key: "name", Value: "gpu"},
						{Key: "type", Value: t},
						{Key: "count", Value: byType[t].Count()},
						{Key: "index", Value: byType[t].Ranges()},
					},
				)
			}
			for _, g := range node.GetGres() {
				gres = append(
					gres,
					tree.Object{
						{Key: "name", Value: g.GetName()},
						{Key: "type", Value: g.GetType()},
						{Key: "count", Value: g.GetN()},
					},
				)
			}
			list = append(
				list,
				tree.Object{
					{Key: "node", Value: node.GetName()},
					{Key: "mem_alloc", Value: node.GetMem()},
					{Key: "core_bitmap", Value: spec.Bitset(node.GetCpus()).Ranges()},
					{Key: "gres", Value: gres},
				},
			)
		}
	}
	return tree.Object{{Key: "nodes", Value: list}}, nil
}

// foldHosts is POST util/hostlist.
func foldHosts(q *request) (tree.Object, error) {
	names := expandNodes(q.body.Texts("hostnames"))
	return tree.Object{{Key: "hostlist", Value: hostlist.Fold(names)}}, nil
}

// expandHosts is POST util/hostnames.
func expandHosts(q *request) (tree.Object, error) {
	names, err := hostlist.Expand(q.body.Text("hostlist"))
	if err != nil {
		return nil, problems{{Path: "#/hostlist", Text: err.Error()}}
	}
	return tree.Object{{Key: "hostnames", Value: tree.Strings(names)}}, nil
}
