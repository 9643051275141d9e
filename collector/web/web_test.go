package web

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const bcryptSecret = "$2a$04$UPJXLs9Xd/CuykeaYVSMJOXvaKf8akDR4QlSWKtXQBj3WXVgfXADK"

func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func serve(t *testing.T, o Options) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("figures")) }), ReadHeaderTimeout: time.Second}
	done := make(chan error, 1)
	go func() { done <- o.Serve(l, srv, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func status(t *testing.T, c *http.Client, url string, change func(r *http.Request)) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestBearer(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "token", "a-token-of-some-length\n", 0o600)
	url := "http://" + serve(t, Options{TokenFile: file})
	with := func(auth string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", auth) }
	}
	for _, tc := range []struct {
		auth string
		want int
	}{{"Bearer a-token-of-some-length", 200}, {"bearer a-token-of-some-length", 200}, {"Bearer wrong", 401}, {"Basic a-token-of-some-length", 401}, {"", 401}} {
		if got := status(t, http.DefaultClient, url, with(tc.auth)); got != tc.want {
			t.Errorf("%q: %d, want %d", tc.auth, got, tc.want)
		}
	}
	write(t, dir, "token", "another-token-of-length\n", 0o600)
	if got := status(t, http.DefaultClient, url, with("Bearer another-token-of-length")); got != 200 {
		t.Errorf("after rotation: %d", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := status(t, http.DefaultClient, url, with("Bearer another-token-of-length")); got != 500 {
		t.Errorf("without the file: %d, want 500", got)
	}
}

func TestTLSAndPasswords(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o600)
	write(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})), 0o600)
	// The password is "secret", at bcrypt's lowest cost.
	conf := write(t, dir, "web.yml", "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {prom: '"+bcryptSecret+"'}\n", 0o600)
	o := Options{ConfigFile: conf}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	url := "https://" + serve(t, o)
	if got := status(t, c, url, nil); got != 401 {
		t.Errorf("without a password: %d", got)
	}
	if got := status(t, c, url, func(r *http.Request) { r.SetBasicAuth("prom", "secret") }); got != 200 {
		t.Errorf("with the password: %d", got)
	}
	if got := status(t, c, url, func(r *http.Request) { r.SetBasicAuth("prom", "guess") }); got != 401 {
		t.Errorf("with another password: %d", got)
	}
	c.CloseIdleConnections()
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{TokenFile: write(t, dir, "open", "a-token-of-some-length", 0o644)}, "mode 0644, so others can read it: chmod 600"},
		{Options{TokenFile: write(t, dir, "short", "x\n", 0o600)}, "has 1 characters, 16 at least are needed"},
		{Options{TokenFile: filepath.Join(dir, "none")}, "no such file"},
		{Options{ConfigFile: filepath.Join(dir, "none.yml")}, "no such file"},
		{Options{ConfigFile: write(t, dir, "bad.yml", "tls_server: {}\n", 0o600)}, "field tls_server not found"},
		{Options{ConfigFile: write(t, dir, "plain.yml", "basic_auth_users: {prom: secret}\n", 0o600)}, "too short to be a bcrypted password"},
	} {
		err := tc.o.Check()
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.o, err, tc.want)
		}
	}
	if err := (Options{}).Check(); err != nil {
		t.Error(err)
	}
}
