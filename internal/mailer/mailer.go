// Package mailer hands messages to a mail server. It encrypts what the server
// lets it encrypt, and logs in where a user is named: a password never goes over
// a connection that others could read.
package mailer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"strings"

	"github.com/musterhpc/muster/internal/durable"
)

// Server is a mail server.
type Server struct {
	Addr       string // host:port; at port 465 TLS begins at once, elsewhere with STARTTLS
	User       string // empty = no login
	Password   string
	RequireTLS bool           // no mail without TLS; a login demands it anyway, but of this host itself
	Roots      *x509.CertPool // who may vouch for the server; nil = whom this system trusts
}

// smtpsPort is where TLS begins with the connection.
const smtpsPort = "465"

// Errors of Send.
var (
	ErrNoTLS   = errors.New("it does not offer STARTTLS")
	ErrNoLogin = errors.New("it offers neither AUTH PLAIN nor AUTH LOGIN")
)

// ReadPassword reads the only line of a file that nobody but its owner may read.
func ReadPassword(file string) (string, error) {
	data, err := durable.ReadPrivate(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(data), "\r\n")
	if password == "" || strings.ContainsAny(password, "\x00\r\n") {
		return "", fmt.Errorf("%s must hold one line, the password", file)
	}
	return password, nil
}

// Send hands a message over. It ends with the context.
func (s *Server) Send(ctx context.Context, from string, to []string, message []byte) error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	err = s.talk(
		conn,
		host,
		port == smtpsPort,
		func(c *smtp.Client) error { return hand(c, from, to, message) },
	)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("it did not take the message in time: %w", ctx.Err())
	}
	return err
}

// talk makes a connection ready for mail, and closes it behind that.
func (s *Server) talk(
	conn net.Conn,
	host string,
	encrypted bool,
	then func(*smtp.Client) error,
) error {
	secure := &tls.Config{ServerName: host, RootCAs: s.Roots, MinVersion: tls.VersionTLS12}
	if encrypted {
		conn = tls.Client(conn, secure)
	}
	client, err := smtp.NewClient(conn, host)
	if err != nil {
		conn.Close()
		return err
	}
	defer client.Close()
	if !encrypted {
		encrypted, err = s.encrypt(client, secure)
		if err != nil {
			return err
		}
	}
	if s.User != "" {
		if err := s.login(client, host, encrypted); err != nil {
			return err
		}
	}
	return then(client)
}

// encrypt begins TLS where the server offers it.
func (s *Server) encrypt(client *smtp.Client, secure *tls.Config) (bool, error) {
	if ok, _ := client.Extension("STARTTLS"); ok {
		return true, client.StartTLS(secure)
	}
	if s.RequireTLS {
		return false, ErrNoTLS
	}
	return false, nil
}

// login says who sends, in the way that the server knows.
func (s *Server) login(client *smtp.Client, host string, encrypted bool) error {
	if ip := net.ParseIP(host); !encrypted && host != "localhost" &&
		(ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%w, and a password is not sent where others can read it", ErrNoTLS)
	}
	_, ways := client.Extension("AUTH")
	for _, way := range [...]string{"PLAIN", "LOGIN"} {
		for offered := range strings.FieldsSeq(ways) {
			if !strings.EqualFold(offered, way) {
				continue
			}
			if err := client.Auth(
				&login{way: way, user: s.User, password: s.Password},
			); err != nil {
				return fmt.Errorf("it refuses the login of %s: %w", s.User, err)
			}
			return nil
		}
	}
	if ways == "" {
		return fmt.Errorf("%w, it knows no login", ErrNoLogin)
	}
	return fmt.Errorf("%w, only %s", ErrNoLogin, ways)
}

// login answers what a server asks in AUTH PLAIN and AUTH LOGIN.
type login struct {
	way, user, password string
	asked               int
}

// Start begins; PLAIN says everything at once.
func (l *login) Start(*smtp.ServerInfo) (way string, first []byte, err error) {
	if l.way == "PLAIN" {
		return l.way, []byte("\x00" + l.user + "\x00" + l.password), nil
	}
	return l.way, nil, nil
}

// Next answers a question: LOGIN asks for the name, then for the password.
func (l *login) Next(_ []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	l.asked++
	switch {
	case l.way == "LOGIN" && l.asked == 1:
		return []byte(l.user), nil
	case l.way == "LOGIN" && l.asked == 2:
		return []byte(l.password), nil
	}
	return nil, errors.New("it asks for more than a name and a password")
}

// hand says from whom and to whom, and the message.
func hand(client *smtp.Client, from string, to []string, message []byte) error {
	if err := client.Mail(from); err != nil {
		return err
	}
	for _, a := range to {
		if err := client.Rcpt(a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	w, err := client.Data()
	if err != nil {
		return err
	}
	if _, err := bytes.NewReader(message).WriteTo(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	// It has the message: what it answers to good-bye changes nothing.
	_ = client.Quit()
	return nil
}
