// Package suppose is muster suppose: commands that change the cluster run against a
// connection that keeps their requests, and the controller says what those would do
// to the queue.
package suppose

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/acct"
	"github.com/musterhpc/muster/cli/query"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/cli/tool"
)

// commands are those whose changes can be supposed, in the order of their names.
func commands() []func() *tool.Command {
	return []func() *tool.Command{acct.Sacctmgr, submit.Sbatch, query.Scancel, query.Scontrol}
}

// CollectTyped is Collect for a line that somebody typed on another machine: a command
// that may read or write files of this one is refused.
func CollectTyped(
	ctx context.Context,
	env *tool.Env,
	line string,
) ([]*apiv1.SupposedChange, error) {
	words, err := tool.ShellWords(line)
	if err != nil {
		return nil, err
	}
	if len(words) > 0 && !isHarmless(words) {
		return nil, fmt.Errorf("%s cannot be supposed here: use muster suppose in a shell", line)
	}
	return Collect(ctx, env, line)
}

// isHarmless tells a command that only asks the controller, by its first words.
func isHarmless(words []string) bool {
	verbs := map[string][]string{
		"scontrol": {
			"update", "create", "delete", "top", "hold", "uhold", "release", "requeue", "requeuehold",
			"suspend", "resume",
		},
		"sacctmgr": {"add", "create", "modify", "update", "delete", "remove"},
	}
	allowed, limited := verbs[words[0]]
	switch {
	case words[0] == "add" || words[0] == "scancel":
		return true
	case !limited:
		return false
	}
	return len(words) > 1 && slices.Contains(allowed, strings.ToLower(words[1]))
}

// Collect runs one line of a command and returns the changes that it would make. The
// line is a command as a shell takes it, or "add 8 nodes like n1". What the command
// reads it reads from the cluster as it is.
func Collect(ctx context.Context, env *tool.Env, line string) ([]*apiv1.SupposedChange, error) {
	words, err := tool.ShellWords(line)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, errors.New("there is no command")
	}
	if words[0] == "add" {
		change, err := parseAdd(words)
		if err != nil {
			return nil, err
		}
		return []*apiv1.SupposedChange{change}, nil
	}
	command, err := findCommand(words[0])
	if err != nil {
		return nil, err
	}
	return collectCommand(ctx, env, command, words)
}

// parseAdd reads "add 8 nodes like n1".
func parseAdd(words []string) (*apiv1.SupposedChange, error) {
	form := errors.New("expected: add COUNT nodes like NODE")
	if len(words) != 5 || !strings.HasPrefix(words[2], "node") || words[3] != "like" {
		return nil, form
	}
	count, err := strconv.ParseInt(words[1], 10, 32)
	if err != nil || count < 1 {
		return nil, form
	}
	added := &apiv1.AddedNodes{Count: count, Like: words[4]}
	return &apiv1.SupposedChange{Change: &apiv1.SupposedChange_AddNodes{AddNodes: added}}, nil
}

func findCommand(name string) (*tool.Command, error) {
	var names []string
	for _, make := range commands() {
		command := make()
		if command.Name == name {
			return command, nil
		}
		names = append(names, command.Name)
	}
	return nil, fmt.Errorf(
		"%s cannot be supposed: expected one of %s, or: add COUNT nodes like NODE",
		name,
		strings.Join(names, ", "),
	)
}

// collectCommand runs a command in a world where its changes are kept.
func collectCommand(
	ctx context.Context,
	env *tool.Env,
	command *tool.Command,
	words []string,
) ([]*apiv1.SupposedChange, error) {
	kept := &keeper{}
	var printed, said bytes.Buffer
	world := *env
	world.Outward = false // a supposition is about this cluster
	world.Args = words
	world.Stdin = strings.NewReader("")
	world.Stdout = &printed
	world.Stderr = &said
	world.Terminal = func(any) bool { return false }
	world.Dial = func(ctx context.Context) (tool.Conn, error) {
		conn, err := env.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &keepingConn{Conn: conn, keeper: kept}, nil
	}
	args := words[1:]
	if command.Name == "sacctmgr" { // nobody is there to confirm
		args = slices.Concat([]string{"--immediate"}, args)
	}
	err := tool.Execute(ctx, &world, command, args)
	if err == nil && len(kept.changes) > 0 {
		return kept.changes, nil
	}
	if err == nil {
		return nil, fmt.Errorf("%s changes nothing", strings.Join(words, " "))
	}
	tool.Report(&world, err, command.Called(), 1)
	for _, output := range []*bytes.Buffer{&said, &printed} { // some refuse on standard output
		if text := strings.TrimSpace(output.String()); text != "" {
			return nil, errors.New(text)
		}
	}
	return nil, err
}

