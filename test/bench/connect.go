package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/spec"
)

// address is where the controller is.
type address struct {
	config string
	socket string
}

func (a *address) flags(flags *pflag.FlagSet) {
	conffile.AddFlag(flags, &a.config, "muster.yaml `file` of the cluster")
	flags.StringVar(
		&a.socket,
		"socket",
		os.Getenv("MUSTER_SOCKET"),
		"the controller's local `socket` (environment: MUSTER_SOCKET; default: the configuration's)",
	)
}

// resolve finds the socket.
func (a *address) resolve() (string, error) {
	if a.socket != "" {
		return a.socket, nil
	}
	config, err := conffile.Load(a.config)
	if err != nil {
		return "", fmt.Errorf(
			"where is the controller? name its --socket or the cluster's --config: %w",
			err,
		)
	}
	return config.Socket, nil
}

// cluster is a connection to a controller that answers.
type cluster struct {
	socket string
	conn   *grpc.ClientConn
	api    service.ClusterClient
	acct   service.AccountingClient
	ping   *apiv1.PingReply
}

const pingPatience = 10 * time.Second

// connectCluster dials the socket and waits for an answer.
func connectCluster(ctx context.Context, a *address) (*cluster, error) {
	socket, err := a.resolve()
	if err != nil {
		return nil, err
	}
	conn, err := grpcx.DialUnix(socket)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		socket: socket,
		conn:   conn,
		api:    service.NewClusterClient(conn),
		acct:   service.NewAccountingClient(conn),
	}
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	c.ping, err = c.api.Ping(ctx, &apiv1.PingRequest{})
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("the controller at %s does not answer: %w", socket, err),
			conn.Close(),
		)
	}
	return c, nil
}

func (c *cluster) close() { _ = c.conn.Close() } // nothing is lost: every call was answered

// controllerPID of the controller, as the kernel tells it about the socket's other end.
func (c *cluster) controllerPID() (int, error) {
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if cerr != nil {
		return 0, cerr
	}
	return int(cred.Pid), nil
}

// occupyNodes fills the nodes with one job that holds them whole, so that nothing
// else can start, and waits until it runs. The release ends it.
func (c *cluster) occupyNodes(
	ctx context.Context,
	name string,
	p *progress,
) (describe string, release func(), err error) {
	list, err := c.api.ListNodes(ctx, &apiv1.ListNodesRequest{})
	if err != nil {
		return "", nil, err
	}
	up := uint32(0)
	for _, node := range list.GetNodes() {
		if node.GetRegistered() && !node.GetLost() {
			up++
		}
	}
	if up == 0 {
		return fmt.Sprintf(
			"%d nodes, none of them up: nothing can start",
			len(list.GetNodes()),
		), func() {}, nil
	}
	job := &apiv1.JobSpec{
		Name:      name,
		MinNodes:  up,
		MaxNodes:  up,
		Sharing:   uint32(spec.Exclusive),
		WorkDir:   "/",
		Stdout:    "/dev/null",
		TimeLimit: int64(time.Hour),
	}
	reply, err := c.api.Submit(
		ctx,
		&apiv1.SubmitRequest{
			Spec:        job,
			Script:      &apiv1.Blob{Data: []byte("#!/bin/sh\nexec sleep 3600\n")},
			Environment: &apiv1.Blob{Data: []byte("PATH=/usr/bin:/bin\x00")},
		},
	)
	if err != nil {
		return "", nil, fmt.Errorf("fill the %d nodes: %w", up, err)
	}
	id := reply.GetJobId()
	release = func() { c.cancelJobs(context.WithoutCancel(ctx), &apiv1.JobFilter{Jobs: []string{fmt.Sprint(id)}}, p) }
	running := func() (bool, error) {
		jobs, err := c.api.ListJobs(
			ctx,
			&apiv1.ListJobsRequest{
				Filter: &apiv1.JobFilter{Jobs: []string{fmt.Sprint(id)}, AllStates: true},
			},
		)
		if err != nil || len(jobs.GetJobs()) == 0 {
			return false, err
		}
		return jobs.GetJobs()[0].GetStart() != 0 && jobs.GetJobs()[0].GetNumNodes() == up, nil
	}
	if err := pollUntil(ctx, 30*time.Second, running); err != nil {
		release()
		return "", nil, fmt.Errorf(
			"job %d, which should fill the %d nodes, does not start: is the cluster busy? (--fill=false measures it as it is): %w",
			id,
			up,
			err,
		)
	}
	return fmt.Sprintf("%d nodes, full (job %d holds them)", up, id), release, nil
}

// cancelJobs ends jobs; what goes wrong is only told.
func (c *cluster) cancelJobs(ctx context.Context, filter *apiv1.JobFilter, p *progress) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	if _, err := c.api.Cancel(ctx, &apiv1.CancelRequest{Filter: filter}); err != nil {
		p.say("the benchmark's jobs are still there, cancelling failed: %v", err)
	}
}

var errTimeout = errors.New("it took too long")

const pollEvery = 20 * time.Millisecond

// pollUntil asks until the answer is yes.
func pollUntil(ctx context.Context, most time.Duration, request func() (bool, error)) error {
	deadline := time.Now().Add(most)
	for {
		yes, err := request()
		if yes || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w (%s)", errTimeout, most)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}
