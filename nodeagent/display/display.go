// Package display keeps the X displays of jobs on a node: a listener on the loopback
// interface for each, and the file with the cookie that lets the job's programs in. Their
// connections are handed to the command that forwards the display (`srun --x11`), through
// the step server.
//
// What must outlive the agent is in the cookie file: the number of the display and the
// cookie itself. A new agent listens at the same numbers again; windows that were open end
// with the old one.
package display

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/x11"
)

// Numbers of displays that are given away. Those below may be a screen of the node's own.
const (
	firstNumber = 20
	lastNumber  = 999
)

const (
	// setupWait bounds how long a client may take to show its cookie, and how long it
	// waits for a command that forwards the display.
	setupWait = 15 * time.Second
	// acceptWait is how long nobody is taken in after that has failed.
	acceptWait = 100 * time.Millisecond
	// maxWaiting is how many clients of one display wait at a time.
	maxWaiting = 64
)

// Errors of a display.
var (
	// ErrNone: the run has no display here, or not any more.
	ErrNone = errors.New("the job has no display on this node")
	// ErrReplaced: another command forwards the display now.
	ErrReplaced = errors.New("another command forwards the display of the job now")
)

// Displays are those of all jobs on the node.
type Displays struct {
	folder string
	log    *slog.Logger

	mu   sync.Mutex
	open map[plan.RunKey]*display
}

// Open opens the displays of an earlier agent again, whose cookies are in folder.
func Open(folder string, logger *slog.Logger) (*Displays, error) {
	// Users open their file in it by its name, and cannot list the others.
	if err := os.MkdirAll(folder, 0o711); err != nil {
		return nil, fmt.Errorf("X11: %w", err)
	}
	displays := &Displays{folder: folder, log: logger, open: map[plan.RunKey]*display{}}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("X11: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		key, err := plan.ParseRunKey(entry.Name())
		if err == nil {
			err = displays.reopen(key, path)
		}
		if err != nil {
			logger.Warn("the display of a job cannot be opened again", "file", path, "error", err)
			_ = os.Remove(path)
		}
	}
	return displays, nil
}

// reopen listens again for the display of a file.
func (d *Displays) reopen(key plan.RunKey, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	number, cookie, err := x11.ReadAuthority(data)
	if err != nil {
		return err
	}
	listeners, err := listenAt(number)
	if err != nil {
		return err
	}
	d.serve(key, number, cookie, path, listeners)
	return nil
}

// Show gives a job a display, and what its programs find it by. Asked again, it gives the
// same.
func (d *Displays) Show(key plan.RunKey, uid, gid uint32) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if shown := d.open[key]; shown != nil {
		return shown.environment(), nil
	}
	var cookie x11.Cookie
	_, _ = rand.Read(cookie[:]) // it never fails
	number, listeners, err := listenAnywhere()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(d.folder, key.String())
	if err := writeFor(path, x11.Authority(number, cookie), uid, gid); err != nil {
		closeAll(listeners)
		return nil, err
	}
	return d.serveLocked(key, number, cookie, path, listeners).environment(), nil
}

// writeFor writes a file that only its user reads.
func writeFor(path string, data []byte, uid, gid uint32) error {
	_ = os.Remove(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("X11: %w", err)
	}
	_, err = file.Write(data)
	if err == nil && os.Geteuid() == 0 {
		err = file.Chown(int(uid), int(gid))
	}
	err = errors.Join(err, file.Close())
	if err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("X11: %w", err)
	}
	return nil
}

// listenAnywhere listens at the first display that is free.
func listenAnywhere() (int, []net.Listener, error) {
	var last error
	for number := firstNumber; number <= lastNumber; number++ {
		listeners, err := listenAt(number)
		if err == nil {
			return number, listeners, nil
		}
		last = err
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return 0, nil, fmt.Errorf("X11: no display is free on this node: %w", last)
}

// listenAt listens at a display, on the loopback interface of both families: whoever held
// the other one would be shown the job's cookie.
func listenAt(number int) ([]net.Listener, error) {
	port := strconv.Itoa(x11.Port(number))
	var out []net.Listener
	for _, family := range []struct{ network, host string }{{"tcp4", "127.0.0.1"}, {"tcp6", "::1"}} {
		listener, err := net.Listen(family.network, net.JoinHostPort(family.host, port))
		missing := errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
		switch {
		case err == nil:
			out = append(out, listener)
		case family.network == "tcp6" && missing: // a node without IPv6
		default:
			closeAll(out)
			return nil, err
		}
	}
	return out, nil
}

func closeAll(list []net.Listener) {
	for _, l := range list {
		_ = l.Close()
	}
}

// serve takes the clients of a display.
func (d *Displays) serve(key plan.RunKey, number int, cookie x11.Cookie, path string, listeners []net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serveLocked(key, number, cookie, path, listeners)
}

// serveLocked is serve; mu is held.
func (d *Displays) serveLocked(
	key plan.RunKey,
	number int,
	cookie x11.Cookie,
	path string,
	listeners []net.Listener,
) *display {
	shown := &display{
		number:    number,
		cookie:    cookie,
		path:      path,
		listeners: listeners,
		waiting:   map[uint64]*client{},
		gone:      make(chan struct{}),
		log:       d.log.With("run", key.String(), "display", number),
	}
	d.open[key] = shown
	for _, l := range listeners {
		go shown.accept(l)
	}
	return shown
}

// Keep closes the displays of all runs but these.
func (d *Displays) Keep(keys []plan.RunKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, shown := range d.open {
		if !slices.Contains(keys, key) {
			shown.end(true)
			delete(d.open, key)
		}
	}
}

// Close ends the agent's part. The files stay for the next agent.
func (d *Displays) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, shown := range d.open {
		shown.end(false)
	}
	clear(d.open)
}

