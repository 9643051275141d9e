package peers

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/spec"
)

// agentOf listens as the agent of a node does, with a certificate of the cluster's own authority,
// and asks who dials for one.
func agentOf(t *testing.T, cluster string, role identity.Kind, name string) (port string) {
	t.Helper()
	ca, err := pki.NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Holder{Role: role, Name: name}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"muster-steps"},
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).HandshakeContext(t.Context()) // the caller has no certificate
			conn.Close()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestFindJoined: the agent of a node of slurm.conf that has joined a cluster of this name is found
// whatever authority that cluster had, and nobody else is taken for one.
func TestFindJoined(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	_, silent, err := net.SplitHostPort(mute.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, port string
		found      bool
	}{
		{"an agent of this cluster", agentOf(t, "aurora", identity.Agent, "n2"), true},
		{"an agent of another cluster", agentOf(t, "borealis", identity.Agent, "n2"), false},
		{"an agent of a node that slurm.conf does not have", agentOf(t, "aurora", identity.Agent, "n9"), false},
		{"the certificate of a controller", agentOf(t, "aurora", identity.Controller, "n2"), false},
		{"a login host", agentOf(t, "aurora", identity.Login, "n2"), false},
		{"a port that says nothing", silent, false},
		{"a port where nobody is", "1", false},
	} {
		nodes := []spec.NodeSpec{{Name: "n1", Addr: "127.0.0.1"}, {Name: "n2", Addr: "127.0.0.1"}, {Name: "n3", Addr: "no.such.invalid"}}
		got, ok := FindJoined(t.Context(), "aurora", nodes, tc.port)
		if ok != tc.found {
			t.Errorf("%s: found %v (%+v)", tc.what, ok, got)
		}
		if ok && (got.Node != "n2" || got.Address != "127.0.0.1:"+tc.port || got.Since.IsZero()) {
			t.Errorf("%s: %+v", tc.what, got)
		}
	}
}
