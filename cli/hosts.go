package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
)

func hostsCommand() *command {
	return &command{
		name: "hosts", mixed: true,
		summary: "list the machines that have joined the cluster, or send one away",
		usage:   []string{"", "revoke NAME [--role agent|login] [--reason TEXT]"},
		about: `A machine joins with a token (muster token) and has a certificate from then on, as an agent that runs jobs, as a
login host, or both. revoke ends its certificates at once: its connections are closed, and what it says from then on is refused.
Jobs on a node that is revoked go on, unheard, as on one that is silent. Only operators can do it, on the controller's host.`,
		options: []opt.Option{{Long: "role", Arg: "<agent|login>", Help: "revoke the certificates of one role only"},
			{Long: "reason", Arg: "<text>", Help: "why; it is kept in the ledger"}},
		example: []example{{"muster hosts", "who has joined, and until when"}, {"muster hosts revoke l2 --reason 'stolen key'", "nobody comes in from l2 any more"}},
		run: func(c *call) error {
			switch {
			case len(c.args) == 0 && !c.opts.On("role") && !c.opts.On("reason"):
				return c.listHosts()
			case len(c.args) == 2 && c.args[0] == "revoke":
				return c.revokeHost()
			}
			return &opt.UsageError{Command: "muster hosts", Text: "expected nothing, or revoke and the name of a machine"}
		},
	}
}

func (c *call) listHosts() error {
	var rep apiv1.ListHostsReply
	if err := c.ask(methodListHosts, &apiv1.ListHostsRequest{}, &rep); err != nil {
		return err
	}
	return c.hostTable(rep.GetHosts(), rep.GetNow())
}

func (c *call) revokeHost() error {
	var rep apiv1.RevokeHostReply
	req := &apiv1.RevokeHostRequest{Name: c.args[1], Role: c.opts.Text("role"), Reason: c.opts.Text("reason")}
	if err := c.ask(methodRevokeHost, req, &rep); err != nil {
		return err
	}
	return c.hostTable(rep.GetHosts(), 0)
}

// hostTable prints certificates by machine, the one that lasts longest first.
func (c *call) hostTable(hosts []*apiv1.HostInfo, now int64) error {
	slices.SortFunc(hosts, func(a, b *apiv1.HostInfo) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetRole(), b.GetRole()), cmp.Compare(b.GetExpires(), a.GetExpires()), cmp.Compare(a.GetSerial(), b.GetSerial()))
	})
	rows := [][]string{{"HOST", "ROLE", "STATE", "EXPIRES", "SERIAL"}}
	for _, h := range hosts {
		state := "valid"
		switch {
		case h.GetRevoked():
			state = "revoked"
		case h.GetExpires()-now < int64(7*24*time.Hour) && now > 0:
			state = "ends soon"
		}
		rows = append(rows, []string{h.GetName(), h.GetRole(), state, c.time(h.GetExpires()), h.GetSerial()})
	}
	var width [4]int
	for _, row := range rows {
		for i := range width {
			width[i] = max(width[i], len(row[i]))
		}
	}
	var b []byte
	for _, row := range rows {
		for i := range width {
			b = fmt.Appendf(b, "%-*s  ", width[i], row[i])
		}
		b = append(append(b, row[len(width)]...), '\n')
	}
	return c.write(b)
}
