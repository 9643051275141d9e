package tool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// NoFederation says why the options of federations have nothing to do: a job is in one cluster,
// and other clusters are named with -M.
const NoFederation = "clusters are not joined into federations: -M names other clusters"

// WrongCluster tells that a socket leads to another cluster than the one that was named.
type WrongCluster struct{ Name, Socket, Found string }

// Error says how to mend it.
func (w *WrongCluster) Error() string {
	return fmt.Sprintf(
		"cluster %s: %s belongs to cluster %s: correct the path with sacctmgr modify cluster %s set socket=PATH",
		w.Name, w.Socket, w.Found, w.Name,
	)
}

// NamedCluster is the cluster that -M named and this call asks; empty without -M.
func (c *Call) NamedCluster() string { return c.named }

// Clusters makes a call for each cluster that -M names, in that order. Without -M it is this
// call itself. A cluster is connected to when it is asked for the first time; the caller ends
// each connection with EndCluster.
func (c *Call) Clusters() ([]*Call, error) {
	return c.clustersOr(func(name string) (*Call, error) {
		return nil, Fail(1,
			fmt.Sprintf("%s: error: No cluster '%s' known by database.", c.Command.Called(), name),
			fmt.Sprintf("%s: error: '%s' can't be reached now, or it is an invalid entry for --cluster."+
				"  Use 'sacctmgr list clusters' to see available clusters.", c.Command.Called(), name))
	})
}

// PastClusters is Clusters for what is over. A cluster that the controller does not know may have
// been imported, which accounting of this cluster tells.
func (c *Call) PastClusters() ([]*Call, error) {
	imported := func(name string) (*Call, error) {
		sub := c.withName(name)
		sub.imported = name
		return sub, nil
	}
	list, err := c.clustersOr(imported)
	var gone *Unreachable
	if !errors.As(err, &gone) {
		return list, err
	}
	if len(c.Opts.List("clusters")) == 1 { // accounting may answer while the controller is away
		return []*Call{c}, nil
	}
	return nil, err
}

func (c *Call) clustersOr(unknown func(name string) (*Call, error)) ([]*Call, error) {
	names := c.Opts.List("clusters")
	if len(names) == 0 || c.named != "" {
		return []*Call{c}, nil
	}
	var ping apiv1.PingReply
	if err := c.RPC(MethodPing, &apiv1.PingRequest{}, &ping); err != nil {
		return nil, err
	}
	var calls []*Call
	for _, name := range everyCluster(names, &ping) {
		sub, err := c.forCluster(name, &ping, unknown)
		if err != nil {
			return nil, err
		}
		calls = append(calls, sub)
	}
	return calls, nil
}

// everyCluster puts this cluster and all that it knows in the place of the word all, and names
// each once.
func everyCluster(names []string, ping *apiv1.PingReply) []string {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, name := range names {
		if !strings.EqualFold(name, "all") {
			add(name)
			continue
		}
		add(ping.GetCluster())
		for _, known := range ping.GetClusters() {
			add(known.GetName())
		}
	}
	return out
}

// forCluster is this call in another cluster, or in this one by its name.
func (c *Call) forCluster(
	name string,
	ping *apiv1.PingReply,
	unknown func(name string) (*Call, error),
) (*Call, error) {
	sub := c.withName(name)
	if name == ping.GetCluster() {
		return sub, nil
	}
	at := slices.IndexFunc(
		ping.GetClusters(),
		func(known *apiv1.KnownCluster) bool { return known.GetName() == name },
	)
	switch {
	case at < 0:
		return unknown(name)
	case !c.Outward:
		return nil, c.Errorf("cluster %s cannot be asked from here: commands of this kind stay in cluster %s",
			name, ping.GetCluster())
	case c.Getenv(TokenVariable) != "":
		// Another cluster must not get hold of a token of this one.
		return nil, c.Errorf("%s holds a token for cluster %s: unset it to use cluster %s",
			TokenVariable, ping.GetCluster(), name)
	}
	sub.Env = c.Env.inCluster(name, ping.GetClusters()[at].GetSocket())
	sub.Conn = nil
	sub.lent = false
	sub.Past = nil
	sub.lentPast = false
	return sub, nil
}

// withName is this call under the name of a cluster, with the same connections.
func (c *Call) withName(name string) *Call {
	sub := *c
	sub.named = name
	sub.lent = c.Conn != nil
	sub.lentPast = c.Past != nil
	return &sub
}

