package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTLS logs in over an encrypted listener, and fails to without the certificate.
func TestTLS(t *testing.T) {
	needLibrary(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	save := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, address := startWithLogins(t, Options{TLSCert: save("cert", "CERTIFICATE", cert), TLSKey: save("key", "PRIVATE KEY", private)})
	roots := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	o := overTCP(address, "grafana", "r3ad")
	o.TLS = &tls.Config{RootCAs: roots}
	if err := open(t, o).Ping(t.Context()); err != nil {
		t.Error(err)
	}
	distrusting := overTCP(address, "grafana", "r3ad")
	distrusting.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	if open(t, distrusting).Ping(t.Context()) == nil {
		t.Error("an unknown certificate was trusted")
	}
	if open(t, overTCP(address, "grafana", "r3ad")).Ping(t.Context()) == nil {
		t.Error("the password was taken in the clear")
	}
}
