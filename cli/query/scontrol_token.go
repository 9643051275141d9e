package query

import (
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// userToken prints a token as a line that a shell can evaluate.
func userToken(call *tool.Call, args []string) error {
	request := &apiv1.CreateUserTokenRequest{}
	for _, a := range args {
		key, value, _ := strings.Cut(a, "=")
		switch strings.ToLower(key) {
		case "lifespan":
			seconds, err := strconv.ParseUint(value, 10, 32)
			if err != nil || seconds == 0 {
				return call.Errorf("lifespan=%s: expected a number of seconds", value)
			}
			request.Lifetime = int64(spec.Span(seconds) * spec.Second)
		case "username":
			request.User = value
		case "scope":
			request.Scope = value
		default:
			return call.Errorf(
				"Invalid keyword: %s (scontrol token knows lifespan=, username= and scope=)",
				a,
			)
		}
	}
	var reply apiv1.CreateUserTokenReply
	if err := call.RPC(tool.MethodUserToken, request, &reply); err != nil {
		return err
	}
	return call.WriteOut([]byte("SLURM_JWT=" + reply.GetToken() + "\n"))
}
