package query

import (
	"cmp"
	"slices"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

func Hosts() *tool.Command {
	return &tool.Command{
		Name: "hosts", Mixed: true,
		Summary: "list the machines that have joined the cluster, or revoke one",
		Usage:   []string{"", "revoke NAME [--role agent|login] [--reason TEXT]"},
		About: `A machine joins with a token (muster token) and then has a certificate, as an agent that runs
jobs, as a login host, or both. revoke takes effect immediately: open connections of the machine are closed,
and new ones are refused. Jobs on a revoked node keep running, but the node counts as not responding. Only
administrators can revoke, on the controller's host.`,
		Options: []opt.Option{
			{Long: "role", Arg: "<agent|login>", Help: "revoke the certificates of one role only"},
			{Long: "reason", Arg: "<text>", Help: "reason, which is recorded in the ledger"},
		},
		Example: []tool.Example{
			{
				Line: "muster hosts",
				What: "lists the machines with the expiry of their certificates",
			},
			{
				Line: "muster hosts revoke l2 --reason 'stolen key'",
				What: "revokes the certificates of l2",
			},
		},
		Run: func(call *tool.Call) error {
			switch {
			case len(call.Operands) == 0 && !call.Opts.On("role") && !call.Opts.On("reason"):
				return listHosts(call)
			case len(call.Operands) == 2 && call.Operands[0] == "revoke":
				return revokeHost(call)
			}
			return &opt.UsageError{
				Command: "muster hosts",
				Text:    "expected nothing, or revoke and the name of a machine",
			}
		},
	}
}

func listHosts(call *tool.Call) error {
	var reply apiv1.ListHostsReply
	if err := call.RPC(tool.MethodListHosts, &apiv1.ListHostsRequest{}, &reply); err != nil {
		return err
	}
	return hostTable(call, reply.GetHosts(), reply.GetNow())
}

func revokeHost(call *tool.Call) error {
	var reply apiv1.RevokeHostReply
	request := &apiv1.RevokeHostRequest{
		Name:   call.Operands[1],
		Role:   call.Opts.Text("role"),
		Reason: call.Opts.Text("reason"),
	}
	if err := call.RPC(tool.MethodRevokeHost, request, &reply); err != nil {
		return err
	}
	return hostTable(call, reply.GetHosts(), 0)
}

// hostTable prints certificates by machine, the one that lasts longest first.
func hostTable(call *tool.Call, hosts []*apiv1.HostInfo, now int64) error {
	slices.SortFunc(hosts, func(a, b *apiv1.HostInfo) int {
		return cmp.Or(
			cmp.Compare(a.GetName(), b.GetName()),
			cmp.Compare(a.GetRole(), b.GetRole()),
			cmp.Compare(b.GetExpires(), a.GetExpires()),
			cmp.Compare(a.GetSerial(), b.GetSerial()),
		)
	})
	rows := [][]string{{"HOST", "ROLE", "STATE", "EXPIRES", "SERIAL"}}
	for _, host := range hosts {
		state := "valid"
		switch {
		case host.GetRevoked():
			state = "revoked"
		case host.GetExpires()-now < int64(7*24*time.Hour) && now > 0:
			state = "ends soon"
		}
		rows = append(
			rows,
			[]string{
				host.GetName(),
				host.GetRole(),
				state,
				render.FormatTime(call, host.GetExpires()),
				host.GetSerial(),
			},
		)
	}
	return call.WriteOut([]byte(render.AlignedTexts(rows)))
}
