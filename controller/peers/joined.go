package peers

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// Joined is a node whose agent shows a certificate of a cluster.
type Joined struct {
	Node    string
	Address string
	Since   time.Time // when the certificate was made, which renewals do anew
}

// How nodes are asked: not all of a large cluster at once, and none for long.
const (
	askedAtOnce = 64
	askPatience = 3 * time.Second
)

// FindJoined looks for a node whose agent has joined a cluster of this name, whatever authority
// made its certificate: one that was lost with the controller's disk did. It needs no certificate
// of its own, for an agent shows its own before it asks for one, and believes nothing but that
// somebody there calls himself so: who lies keeps a cluster from beginning until it is told to.
// Agents that listen elsewhere, or not at all, are not found.
func FindJoined(
	ctx context.Context,
	cluster string,
	nodes []spec.NodeSpec,
	port string,
) (found Joined, ok bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		once sync.Once
		wg   sync.WaitGroup
	)
	slots := make(chan struct{}, askedAtOnce)
	for i := range nodes {
		node := &nodes[i]
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return found, ok
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if joined, is := askJoined(ctx, cluster, node, port); is {
				once.Do(func() { found, ok = joined, true })
				stop()
			}
		})
	}
	wg.Wait()
	return found, ok
}

// askJoined asks the agent of one node.
func askJoined(
	ctx context.Context,
	cluster string,
	node *spec.NodeSpec,
	port string,
) (Joined, bool) {
	address := net.JoinHostPort(cmp.Or(node.Addr, node.Hostname, node.Name), port)
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	// Nothing is sent to the other side, and what it shows is not relied on.
	dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return Joined{}, false
	}
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return Joined{}, false
	}
	certs := secure.ConnectionState().PeerCertificates
	if len(certs) == 0 || len(certs[0].URIs) != 1 {
		return Joined{}, false
	}
	name, err := identity.ParseURI(certs[0].URIs[0])
	// Agents of a lab share the certificate of the controller beside them.
	is := err == nil && name.Cluster == cluster && name.Role == identity.Agent &&
		slices.Contains([]string{node.Name, node.Hostname, node.Addr}, name.Name)
	return Joined{Node: name.Name, Address: address, Since: certs[0].NotBefore}, is
}
