package audit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rsyslogd runs a real rsyslog that writes the text of messages to a file, and
// returns how to stop it.
func rsyslogd(t *testing.T, dir, inputs string) (stop func()) {
	t.Helper()
	program, err := exec.LookPath("rsyslogd")
	if err != nil {
		program = "/usr/sbin/rsyslogd"
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("rsyslogd is not installed: deploy/deps/install.sh test installs it")
	}
	conf := filepath.Join(dir, "rsyslog.conf")
	text := `global(workDirectory="` + dir + `" maxMessageSize="8k")
` + inputs + `
template(name="line" type="string" string="%msg%\n")
if $programname == "muster" then action(type="omfile" file="` + filepath.Join(dir, "got") + `" template="line" asyncWriting="off")
`
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.Command(program, "-n", "-f", conf, "-i", filepath.Join(dir, "pid"))
	cmd.Stdout = &out
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Logf("rsyslogd: %v\n%s", err, out.String())
		}
	}
	t.Cleanup(stop)
	return stop
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String()) // it has just been made
	return port
}

// TestRsyslog: Debian's rsyslog gets every change over tcp, tls and its socket, also
// those that happened while it was away.
func TestRsyslog(t *testing.T) {
	for _, network := range []string{"tcp", "tls", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			port := freePort(t)
			cfg := SyslogConfig{Network: network, Address: "127.0.0.1:" + port, Facility: "local3", Host: "ctl1"}
			var inputs string
			switch network {
			case "tcp":
				inputs = `module(load="imtcp")` + "\n" + `input(type="imtcp" address="127.0.0.1" port="` + port + `")`
			case "tls":
				if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/rsyslog/lmnsd_gtls.so"); err != nil {
					t.Skip("rsyslog-gnutls is not installed: deploy/deps/install.sh test installs it")
				}
				cfg.CA = filepath.Join(dir, "cert.pem")
				ownCertificate(t, cfg.CA, filepath.Join(dir, "key.pem"))
				inputs = `global(defaultNetstreamDriver="gtls" defaultNetstreamDriverCAFile="` + cfg.CA + `" defaultNetstreamDriverCertFile="` + cfg.CA +
					`" defaultNetstreamDriverKeyFile="` + filepath.Join(dir, "key.pem") + `")` + "\n" +
					`module(load="imtcp" streamDriver.name="gtls" streamDriver.mode="1" streamDriver.authMode="anon")` + "\n" +
					`input(type="imtcp" address="127.0.0.1" port="` + port + `")`
			case "unix":
				cfg.Network = "unixgram"
				cfg.Address = filepath.Join(dir, "log")
				inputs = `module(load="imuxsock" sysSock.use="off")` + "\n" + `input(type="imuxsock" socket="` + cfg.Address + `" useSpecialParser="off")`
			}
			to, err := NewSyslog(cfg)
			if err != nil {
				t.Fatal(err)
			}
			l := newLedger(40)
			e, _ := exporting(t, Config{Target: to, Source: l, Position: filepath.Join(dir, "position.json")})
			until(t, "a failure before there is a receiver", func() bool { return e.Status().Failures > 0 })
			got := func() []uint64 {
				data, _ := os.ReadFile(filepath.Join(dir, "got")) // it comes with the first message
				end := max(strings.LastIndexByte(string(data), '\n'), 0)
				out, _ := seqs(t, strings.FieldsFunc(string(data[:end]), func(r rune) bool { return r == '\n' }))
				return out
			}
			stop := rsyslogd(t, dir, inputs)
			until(t, "the first events", func() bool { return e.Status().Seq == 40 && slices.Contains(got(), 40) })
			stop()
			l.grow(30)
			until(t, "a failure while the receiver is away", func() bool { return e.Status().Seq == 40 || e.Status().Failures > 1 })
			rsyslogd(t, dir, inputs)
			until(t, "the rest", func() bool { return slices.Contains(got(), 70) })
			all := slices.Compact(slices.Sorted(slices.Values(got())))
			if len(all) != 70 {
				t.Errorf("of 70 events rsyslog has %d", len(all))
			}
		})
	}
}

// ownCertificate makes a certificate for 127.0.0.1 that is its own authority.
func ownCertificate(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "siem"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", path, err))
		}
	}
}
