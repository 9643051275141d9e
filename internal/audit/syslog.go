package audit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// facilities of RFC 5424, section 6.2.1, under the names of syslog.conf.
var facilities = map[string]int{
	"kern":     0,
	"user":     1,
	"mail":     2,
	"daemon":   3,
	"auth":     4,
	"syslog":   5,
	"cron":     9,
	"authpriv": 10,
	"audit":    13,
	"local0":   16,
	"local1":   17,
	"local2":   18,
	"local3":   19,
	"local4":   20,
	"local5":   21,
	"local6":   22,
	"local7":   23,
}

// SyslogConfig is where and how messages go.
type SyslogConfig struct {
	Network  string // unixgram, udp, tcp or tls
	Address  string // host:port or path
	Facility string
	CA       string // PEM file of the receiver's authority; empty = the system's
	Cert     string // PEM files of this side, where the receiver asks for them
	Key      string
	Host     string // HOSTNAME of the messages
}

// Syslog sends messages of RFC 5424 whose text is the line. Over TCP and TLS they
// are framed by their length (RFC 5425, RFC 6587).
type Syslog struct {
	cfg      SyslogConfig
	network  string // unixgram, unix, udp, tcp or tls
	address  string
	conn     net.Conn
	raw      net.Conn // of the connection, below TLS
	gone     chan struct{}
	pid      string
	priority string
}

// Times of syslog.
const (
	dialPatience = 10 * time.Second
	// sendPatience is how long a receiver that is connected may take no byte.
	sendPatience = 30 * time.Second
	// streamSettles is how long after a receiver's host has confirmed the bytes the
	// receiver may not have read them yet. It says nothing when it has.
	streamSettles = 10 * time.Second
)

// NewSyslog makes a target. It connects with the first Write.
func NewSyslog(config SyslogConfig) (*Syslog, error) {
	facility, ok := facilities[config.Facility]
	if !ok {
		return nil, fmt.Errorf("unknown syslog facility %q", config.Facility)
	}
	const notice = 5
	return &Syslog{
		cfg:      config,
		network:  config.Network,
		address:  config.Address,
		pid:      strconv.Itoa(os.Getpid()),
		priority: strconv.Itoa(facility*8 + notice),
	}, nil
}

func (t *Syslog) stream() bool {
	return t.network == "tcp" || t.network == "tls" || t.network == "unix"
}

// Settles implements Target.
func (t *Syslog) Settles() time.Duration {
	if t.stream() {
		return streamSettles
	}
	return 0
}

// Write implements Target.
func (t *Syslog) Write(ctx context.Context, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if err := t.write(ctx, lines); err != nil {
		t.drop()
		return fmt.Errorf("audit.syslog: %s %s: %w", t.cfg.Network, t.cfg.Address, err)
	}
	return nil
}

func (t *Syslog) write(ctx context.Context, lines []string) error {
	if err := t.connect(ctx); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = t.raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if !t.stream() {
		for _, line := range lines {
			if err := t.extend(ctx); err != nil {
				return err
			}
			if _, err := t.conn.Write([]byte(t.message(line))); err != nil {
				return err
			}
		}
		return nil
	}
	var b strings.Builder
	for _, line := range lines {
		m := t.message(line)
		b.WriteString(strconv.Itoa(len(m)) + " " + m)
	}
	text := b.String()
	for len(text) > 0 {
		if err := t.extend(ctx); err != nil {
			return err
		}
		n, err := t.conn.Write([]byte(text[:min(len(text), 32<<10)]))
		if err != nil {
			return err
		}
		text = text[n:]
	}
	return t.confirmed(ctx)
}

// extend gives the next write its time.
func (t *Syslog) extend(ctx context.Context) error {
	if err := t.conn.SetWriteDeadline(time.Now().Add(sendPatience)); err != nil {
		return err
	}
	return ctx.Err()
}

// confirmed waits until the receiver's host has confirmed every byte: a write
// that succeeds says only that the kernel here has them.
func (t *Syslog) confirmed(ctx context.Context) error {
	deadline := time.Now().Add(sendPatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		left, err := unsentBytes(t.raw)
		if err != nil || left == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d bytes were not confirmed within %s", left, sendPatience)
		}
		select {
		case <-time.After(wait):
		case <-t.gone:
			return errors.New("the receiver closed the connection")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect opens the connection, or finds that it is still there.
func (t *Syslog) connect(ctx context.Context) error {
	if t.conn != nil {
		select {
		case <-t.gone:
			return errors.New("the receiver closed the connection")
		default:
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	var d net.Dialer
	network := t.network
	if network == "tls" {
		network = "tcp"
	}
	conn, err := d.DialContext(ctx, network, t.address)
	if err != nil && network == "unixgram" {
		// Some receivers listen there for streams.
		if stream, streamErr := d.DialContext(ctx, "unix", t.address); streamErr == nil {
			conn = stream
			err = nil
			t.network = "unix"
		}
	} else if err != nil && network == "unix" {
		t.network = "unixgram" // another receiver may come; both are tried
	}
	if err != nil {
		return err
	}
	t.raw = conn
	t.conn = conn
	t.gone = make(chan struct{})
	if t.network == "tls" {
		if err := t.secure(ctx); err != nil {
			return err
		}
	}
	if t.stream() {
		go watch(t.conn, t.gone)
	}
	return nil
}

// secure shakes hands.
func (t *Syslog) secure(ctx context.Context) error {
	host, _, err := net.SplitHostPort(t.address)
	if err != nil {
		return err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if t.cfg.CA != "" {
		pem, err := os.ReadFile(t.cfg.CA)
		if err != nil {
			return fmt.Errorf("audit.syslog_ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("audit.syslog_ca: %s holds no certificate (PEM)", t.cfg.CA)
		}
	}
	if t.cfg.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cfg.Cert, t.cfg.Key)
		if err != nil {
			return fmt.Errorf("audit.syslog_cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	c := tls.Client(t.raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	t.conn = c
	return nil
}

// watch finds that a receiver has gone: it never sends anything.
func watch(conn net.Conn, gone chan struct{}) {
	defer close(gone)
	buf := make([]byte, 256)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

// message is a line in the form of RFC 5424. The structured data is empty: all
// of it is in the line.
func (t *Syslog) message(line string) string {
	return "<" + t.priority + ">1 " + time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") +
		" " + headerWord(t.cfg.Host, 255) + " muster " + t.pid + " audit - " + line
}

// headerWord is a text that may stand in a header: printable ASCII without
// spaces.
func headerWord(text string, most int) string {
	word := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	if word == "" {
		return "-"
	}
	return word[:min(len(word), most)]
}

// drop forgets the connection.
func (t *Syslog) drop() {
	// The receiver is gone, or is given up; there is nothing more to say to it.
	_ = t.Close()
}

// Close implements Target.
func (t *Syslog) Close() error {
	if t.raw == nil {
		return nil
	}
	err := t.conn.Close()
	if t.conn != t.raw {
		err = errors.Join(err, t.raw.Close())
	}
	t.conn, t.raw = nil, nil
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
