package query

import (
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

func Token() *tool.Command {
	return &tool.Command{
		Name: "token", Mixed: true,
		Summary: "create a token with which a node or a login host joins the cluster",
		Usage:   []string{"[OPTIONS] NODE"},
		About: `The token is valid once, for this host, until it expires. Pass it to the agent in a file or on
standard input, never on the command line. Only administrators can create tokens, on the controller's host.
muster hosts lists the machines that have joined.`,
		Options: []opt.Option{
			{
				Long:  "lifetime",
				Short: "l",
				Arg:   "<1h|1d|...>",
				Help:  "validity period (default: 1d)",
			},
			{
				Long: "login",
				Help: "for a login host, whose agent forwards the commands of its users; the host need not be in slurm.conf",
			},
		},
		Example: []tool.Example{
			{
				Line: "muster token n7 | ssh n7 muster-agent --enrol --token-file -",
				What: "a node of slurm.conf",
			},
			{
				Line: "muster token --login l1 | ssh l1 muster-agent --login --enrol --controller ctl --token-file -",
				What: "a login host",
			},
		},
		Run: func(call *tool.Call) error {
			if len(call.Operands) != 1 {
				return &opt.UsageError{Command: "muster token", Text: "name one node"}
			}
			request := &apiv1.CreateTokenRequest{
				Node: call.Operands[0], Login: call.Opts.On("login"),
			}
			if call.Opts.On("lifetime") {
				span, ok := tool.ParseWindow(call.Opts.Text("lifetime"))
				if !ok {
					return call.Errorf(
						"--lifetime=%s: expected a number with m, h, d or w, such as 12h",
						call.Opts.Text("lifetime"),
					)
				}
				request.Lifetime = span
			}
			var reply apiv1.CreateTokenReply
			if err := call.RPC(tool.MethodCreateToken, request, &reply); err != nil {
				return err
			}
			fmt.Fprintf(
				call.Stderr,
				"token for %s, good once until %s\n",
				request.GetNode(),
				render.FormatTime(call, reply.GetExpires()),
			)
			return call.WriteOut([]byte(reply.GetToken() + "\n"))
		},
	}
}
