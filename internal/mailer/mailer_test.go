package mailer_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/mailer"
)

// peer is a mail server of one connection.
type peer struct {
	ways     string // what it offers to log in with
	starttls bool
	password string
	silent   bool // it takes the connection and says nothing

	said []string // what it was asked, behind TLS with a mark
	mail string
}

// certificate is one for 127.0.0.1 and 0.0.0.0, and who vouches for it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// serve speaks to one client; done is closed when it is gone.
func (p *peer) serve(t *testing.T, cert tls.Certificate) (port string, done chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	done = make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { c.Close() }()
		if p.silent {
			_, _ = c.Read(make([]byte, 1))
			return
		}
		in, mark := bufio.NewReader(c), ""
		say := func(lines ...string) { fmt.Fprint(c, strings.Join(lines, "\r\n")+"\r\n") }
		hear := func() string {
			line, err := in.ReadString('\n')
			if err != nil {
				return "QUIT"
			}
			return strings.TrimRight(line, "\r\n")
		}
		say("220 peer")
		for {
			line := hear()
			p.said = append(p.said, mark+line)
			switch verb, rest, _ := strings.Cut(line, " "); verb {
			case "EHLO":
				offers := []string{"250-peer"}
				if p.starttls && mark == "" {
					offers = append(offers, "250-STARTTLS")
				}
				if p.ways != "" {
					offers = append(offers, "250-AUTH "+p.ways)
				}
				say(append(offers, "250 OK")...)
			case "STARTTLS":
				say("220 go on")
				c, mark = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}), "tls "
				in = bufio.NewReader(c)
			case "AUTH":
				if p.login(rest, say, hear) {
					say("235 welcome")
				} else {
					say("535 5.7.8 Authentication credentials invalid")
				}
			case "DATA":
				say("354 go on")
				for line := hear(); line != "." && line != "QUIT"; line = hear() {
					p.mail += line + "\n"
				}
				say("250 taken")
			case "QUIT":
				say("221 bye")
				return
			default:
				say("250 ok")
			}
		}
	}()
	return l.Addr().String()[strings.LastIndexByte(l.Addr().String(), ':')+1:], done
}

func (p *peer) login(how string, say func(...string), hear func() string) bool {
	plain := func(s string) string {
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return "not base64"
		}
		return string(data)
	}
	if way, first, _ := strings.Cut(how, " "); way == "PLAIN" {
		return plain(first) == "\x00muster\x00"+p.password
	}
	say("334 VXNlcm5hbWU6")
	name := plain(hear())
	say("334 UGFzc3dvcmQ6")
	return name == "muster" && plain(hear()) == p.password
}

// TestSend: mail reaches a server with and without TLS and login; a password
// never goes where it could be read, and what a server refuses is told.
func TestSend(t *testing.T) {
	cert, roots := certificate(t)
	const secret = "p a:ss"
	for name, c := range map[string]struct {
		peer   peer
		server mailer.Server
		host   string
		want   string // the error; empty = taken
		said   string // a line that the server heard
	}{
		"no login":            {peer: peer{}, host: "127.0.0.1"},
		"plain":               {peer: peer{starttls: true, ways: "LOGIN PLAIN"}, server: mailer.Server{User: "muster"}, host: "0.0.0.0", said: "tls AUTH PLAIN AG11c3RlcgBwIGE6c3M="},
		"login":               {peer: peer{starttls: true, ways: "CRAM-MD5 LOGIN"}, server: mailer.Server{User: "muster", RequireTLS: true}, host: "0.0.0.0", said: "tls AUTH LOGIN"},
		"this host":           {peer: peer{ways: "PLAIN"}, server: mailer.Server{User: "muster"}, host: "127.0.0.1", said: "AUTH PLAIN AG11c3RlcgBwIGE6c3M="},
		"in the clear":        {peer: peer{ways: "PLAIN"}, server: mailer.Server{User: "muster"}, host: "0.0.0.0", want: "does not offer STARTTLS, and a password is not sent"},
		"must be encrypted":   {peer: peer{}, server: mailer.Server{RequireTLS: true}, host: "127.0.0.1", want: "does not offer STARTTLS"},
		"wrong password":      {peer: peer{starttls: true, ways: "PLAIN", password: "other"}, server: mailer.Server{User: "muster"}, host: "0.0.0.0", want: "refuses the login of muster: 535"},
		"wrong, asked":        {peer: peer{starttls: true, ways: "LOGIN", password: "other"}, server: mailer.Server{User: "muster"}, host: "0.0.0.0", want: "refuses the login of muster: 535"},
		"a way not known":     {peer: peer{starttls: true, ways: "GSSAPI"}, server: mailer.Server{User: "muster"}, host: "0.0.0.0", want: "neither AUTH PLAIN nor AUTH LOGIN, only GSSAPI"},
		"no way":              {peer: peer{starttls: true}, server: mailer.Server{User: "muster"}, host: "0.0.0.0", want: "it knows no login"},
		"nobody vouches":      {peer: peer{starttls: true, ways: "PLAIN"}, server: mailer.Server{User: "muster", Roots: x509.NewCertPool()}, host: "0.0.0.0", want: "certificate"},
		"says nothing at all": {peer: peer{silent: true}, host: "127.0.0.1", want: "did not take the message in time"},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.peer
			if p.password == "" {
				p.password = secret
			}
			port, done := p.serve(t, cert)
			s := c.server
			s.Addr, s.Password = net.JoinHostPort(c.host, port), secret
			if s.Roots == nil {
				s.Roots = roots
			}
			patience := time.Minute
			if p.silent {
				patience = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := s.Send(ctx, "muster@example.org", []string{"ops@example.org"}, []byte("Subject: x\r\n\r\ntext\r\n"))
			<-done
			heard := strings.Join(p.said, "\n")
			switch {
			case c.want == "" && (err != nil || p.mail != "Subject: x\n\ntext\n" || !strings.Contains(heard, "RCPT TO:<ops@example.org>") || !strings.Contains(heard, c.said)):
				t.Errorf("%v, mail %q after\n%s", err, p.mail, heard)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || p.mail != ""):
				t.Errorf("%v, mail %q; want an error with %q", err, p.mail, c.want)
			case c.want != "" && strings.Contains(err.Error(), secret):
				t.Errorf("the error tells the password: %v", err)
			}
			if name == "in the clear" && strings.Contains(heard, "AUTH") {
				t.Errorf("the password was sent in the clear:\n%s", heard)
			}
			if p.silent && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not that the time is up", err)
			}
		})
	}
}