// inCluster is the world of a command that is typed at the socket of another cluster.
func (e *Env) inCluster(name, socket string) *Env {
	env := *e
	env.Environ = slices.DeleteFunc(slices.Clone(e.Environ), func(entry string) bool {
		return strings.HasPrefix(entry, "MUSTER_SOCKET=") || strings.HasPrefix(entry, "MUSTER_SERVER=")
	})
	env.Environ = append(env.Environ, "MUSTER_SOCKET="+socket)
	env.Dial = func(ctx context.Context) (Conn, error) {
		conn, err := env.DialController(ctx)
		var gone *Unreachable
		if errors.As(err, &gone) {
			gone.cluster = name
		}
		if err != nil {
			return nil, err
		}
		var ping apiv1.PingReply
		ctx, cancel := context.WithTimeout(ctx, dialPatience)
		defer cancel()
		err = conn.Call(ctx, MethodPing, &apiv1.PingRequest{}, &ping)
		if err == nil && ping.GetCluster() != name {
			err = &WrongCluster{Name: name, Socket: socket, Found: ping.GetCluster()}
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
	env.DialPast = env.DialAccounting
	return &env
}

// RunIn runs a command in the cluster of a call of Clusters, and ends its connections.
func (c *Call) RunIn(sub *Call, run func(c *Call) error) error {
	err := run(sub)
	if ended := c.EndCluster(sub); ended != nil {
		err = errors.Join(err, ended)
	}
	return err
}

// EndCluster ends the connections that a call of Clusters has made and c has not.
func (c *Call) EndCluster(sub *Call) error {
	if sub == c {
		return nil
	}
	var errs []error
	if sub.Conn != nil && !sub.lent {
		errs = append(errs, sub.Conn.Close())
	}
	if sub.Past != nil && !sub.lentPast {
		errs = append(errs, sub.Past.Close())
	}
	return errors.Join(errs...)
}

// EachCluster runs a command in each cluster that -M names. If one of several fails, its error is
// printed, the others still answer, and the exit code is that of the failure.
func (c *Call) EachCluster(run func(c *Call) error) error {
	list, err := c.Clusters()
	if err != nil {
		return err
	}
	return c.runInEach(list, run)
}

// EachPastCluster is EachCluster for the clusters of PastClusters.
func (c *Call) EachPastCluster(run func(c *Call) error) error {
	list, err := c.PastClusters()
	if err != nil {
		return err
	}
	return c.runInEach(list, run)
}

func (c *Call) runInEach(list []*Call, run func(c *Call) error) error {
	code := 0
	for _, sub := range list {
		err := c.RunIn(sub, run)
		if err == nil {
			continue
		}
		if len(list) == 1 || c.Ctx.Err() != nil {
			return err
		}
		code = max(code, c.ReportCluster(sub, err))
	}
	if code != 0 {
		return ExitCode(code)
	}
	return nil
}

// ReportCluster prints why a cluster does not answer, below what was printed so far, and returns
// the exit code that belongs to it.
func (c *Call) ReportCluster(sub *Call, err error) int {
	if flushed := c.Out.Flush(); flushed != nil {
		err = errors.Join(err, flushed)
	}
	return Report(c.Env, sub.InCluster(err), c.Command.Called(), 1)
}

// InCluster puts the cluster's name in front of an error that does not say it.
func (c *Call) InCluster(err error) error {
	var failed *ExitError
	var gone *Unreachable
	var wrong *WrongCluster
	if errors.As(err, &failed) || errors.As(err, &gone) || errors.As(err, &wrong) {
		return err
	}
	refusal := ExplainError(err)
	if refusal.Code == 0 {
		return fmt.Errorf("cluster %s: %w", c.named, err)
	}
	return Fail(1, append(refusal.Preamble(c.Command.Called()),
		fmt.Sprintf("%s: error: cluster %s: %s", c.Command.Called(), c.named, refusal.Text))...)
}

// EachHeaded is EachCluster with the name of the cluster above what it answers, where -M is given.
// Bare answers have no such line: documents, and listings without a header.
func (c *Call) EachHeaded(bare bool, run func(c *Call) error) error {
	first := true
	return c.EachCluster(func(sub *Call) error {
		if sub.named != "" && !bare {
			heading := "\nCLUSTER: " + sub.named + "\n"
			if first {
				heading = heading[1:]
			}
			first = false
			if err := c.WriteOut([]byte(heading)); err != nil {
				return err
			}
		}
		return run(sub)
	})
}

// OneCluster runs a command in the cluster that -M names, and refuses several.
func (c *Call) OneCluster(run func(c *Call) error) error {
	list, err := c.Clusters()
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return c.Errorf("Only one cluster can be used at a time with %s", c.Command.Name)
	}
	return c.RunIn(list[0], run)
}
