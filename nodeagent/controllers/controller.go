// Package controllers is the agent's way to the cluster's controllers: the one that leads among
// several, the credentials it signs, the configuration it sends, samples of GPUs to accounting,
// and the socket at which this host's commands reach it.
package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/credential"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/spec"
)

// Controllers reaches one of the cluster's controllers: the one that answered
// last, or the next after a failure.
type Controllers struct {
	addresses []string
	source    *pki.Source // nil: unix sockets only
	options   []grpc.DialOption

	mu    sync.Mutex
	at    int
	conns map[string]*grpc.ClientConn
}

// NewControllers reaches the controllers at some addresses; a path is a socket of this host.
func NewControllers(
	addresses []string, source *pki.Source, options ...grpc.DialOption,
) *Controllers {
	return &Controllers{
		addresses: addresses,
		source:    source,
		options:   options,
		conns:     map[string]*grpc.ClientConn{},
	}
}

// dialController makes a client of an address; it connects when it is used.
func dialController(
	address string, source *pki.Source, options ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	if strings.Contains(address, "/") {
		return grpcx.DialUnix(address, options...)
	}
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	return grpcx.DialTLS(
		address,
		func() *tls.Config { return source.Client(name, identity.Controller, channel.ALPNGRPC) },
		options...,
	)
}

// CurrentClient gives a client of the controller to use now.
func (c *Controllers) CurrentClient() (service.AgentsClient, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	address := c.addresses[c.at%len(c.addresses)]
	conn := c.conns[address]
	if conn == nil {
		var err error
		conn, err = dialController(address, c.source, c.options...)
		if err != nil {
			return nil, address, err
		}
		c.conns[address] = conn
	}
	conn.ResetConnectBackoff() // the agent has pauses of its own
	return service.NewAgentsClient(conn), address, nil
}

// noteFailed goes on to the next controller. A client that could not connect is closed: gRPC would
// dial for it as long as it exists, and the agents of a large cluster together would
// keep the controllers that do not lead busy with handshakes.
func (c *Controllers) noteFailed(address string) {
	c.mu.Lock()
	c.at++
	conn := c.conns[address]
	unconnected := conn != nil && conn.GetState() != connectivity.Ready
	if unconnected {
		delete(c.conns, address)
	}
	c.mu.Unlock()
	if unconnected {
		_ = conn.Close() // calls that wait for it are made again at the next controller
	}
}

// Connect implements daemon.Controller. It tries each controller once: only the
// one that leads takes agents.
func (c *Controllers) Connect(ctx context.Context) (daemon.Stream, error) {
	var errs []string
	for range c.addresses {
		client, address, err := c.CurrentClient()
		if err == nil {
			var s service.Agents_ConnectClient
			s, err = client.Connect(ctx)
			if err == nil {
				return &stream{Agents_ConnectClient: s, of: c, address: address}, nil
			}
		}
		c.noteFailed(address)
		errs = append(errs, fmt.Sprintf("controller %s: %v", address, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.New(strings.Join(errs, "; "))
}

// Close ends all connections.
func (c *Controllers) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, a := range c.addresses {
		if conn := c.conns[a]; conn != nil {
			errs = append(errs, conn.Close())
			delete(c.conns, a)
		}
	}
	return errors.Join(errs...)
}

// stream names the controller in its errors.
type stream struct {
	service.Agents_ConnectClient
	of      *Controllers
	address string
	once    sync.Once
}

// Recv implements daemon.Stream.
func (s *stream) Recv() (*apiv1.ControllerMessage, error) {
	message, err := s.Agents_ConnectClient.Recv()
	if err != nil {
		s.once.Do(func() { s.of.noteFailed(s.address) })
		return nil, fmt.Errorf("controller %s: %w", s.address, err)
	}
	return message, nil
}

// skew is how much the clocks of node and controller may differ.
const skew = 5 * spec.Minute

// Verifier checks credentials with the keys of the last welcome. It belongs
// to the agent's owner.
type Verifier struct {
	Node    string
	cluster [16]byte
	keys    *credential.Verifier
}

// Use implements daemon.Credentials.
func (v *Verifier) Use(keys [][]byte, cluster [16]byte) error {
	list := make([]credential.PublicKey, len(keys))
	for i, b := range keys {
		var err error
		list[i], err = credential.ParsePublicKey(b)
		if err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("%w: the controller sent no key", credential.ErrMalformed)
	}
	fresh, err := credential.NewVerifier(list)
	if err != nil {
		return err
	}
	v.keys, v.cluster = fresh, cluster
	return nil
}

// Verify implements daemon.Credentials.
func (v *Verifier) Verify(raw []byte, now spec.Instant) (credentials.Claims, error) {
	if v.keys == nil {
		return credentials.Claims{}, errors.New("the controller's keys are not known yet")
	}
	c, err := v.keys.Verify(raw, now, skew)
	if errors.Is(err, credential.ErrExpired) || errors.Is(err, credential.ErrNotYet) {
		return credentials.Claims{}, fmt.Errorf("%w: %w", daemon.ErrClock, err)
	}
	if err == nil {
		err = c.CheckNode(v.cluster, v.Node)
	}
	if err != nil {
		return credentials.Claims{}, err
	}
	claims := credentials.Claims{
		Cluster: c.Cluster,
		Job:     c.Job,
		Attempt: c.Attempt,
		Step:    c.Step,
		UID:     c.UID,
		GID:     c.GID,
		Groups:  c.Groups,
		Issued:  c.Issued,
		Expires: c.Expires,
		Launch:  c.Launch,
		Epoch:   c.Epoch,
	}
	copy(claims.Run[:], c.Run)
	return claims, nil
}
