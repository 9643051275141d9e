package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// call is one request that only somebody else may make, or whose answer shows
// only what the asker may see.
type call struct {
	method string
	req    proto.Message
	rep    proto.Message
	reads  bool // it is answered for everybody: it is a breach if the answer shows another's job
}

func calls() []call {
	return []call{
		{
			service.Cluster_ListJobs_FullMethodName,
			&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: true}},
			&apiv1.ListJobsReply{},
			true,
		},
		{
			service.Cluster_CreateUserToken_FullMethodName,
			&apiv1.CreateUserTokenRequest{User: "root"},
			&apiv1.CreateUserTokenReply{},
			false,
		},
		{
			service.Cluster_CreateUserToken_FullMethodName,
			&apiv1.CreateUserTokenRequest{User: strconv.Itoa(victim)},
			&apiv1.CreateUserTokenReply{},
			false,
		},
		{
			service.Cluster_Reconfigure_FullMethodName,
			&apiv1.ReconfigureRequest{},
			&apiv1.ReconfigureReply{},
			false,
		},
	}
}

// attackCertificates comes with certificates of an authority of the attacker's
// own, with none, and with statements about who asks that nobody may make.
func attackCertificates(ctx context.Context, l *lab, r *report) error {
	held, err := l.submitJob(ctx, victim, "-H", "-J", secret, "--wrap", "true")
	if err != nil {
		return err
	}
	defer l.runAs(ctx, 0, "scancel", held)
	// A user's own question must be answered, or the refusals below say nothing.
	if err := l.callAsAttacker(ctx, calls()[0]); err != nil {
		return err
	}
	// The same name, the same roles, another key.
	authority, err := pki.NewCA("attacked", time.Now())
	if err != nil {
		return err
	}
	certificates := map[string]*tls.Certificate{"no certificate": nil}
	for _, kind := range []identity.Kind{identity.Admin, identity.Controller, identity.Login, identity.Agent} {
		for _, name := range []string{"node1", "root", "l1"} {
			pair, err := authority.Issue(pki.Holder{Role: kind, Name: name}, time.Now())
			if err != nil {
				return err
			}
			certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				return err
			}
			certificates[fmt.Sprintf("a false certificate of %s %s", kind, name)] = &certificate
			alone := certificate
			alone.Certificate = alone.Certificate[:1]
			certificates[fmt.Sprintf("a false certificate of %s %s without its authority", kind, name)] = &alone
		}
	}
	attests := []string{"", "0:0", fmt.Sprintf("%d:%d", victim, victim)}
	for name, certificate := range certificates {
		for _, port := range []int{portAPI, portAgent} {
			for _, attest := range attests {
				l.overTLS(ctx, r, name, port, certificate, attest)
			}
		}
	}
	for _, attest := range append(attests, "0:0:0", "-1:0", "4294967295:0", " 0:0", "0", "root", "0:0,1:1") {
		for _, path := range []string{l.socketPath(), l.stepSocket()} {
			l.overFrames(ctx, r, path, attest)
			l.overGRPC(ctx, r, path, attest)
		}
	}
	return nil
}

// overTLS makes the calls with a certificate. Without a valid one nothing is
// answered, to whatever user the statement names.
func (l *lab) overTLS(
	ctx context.Context,
	r *report,
	name string,
	port int,
	certificate *tls.Certificate,
	attest string,
) {
	config := func(protocol string) *tls.Config {
		cfg := &tls.Config{
			MinVersion:         tls.VersionTLS13,
			NextProtos:         []string{protocol},
			InsecureSkipVerify: true,
		} // the attack is about the client
		if certificate != nil {
			cfg.Certificates = []tls.Certificate{*certificate}
		}
		return cfg
	}
	target := client.Target{
		Network: "tcp",
		Address: l.portAddress(port),
		Secure: func(ctx context.Context, plain net.Conn) (net.Conn, error) {
			secure := tls.Client(plain, config(framed.ALPN))
			return secure, secure.HandshakeContext(ctx)
		},
	}
	for _, c := range calls() {
		err := callFramed(ctx, target, attest, c)
		r.countTry(
			err == nil,
			"with %s and the statement %q, %s is answered at port +%d over frames",
			name,
			attest,
			c.method,
			port,
		)
	}
	conn, err := grpcx.DialTLS(
		l.portAddress(port),
		func() *tls.Config { return config(channel.ALPNGRPC) },
	)
	if err != nil {
		r.countTry(false, "")
		return
	}
	defer conn.Close()
	for _, c := range calls() {
		err := callGRPC(ctx, conn, attest, c)
		r.countTry(
			err == nil,
			"with %s and the statement %q, %s is answered at port +%d over gRPC",
			name,
			attest,
			c.method,
			port,
		)
	}
}

// overFrames and overGRPC make the calls on a local socket, where the kernel
// says who asks. A statement beside that must not change it.
func (l *lab) overFrames(ctx context.Context, r *report, path, attest string) {
	for _, c := range calls() {
		raw, err := l.dialAs(ctx, path, attacker)
		if err != nil {
			r.countTry(false, "")
			continue
		}
		conn := client.New(raw)
		err = framedCall(ctx, conn, attest, c)
		conn.Close()
		r.countTry(
			succeeded(c, err),
			"with the statement %q, %s gives a user at %s what is not his over frames: %v",
			attest,
			c.method,
			path,
			c.rep,
		)
	}
}

func (l *lab) overGRPC(ctx context.Context, r *report, path, attest string) {
	conn, err := grpcx.DialUnix(
		path,
		grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return l.dialAs(ctx, path, attacker) },
		),
	)
	if err != nil {
		r.countTry(false, "")
		return
	}
	defer conn.Close()
	for _, c := range calls() {
		err := callGRPC(ctx, conn, attest, c)
		r.countTry(
			succeeded(c, err),
			"with the statement %q, %s gives a user at %s what is not his over gRPC: %v",
			attest,
			c.method,
			path,
			c.rep,
		)
	}
}

// succeeded tells whether an answer gives what is not the asker's.
func succeeded(c call, err error) bool {
	if err != nil {
		return false
	}
	return !c.reads || strings.Contains(fmt.Sprint(c.rep), secret)
}

// callLimit is how long one call may take.
const callLimit = 5 * time.Second

func callFramed(ctx context.Context, target client.Target, attest string, c call) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	conn, err := client.Dial(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close()
	return framedCall(ctx, conn, attest, c)
}

func framedCall(ctx context.Context, conn *client.Client, attest string, c call) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if attest != "" {
		conn = conn.With(framed.Pair{Key: framed.HeaderAttest, Value: attest})
	}
	return conn.Call(ctx, c.method, c.req, c.rep)
}

func callGRPC(ctx context.Context, conn *grpc.ClientConn, attest string, c call) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if attest != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, framed.HeaderAttest, attest)
	}
	return conn.Invoke(ctx, c.method, c.req, c.rep)
}
