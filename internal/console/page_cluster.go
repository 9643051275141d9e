package console

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// clusterData is what the page of the cluster shows. Each list has its own
// refusal, because different rules decide who sees which.
type clusterData struct {
	Partitions   []partitionRow
	QOS          []qosRow
	Calendar     *calendar
	Reservations []reservationRow
	Controllers  []controllerRow
	Survives     string
	Agents       []agentGroup
	Hosts        []hostRow
	MoreHosts    int
	Config       []fact
	Refused      map[string]string // by list: why it is not shown
}

type partitionRow struct {
	Name, State, Class, Nodes, CPUs, MaxTime, DefaultTime, Tier, QOS, Access string
	Default                                                                  bool
}

type qosRow struct {
	Name, Priority, Factor, Preempt, Flags, Wall, PerJob, PerUser, Group string
}

type reservationRow struct {
	Name, Who, What, Flags, Jobs string
	Start, End                   moment
	Active                       bool
}

// calendar is a picture of the reservations of the next days.
type calendar struct {
	Bars   []resvBar
	Ticks  []tick
	Height int
	More   int // reservations that begin later
}

type resvBar struct {
	X, Y, Width, TextY int
	Label, Title       string
	Active             bool
}

type controllerRow struct {
	Name, Address, Role, Class, Version, Lag, Clock string
}

// agentGroup are nodes whose agents have the same version.
type agentGroup struct {
	Version, Count, Nodes string
	Other                 bool // not the controller's version
}

type hostRow struct {
	Name, Role, State, Class, Serial string
	Expires                          moment
}

const (
	calendarDays = 7
	maxResvBars  = 24
	maxHosts     = 500
	maxNames     = 12            // nodes of a group of agents that are named
	soon         = 7 * 24 * 3600 // seconds before a certificate expires
	day          = int64(24*3600) * tool.Second
)

// clusterPage is how the cluster is made. Every list is an answer of the API to
// the visitor.
func (c *Console) clusterPage(v *visit) (answer, error) {
	data := clusterData{Refused: map[string]string{}}
	refuse := func(list string, err error) {
		data.Refused[list] = render.Clean(tool.ExplainError(err).Text)
		if errors.Is(err, errOnlyNow) {
			data.Refused[list] = "it is known only as of now"
		}
	}

	if reply, err := callAPI[*apiv1.ListPartitionsReply](v, tool.MethodListPartitions, &apiv1.ListPartitionsRequest{}); err != nil {
		refuse("partitions", err)
	} else {
		data.Partitions = partitionRows(reply.GetPartitions())
	}
	if reply, err := callAPI[*apiv1.PolicyReply](v, tool.MethodGetPolicy, &apiv1.PolicyRequest{}); err != nil {
		refuse("qos", err)
	} else {
		data.QOS = qosRows(reply.GetQos())
	}
	if reply, err := callAPI[*apiv1.ReservationsReply](v, tool.MethodReservations, &apiv1.ReservationsRequest{}); err != nil {
		refuse("reservations", err)
	} else {
		data.Reservations = reservationRows(reply.GetReservations())
		data.Calendar = calendarOf(reply.GetReservations(), reply.GetNow())
	}
	if reply, err := callAPI[*apiv1.ControllersReply](v, tool.MethodListControllers, &apiv1.ControllersRequest{}); err != nil {
		refuse("controllers", err)
	} else {
		data.Controllers = controllerRows(reply.GetControllers())
		data.Survives = formatNumber(reply.GetSurvives())
	}
	if reply, err := v.listNodes(); err != nil {
		refuse("agents", err)
	} else {
		data.Agents = agentGroups(reply.GetNodes(), c.cfg.Version)
	}
	if reply, err := callAPI[*apiv1.GetConfigReply](v, tool.MethodGetConfig, &apiv1.GetConfigRequest{}); err != nil {
		refuse("config", err)
	} else {
		data.Config = configRows(reply)
	}
	if v.past == nil && v.isOperator() {
		if reply, err := callAPI[*apiv1.ListHostsReply](v, tool.MethodListHosts, &apiv1.ListHostsRequest{}); err != nil {
			refuse("hosts", err)
		} else {
			data.Hosts, data.MoreHosts = hostRows(reply)
		}
	}
	return answer{page: "cluster", title: "Cluster", data: data}, nil
}

