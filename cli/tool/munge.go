package tool

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/spec"
)

// Where a host without an agent has what it needs.
const (
	defaultSlurmConf = "/etc/slurm/slurm.conf"
	defaultAuthority = "/etc/muster/ca.crt"
	defaultPort      = "6817"
)

// mungeSite is what slurm.conf says of MUNGE and of the controllers.
type mungeSite struct {
	on          bool     // AuthType=auth/munge
	controllers []string // addresses
	socket      string   // of munged; empty = its usual one
}

// readMungeSite reads the lines of slurm.conf that are about it. The file is checked by the
// daemons; a command that lives for milliseconds reads no more than it needs.
func readMungeSite(text string) mungeSite {
	var site mungeSite
	port := defaultPort
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "authtype":
			site.on = value == "auth/munge"
		case "authinfo":
			site.socket = MungeSocket(value)
		case "slurmctldport":
			port, _, _ = strings.Cut(value, "-")
		case "slurmctldhost":
			host := value
			if _, address, given := strings.Cut(value, "("); given {
				host = strings.TrimSuffix(address, ")")
			}
			site.controllers = append(site.controllers, host)
		}
	}
	for i, host := range site.controllers {
		site.controllers[i] = net.JoinHostPort(host, port)
	}
	return site
}

// MungeSocket is the socket that AuthInfo names; empty = none.
func MungeSocket(authInfo string) string {
	for _, part := range strings.Split(authInfo, ",") {
		path, named := strings.CutPrefix(strings.TrimSpace(part), "socket=")
		if named || strings.HasPrefix(path, "/") {
			return path
		}
	}
	return ""
}

// mungeSite is what this host knows of MUNGE; its zero value where it knows nothing.
func (e *Env) mungeSite() mungeSite {
	path := e.Getenv("SLURM_CONF")
	if path == "" {
		path = defaultSlurmConf
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return mungeSite{}
	}
	site := readMungeSite(string(data))
	if server := e.Getenv("MUSTER_SERVER"); server != "" {
		site.controllers = strings.Split(server, ",")
	}
	return site
}

// dialMunge connects to the controllers by way of muster-munge, with a credential of MUNGE.
func (e *Env) dialMunge(ctx context.Context, site mungeSite) (Conn, error) {
	authority := e.Getenv("MUSTER_CA")
	if authority == "" {
		authority = defaultAuthority
	}
	here, err := startMunge(e.mungeProgram(), strings.Join(site.controllers, ","), authority, site.socket)
	if err != nil {
		return nil, fmt.Errorf("%s: muster-munge: %w", spec.CodeUnreachable, err)
	}
	if at, ok := ctx.Deadline(); ok {
		if err := here.SetReadDeadline(at); err != nil {
			return nil, err
		}
	}
	credential, err := readCredential(here)
	if err != nil {
		here.Close()
		return nil, err
	}
	c := client.New(here).With(framed.Pair{Key: framed.HeaderMunge, Value: credential})
	if token := e.Getenv(TokenVariable); token != "" {
		c = c.With(framed.Pair{Key: framed.HeaderToken, Value: token})
	}
	return framedConn{c}, nil
}

// startMunge starts muster-munge, which ends with the connection.
func startMunge(program string, args ...string) (net.Conn, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours := os.NewFile(uintptr(pair[0]), "muster-munge")
	theirs := os.NewFile(uintptr(pair[1]), "command")
	defer ours.Close() // FileConn has a copy
	defer theirs.Close()
	cmd := exec.Command(program, args...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }() // how it ended, it has said on the connection
	return net.FileConn(ours)
}

// readCredential reads the first line of muster-munge, byte by byte: what follows is the
// controller's.
func readCredential(from net.Conn) (string, error) {
	var line strings.Builder
	one := bufio.NewReaderSize(singleBytes{from}, 16)
	for {
		b, err := one.ReadByte()
		if err != nil {
			return "", fmt.Errorf("%s: muster-munge ended without an answer: %w", spec.CodeUnreachable, err)
		}
		if b == '\n' {
			break
		}
		line.WriteByte(b)
	}
	word, text, _ := strings.Cut(line.String(), " ")
	if word != "ok" {
		return "", fmt.Errorf("%s: %s", spec.CodeUnreachable, text)
	}
	return text, nil
}

// singleBytes reads one byte at a time, and so never more than was asked for.
type singleBytes struct{ net.Conn }

func (s singleBytes) Read(data []byte) (int, error) { return s.Conn.Read(data[:min(1, len(data))]) }

// mungeProgram is where muster-munge is: beside this program, or else on the search path.
func (e *Env) mungeProgram() string {
	const name = "muster-munge"
	self, err := os.Executable()
	if err == nil {
		if path := filepath.Join(filepath.Dir(self), name); exists(path) {
			return path
		}
	}
	return name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