// keeper has the changes of one command.
type keeper struct{ changes []*apiv1.SupposedChange }

// keepingConn keeps requests that change something, and answers them with an empty
// reply; other requests go to the controller.
type keepingConn struct {
	tool.Conn
	keeper *keeper
}

// supposed is a request as a change; nil where it cannot be one.
func supposed(request proto.Message) *apiv1.SupposedChange {
	change := &apiv1.SupposedChange{}
	switch r := request.(type) {
	case *apiv1.UpdateNodeRequest:
		change.Change = &apiv1.SupposedChange_UpdateNode{UpdateNode: r}
	case *apiv1.NodeChange:
		change.Change = &apiv1.SupposedChange_ChangeNodes{ChangeNodes: r}
	case *apiv1.PartitionChange:
		change.Change = &apiv1.SupposedChange_ChangePartition{ChangePartition: r}
	case *apiv1.PolicyChangeRequest:
		if r.GetTry() {
			return nil // it asks what would be changed
		}
		change.Change = &apiv1.SupposedChange_ChangePolicy{ChangePolicy: r}
	case *apiv1.ReservationChange:
		change.Change = &apiv1.SupposedChange_ChangeReservation{ChangeReservation: r}
	case *apiv1.CancelRequest:
		change.Change = &apiv1.SupposedChange_Cancel{Cancel: r}
	case *apiv1.ControlJobsRequest:
		change.Change = &apiv1.SupposedChange_ControlJobs{ControlJobs: r}
	case *apiv1.SubmitRequest:
		if r.GetTestOnly() {
			return nil // it changes nothing
		}
		change.Change = &apiv1.SupposedChange_Submit{Submit: r}
	default:
		return nil
	}
	return change
}

// reading are the methods that go to the controller.
func reading() []string {
	return []string{
		tool.MethodListJobs, tool.MethodStreamJobs, tool.MethodListNodes, tool.MethodListPartitions,
		tool.MethodGetConfig, tool.MethodGetPolicy, tool.MethodReservations, tool.MethodPing,
		tool.MethodGetCliFilter,
		tool.MethodChangePolicy, // only where it is a try
	}
}

// keep keeps a change. It is false for a request that is to be sent.
func (c *keepingConn) keep(method string, request proto.Message) (bool, error) {
	if change := supposed(request); change != nil {
		c.keeper.changes = append(c.keeper.changes, change)
		return true, nil
	}
	if slices.Contains(reading(), method) {
		return false, nil
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	return false, fmt.Errorf("%s cannot be supposed", name)
}

// Call implements tool.Conn.
func (c *keepingConn) Call(ctx context.Context, method string, request, resp proto.Message) error {
	kept, err := c.keep(method, request)
	if err != nil {
		return err
	}
	if !kept {
		return c.Conn.Call(ctx, method, request, resp)
	}
	if policy, ok := resp.(*apiv1.PolicyChangeReply); ok {
		policy.Changed = []string{"supposed"} // else sacctmgr says that nothing was changed
	}
	return nil
}

// Start implements tool.Conn.
func (c *keepingConn) Start(
	ctx context.Context,
	method string,
	request proto.Message,
) (tool.Pending, error) {
	kept, err := c.keep(method, request)
	if err != nil {
		return nil, err
	}
	if kept {
		return answered{}, nil
	}
	return c.Conn.Start(ctx, method, request)
}

// Stream implements tool.Conn.
func (c *keepingConn) Stream(
	ctx context.Context,
	method string,
	request proto.Message,
) (tool.Receiver, error) {
	if _, err := c.keep(method, request); err != nil {
		return nil, err
	}
	return c.Conn.Stream(ctx, method, request)
}

// answered is the empty reply to a change that was kept.
type answered struct{}

func (answered) Wait(proto.Message) error { return nil }
