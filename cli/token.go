package cli

import (
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
)

func tokenCommand() *command {
	return &command{
		name: "token", mixed: true,
		summary: "make a token with which a node or a login host joins the cluster",
		usage:   []string{"[OPTIONS] NODE"},
		about: `The token works once, for this host, until it expires. Give it to the agent through a file or its standard input,
never on a command line. Only operators can make one, on the controller's host. muster hosts lists who has joined.`,
		options: []opt.Option{{Long: "lifetime", Short: "l", Arg: "<1h|1d|...>", Help: "how long it works, 1d without the option"},
			{Long: "login", Help: "for a login host, whose users' commands its agent passes on; it need not be in slurm.conf"}},
		example: []example{{"muster token n7 | ssh n7 muster-agent --enrol --token-file -", "a node of slurm.conf"},
			{"muster token --login l1 | ssh l1 muster-agent --login --enrol --controller ctl --token-file -", "a login host"}},
		run: func(c *call) error {
			if len(c.args) != 1 {
				return &opt.UsageError{Command: "muster token", Text: "name one node"}
			}
			req := &apiv1.CreateTokenRequest{Node: c.args[0], Login: c.opts.On("login")}
			if c.opts.On("lifetime") {
				span, ok := window(c.opts.Text("lifetime"))
				if !ok {
					return c.errorf("--lifetime=%s: expected a number with m, h, d or w, such as 12h", c.opts.Text("lifetime"))
				}
				req.Lifetime = span
			}
			var rep apiv1.CreateTokenReply
			if err := c.ask(methodCreateToken, req, &rep); err != nil {
				return err
			}
			fmt.Fprintf(c.Stderr, "token for %s, good once until %s\n", req.GetNode(), c.time(rep.GetExpires()))
			return c.write([]byte(rep.GetToken() + "\n"))
		},
	}
}