func (d *Displays) find(key plan.RunKey) (*display, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if shown := d.open[key]; shown != nil {
		return shown, nil
	}
	return nil, ErrNone
}

// Has tells whether the job of a run has a display here.
func (d *Displays) Has(key plan.RunKey) bool {
	_, err := d.find(key)
	return err == nil
}

// Attach tells a command that forwards a display of each client that waits, until the
// context ends, the display is closed or another command takes its place.
func (d *Displays) Attach(ctx context.Context, key plan.RunKey, tell func(id uint64) error) error {
	shown, err := d.find(key)
	if err != nil {
		return err
	}
	return shown.attach(ctx, tell)
}

// Claim gives the connection of a client that waits.
func (d *Displays) Claim(key plan.RunKey, id uint64) (net.Conn, error) {
	shown, err := d.find(key)
	if err != nil {
		return nil, err
	}
	return shown.claim(id)
}

// display is that of one job.
type display struct {
	number    int
	cookie    x11.Cookie
	path      string
	listeners []net.Listener
	log       *slog.Logger
	gone      chan struct{} // closed at its end

	mu      sync.Mutex
	last    uint64 // number of the last client
	waiting map[uint64]*client
	watcher *watcher // nil: nobody forwards the display now
	ended   bool
}

// client is a connection that has shown its cookie.
type client struct {
	net.Conn
	first []byte // of what it sent, and was read already
	late  *time.Timer
}

// Read gives first what was read to see the cookie.
func (c *client) Read(data []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(data, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(data)
}

// watcher is the command that forwards the display.
type watcher struct {
	calls chan uint64
	gone  chan struct{}
	why   error // once gone is closed
}

// environment is how programs find the display.
func (d *display) environment() []string {
	return []string{fmt.Sprintf("DISPLAY=localhost:%d.0", d.number), "XAUTHORITY=" + d.path}
}

func (d *display) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.log.Warn("a client of a display cannot be taken now", "error", err)
			select {
			case <-d.gone:
				return
			case <-time.After(acceptWait):
			}
			continue
		}
		go d.receive(conn)
	}
}

// receive lets a client in that shows the cookie, and has it wait for a command that
// forwards it.
func (d *display) receive(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(setupWait))
	setup, err := x11.ReadSetup(conn)
	if err == nil && !setup.Shows(d.cookie) {
		refuse(conn, setup)
		err = errors.New("it does not show the job's cookie")
	}
	if err != nil {
		if !errors.Is(err, io.EOF) {
			d.log.Warn("a client of a display is refused", "error", err)
		}
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || len(d.waiting) >= maxWaiting {
		_ = conn.Close()
		return
	}
	d.last++
	id := d.last
	waiting := &client{Conn: conn, first: setup.WithCookie(d.cookie)}
	waiting.late = time.AfterFunc(setupWait, func() {
		if _, err := d.claim(id); err == nil {
			d.log.Warn("no command forwards the display: a client is sent away")
			_ = conn.Close()
		}
	})
	d.waiting[id] = waiting
	if d.watcher != nil {
		d.watcher.call(id)
	}
}

// refuse answers a client that is not let in. What it has sent meanwhile is read, since a
// connection that is closed with unread bytes takes the answer back.
func refuse(conn net.Conn, setup *x11.Setup) {
	_, _ = conn.Write(setup.Refuse("the cookie is not that of the job's display"))
	if half, ok := conn.(*net.TCPConn); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, conn) // until the deadline of its setup
	}
}

// call tells of a client. There is room for all that wait.
func (w *watcher) call(id uint64) {
	select {
	case w.calls <- id:
	default:
	}
}

// leave ends the watcher; the display's mu is held.
func (d *display) leave(why error) {
	if d.watcher != nil {
		d.watcher.why = why
		close(d.watcher.gone)
		d.watcher = nil
	}
}

func (d *display) attach(ctx context.Context, tell func(id uint64) error) error {
	own := &watcher{calls: make(chan uint64, 2*maxWaiting), gone: make(chan struct{})}
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return ErrNone
	}
	d.leave(ErrReplaced)
	d.watcher = own
	for id := range d.waiting {
		own.call(id)
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.watcher == own {
			d.leave(nil)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-own.gone:
			return own.why
		case id := <-own.calls:
			if err := tell(id); err != nil {
				return err
			}
		}
	}
}

func (d *display) claim(id uint64) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.waiting[id]
	if waiting == nil {
		return nil, fmt.Errorf("client %d of the display does not wait any more", id)
	}
	delete(d.waiting, id)
	waiting.late.Stop()
	return waiting, nil
}

// end closes the display. With removed its file goes too.
func (d *display) end(removed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	close(d.gone)
	closeAll(d.listeners)
	d.leave(ErrNone)
	for id, waiting := range d.waiting {
		waiting.late.Stop()
		_ = waiting.Close()
		delete(d.waiting, id)
	}
	if removed {
		_ = os.Remove(d.path)
	}
}