func partitionRows(list []*apiv1.PartitionInfo) []partitionRow {
	var rows []partitionRow
	for _, partition := range list {
		state := spec.PartitionState(partition.GetState()).String()
		row := partitionRow{
			Name:  render.Clean(partition.GetName()),
			State: strings.ToLower(state),
			Class: "bad",
			Nodes: formatNumber(partition.GetTotalNodes()),
			CPUs:  formatNumber(partition.GetTotalCpus()),
			MaxTime: limitText(
				partition.GetMaxTime(),
			),
			DefaultTime: "",
			Tier:        formatNumber(partition.GetPriorityTier()),
			QOS:         render.Clean(partition.GetQos()),
			Default:     partition.GetIsDefault(),
		}
		if state == "UP" {
			row.Class = "ok"
		}
		if partition.GetDefaultTime() != 0 {
			row.DefaultTime = limitText(partition.GetDefaultTime())
		}
		row.Access = accessOf(partition)
		rows = append(rows, row)
	}
	return rows
}

// accessOf says who may use a partition.
func accessOf(partition *apiv1.PartitionInfo) string {
	var parts []string
	for _, rule := range []struct {
		words string
		names []string
	}{{"accounts", partition.GetAllowAccounts()}, {"not accounts", partition.GetDenyAccounts()}, {"QOS", partition.GetAllowQos()}, {"not QOS", partition.GetDenyQos()}, {"groups", partition.GetAllowGroups()}} {
		if len(rule.names) > 0 {
			parts = append(parts, rule.words+" "+strings.Join(rule.names, ", "))
		}
	}
	if partition.GetRootOnly() {
		parts = append(parts, "root only")
	}
	if partition.GetReqResv() {
		parts = append(parts, "reservations only")
	}
	return render.Clean(strings.Join(parts, "; "))
}

