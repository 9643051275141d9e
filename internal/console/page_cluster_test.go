package console

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
)

func smallCluster() answers {
	return answers{
		tool.MethodReservations:    &apiv1.ReservationsReply{Now: day, Reservations: []*apiv1.ReservationInfo{{Name: hostileName(), Start: 2 * day, End: 3 * day, Users: []string{hostileName()}, Nodes: []string{"n1"}}}},
		tool.MethodGetConfig:       &apiv1.GetConfigReply{Entries: []*apiv1.ConfigEntry{{Key: "PrivateData", Value: "jobs"}, {Key: "CPUs", Value: "64", Record: "NodeName"}}},
		tool.MethodListControllers: &apiv1.ControllersReply{Controllers: []*apiv1.ControllerInfo{{Name: "ctl1", Role: "leader"}, {Name: "ctl2", Error: "connection refused"}}},
		tool.MethodListNodes:       &apiv1.ListNodesReply{Nodes: []*apiv1.NodeInfo{{Name: "n1", Version: "1.0"}, {Name: "n2"}}},
		tool.MethodListHosts:       &apiv1.ListHostsReply{Now: day, Hosts: []*apiv1.HostInfo{{Name: "n1", Role: "agent", Expires: 2 * day}, {Name: "n2", Role: "agent", Expires: 100 * day}}},
		tool.MethodGetPolicy:       &apiv1.PolicyReply{Qos: []*apiv1.Qos{{Name: "normal", UsageFactor: 500_000}}},
	}
}

// TestClusterPage: each list is the answer of the API, one that is refused says
// so and leaves the others, and certificates are for operators.
func TestClusterPage(t *testing.T) {
	page := pageText(t, smallConsole(t, smallCluster(), 1000, authz.User), "/cluster")
	for _, want := range []string{"You do not see this list", "PrivateData", "connection refused", "never registered", ">0.5</td>", "&lt;script&gt;alert(1)", ">1 node</td>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	for _, bad := range []string{"<script>alert", "Certificates", ">CPUs</dt>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %s", bad)
		}
	}
	page = pageText(t, smallConsole(t, smallCluster(), 1000, authz.Operator), "/cluster")
	if !strings.Contains(page, "Certificates of machines") || strings.Count(page, ">ends soon<") != 1 {
		t.Errorf("an operator sees:\n%s", page)
	}
}

// TestCalendar: a reservation is drawn where it is in the week, one that has
// begun at the edge, one that is over not at all, and one of later is counted.
func TestCalendar(t *testing.T) {
	now := 100 * day
	c := calendarOf([]*apiv1.ReservationInfo{
		{Name: "over", Start: now - 2*day, End: now - day},
		{Name: "later", Start: now + 8*day, End: now + 9*day},
		{Name: "week", Start: now + 3*day, End: now + 30*day},
		{Name: "active", Start: now - day, End: now + 7*day/2, Active: true},
		{Name: "endless", Start: now + 6*day},
	}, now)
	var got []string
	for _, b := range c.Bars {
		got = append(got, b.Label+" "+formatNumber(b.X)+" "+formatNumber(b.Width))
	}
	if want := "active 0 500,week 428 572,endless 857 143"; strings.Join(got, ",") != want || c.More != 1 {
		t.Errorf("the calendar shows %q and %d more, want %q and 1", got, c.More, want)
	}
	if calendarOf(nil, now) != nil {
		t.Error("a calendar without reservations is drawn")
	}
}