func qosRows(list []*apiv1.Qos) []qosRow {
	var rows []qosRow
	for _, qos := range list {
		row := qosRow{
			Name:     render.Clean(qos.GetName()),
			Priority: formatNumber(qos.GetPriority()),
			Preempt:  render.Clean(strings.Join(qos.GetPreempt(), ", ")),
			Flags:    render.Clean(strings.Join(qos.GetFlags(), ", ")),
			PerJob: spaceList(
				render.LimitsText(qos.GetMaxTresPerJob()),
			),
			PerUser: spaceList(render.LimitsText(qos.GetMaxTresPerUser())),
			Group:   spaceList(render.LimitsText(qos.GetGrpTres())),
		}
		if qos.GetMaxWall() > 0 {
			row.Wall = render.ShortSpan(qos.GetMaxWall())
		}
		row.Factor = strconv.FormatFloat(
			float64((&spec.QOS{UsageFactor: qos.GetUsageFactor()}).Factor())/1e6,
			'f',
			-1,
			64,
		)
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b qosRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// byStart orders reservations.
func byStart(a, b *apiv1.ReservationInfo) int {
	return cmp.Or(
		cmp.Compare(a.GetStart(), b.GetStart()),
		strings.Compare(a.GetName(), b.GetName()),
	)
}

func reservationRows(list []*apiv1.ReservationInfo) []reservationRow {
	var rows []reservationRow
	for _, reservation := range slices.SortedFunc(slices.Values(list), byStart) {
		who := slices.Concat(
			reservation.GetUsers(),
			reservation.GetAccounts(),
			reservation.GetGroups(),
			reservation.GetQos(),
		)
		what := nodeCount(len(reservation.GetNodes()))
		if t := render.TRESText(reservation.GetTres()); t != "" {
			what += ", " + spaceList(t)
		}
		rows = append(
			rows,
			reservationRow{
				Name:  render.Clean(reservation.GetName()),
				Who:   render.Clean(strings.Join(who, ", ")),
				What:  render.Clean(what),
				Flags: spaceList(render.Clean(reservation.GetFlags())),
				Jobs: formatNumber(
					reservation.GetJobs(),
				),
				Start:  newMoment(reservation.GetStart()),
				End:    newMoment(reservation.GetEnd()),
				Active: reservation.GetActive(),
			},
		)
	}
	return rows
}

// nodeCount is a number of nodes in words.
func nodeCount(n int) string {
	if n == 1 {
		return "1 node"
	}
	return formatNumber(n) + " nodes"
}

// calendarOf draws the reservations of the next days, a line for each; nil
// without one.
func calendarOf(list []*apiv1.ReservationInfo, now int64) *calendar {
	whole := calendarDays * day
	out := &calendar{}
	for _, reservation := range slices.SortedFunc(slices.Values(list), byStart) {
		if reservation.GetEnd() != 0 && reservation.GetEnd() <= now {
			continue
		}
		if reservation.GetStart() >= now+whole || len(out.Bars) >= maxResvBars {
			out.More++
			continue
		}
		from, to := max(reservation.GetStart()-now, 0), whole
		if reservation.GetEnd() != 0 {
			to = min(reservation.GetEnd()-now, whole)
		}
		x := int(from * planWidth / whole)
		row := len(out.Bars)
		name := render.Clean(reservation.GetName())
		out.Bars = append(
			out.Bars,
			resvBar{
				X:     min(x, planWidth-3),
				Width: max(int(to*planWidth/whole)-x, 3),
				Y:     row*2*barHeight + barHeight - 4,
				TextY: row*2*barHeight + 13,
				Label: cutText(name, 60),
				Title: name + ", " +
					nodeCount(len(reservation.GetNodes())),
				Active: reservation.GetActive(),
			},
		)
	}
	if len(out.Bars) == 0 && out.More == 0 {
		return nil
	}
	for n := range calendarDays {
		out.Ticks = append(
			out.Ticks,
			tick{X: n * planWidth / calendarDays, At: newMoment(now + int64(n)*day)},
		)
	}
	out.Height = len(out.Bars)*2*barHeight + planEdge
	return out
}

func controllerRows(list []*apiv1.ControllerInfo) []controllerRow {
	var rows []controllerRow
	for _, controller := range list {
		row := controllerRow{
			Name:    render.Clean(controller.GetName()),
			Address: render.Clean(controller.GetAddress()),
			Role:    render.Clean(controller.GetRole()),
			Class:   "ok",
			Version: render.Clean(controller.GetVersion()),
			Lag:     formatNumber(controller.GetLag()),
		}
		switch {
		case controller.GetRole() == "":
			row.Role = render.Clean(cmp.Or(controller.GetError(), "no answer"))
			row.Class = "bad"
			row.Lag = ""
		case controller.GetRole() != "leader":
			row.Class = "busy"
			row.Clock = strconv.FormatInt(controller.GetClockAhead()/1e6, 10) + " ms"
		}
		rows = append(rows, row)
	}
	return rows
}

// agentGroups are the nodes by the version of their agent. Those that have
// never registered have none.
func agentGroups(nodes []*apiv1.NodeInfo, own string) []agentGroup {
	byVersion := map[string][]string{}
	for _, node := range nodes {
		byVersion[node.GetVersion()] = append(byVersion[node.GetVersion()], node.GetName())
	}
	versions := make([]string, 0, len(byVersion))
	for version := range byVersion {
		versions = append(versions, version)
	}
	slices.Sort(versions)
	var groups []agentGroup
	for _, version := range versions {
		names := byVersion[version]
		text := strings.Join(names[:min(len(names), maxNames)], ", ")
		if len(names) > maxNames {
			text += " and " + formatNumber(len(names)-maxNames) + " more"
		}
		groups = append(
			groups,
			agentGroup{
				Version: cmp.Or(render.Clean(version), "never registered"),
				Count:   formatNumber(len(names)),
				Nodes:   render.Clean(text),
				Other:   version != own,
			},
		)
	}
	return groups
}

// hostRows are certificates, those first that need somebody.
func hostRows(reply *apiv1.ListHostsReply) (rows []hostRow, more int) {
	list := slices.SortedFunc(slices.Values(reply.GetHosts()), func(a, b *apiv1.HostInfo) int {
		return cmp.Or(
			cmp.Compare(a.GetExpires(), b.GetExpires()),
			strings.Compare(a.GetName(), b.GetName()),
			strings.Compare(a.GetRole(), b.GetRole()),
		)
	})
	more = max(len(list)-maxHosts, 0)
	for _, host := range list[:min(len(list), maxHosts)] {
		row := hostRow{
			Name:    render.Clean(host.GetName()),
			Role:    render.Clean(host.GetRole()),
			State:   "valid",
			Class:   "ok",
			Serial:  render.Clean(host.GetSerial()),
			Expires: newMoment(host.GetExpires()),
		}
		switch left := host.GetExpires() - reply.GetNow(); {
		case host.GetRevoked():
			row.State, row.Class = "revoked", "bad"
		case left <= 0:
			row.State, row.Class = "expired", "bad"
		case left < soon*tool.Second:
			row.State, row.Class = "ends soon", "warn"
		}
		rows = append(rows, row)
	}
	return rows, more
}

// configRows are the keys of the configuration that are set, by name. Keys of
// nodes and partitions are on their own pages.
func configRows(reply *apiv1.GetConfigReply) []fact {
	var facts []fact
	for _, entry := range reply.GetEntries() {
		if entry.GetRecord() == "" {
			facts = append(
				facts,
				fact{Name: render.Clean(entry.GetKey()), Value: render.Clean(entry.GetValue())},
			)
		}
	}
	slices.SortStableFunc(
		facts,
		func(a, b fact) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) },
	)
	return facts
}
