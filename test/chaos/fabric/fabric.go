// Package fabric is a switch between network namespaces that loses, delays, doubles and reorders the
// frames that go through it, for each direction between two machines by itself.
//
// It is a program and not a bridge with a queueing discipline, because not every kernel has netem, and
// because a rule for one direction between two of several machines is one line here.
package fabric

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Rule is what happens to frames in one direction between two ports. The zero value passes all.
type Rule struct {
	Cut    bool          // none arrives
	Lose   int           // percent that are lost
	Double int           // percent that arrive twice
	Delay  time.Duration // most that a frame is delayed, each by itself, so that frames overtake
}

// link is a direction.
type link struct{ from, to string }

// Switch forwards frames between its ports.
type Switch struct {
	mu     sync.Mutex
	random *rand.Rand
	ports  map[string]*port
	homes  map[[6]byte]string // the port at which an address was last seen
	rules  map[link]Rule
	counts Counts
}

// Counts are frames since the beginning.
type Counts struct {
	Passed, Lost, Doubled, Delayed, Overtaken int
}

// port is the switch's end of one machine's cable.
type port struct {
	name string
	file *os.File
	sent map[string]uint64
	last map[string]uint64
}

// New makes a switch without ports. The same seed draws the same chances.
func New(seed uint64) *Switch {
	return &Switch{
		random: rand.New(rand.NewPCG(seed, 1)),
		ports:  map[string]*port{},
		homes:  map[[6]byte]string{},
		rules:  map[link]Rule{},
	}
}

// The sizes of what is read: the kernel's note about checksum and segments, the longest frame that a
// machine hands over without cutting it into segments, and the addresses of a frame.
const (
	offloadNote  = 10
	longestFrame = offloadNote + 1<<17
	addresses    = 12
)

// Plug takes a device of the network namespace of the calling thread as a port.
func (s *Switch) Plug(name, device string) error {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return fmt.Errorf("port %s: %w", name, err)
	}
	all := networkOrder(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("port %s: open a packet socket: %w", name, err)
	}
	// Checksums of frames between namespaces are left to a card that is not there: the note with each
	// frame says so, and goes on with it.
	for _, option := range []int{unix.PACKET_VNET_HDR, unix.PACKET_IGNORE_OUTGOING} {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("port %s: set option %d of its socket: %w", name, option, err)
		}
	}
	address := &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}
	if err := unix.Bind(fd, address); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("port %s: bind to %s: %w", name, device, err)
	}
	p := &port{
		name: name,
		file: os.NewFile(uintptr(fd), device),
		sent: map[string]uint64{},
		last: map[string]uint64{},
	}
	s.mu.Lock()
	s.ports[name] = p
	s.mu.Unlock()
	go s.forward(p)
	return nil
}

func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

// SetAll replaces the rules of all directions.
func (s *Switch) SetAll(rule Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for from := range s.ports {
		for to := range s.ports {
			s.rules[link{from, to}] = rule
		}
	}
}

// Mute replaces the rules of what a port sends.
func (s *Switch) Mute(name string, rule Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for to := range s.ports {
		s.rules[link{name, to}] = rule
	}
}

// Deafen replaces the rules of what a port is sent.
func (s *Switch) Deafen(name string, rule Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for from := range s.ports {
		s.rules[link{from, name}] = rule
	}
}

// Counts are what happened to frames so far.
func (s *Switch) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Close takes the ports away.
func (s *Switch) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ports {
		_ = p.file.Close() // frames on their way are lost
	}
}

// forward carries what comes in at a port until the switch is closed.
func (s *Switch) forward(p *port) {
	buffer := make([]byte, longestFrame)
	for {
		n, err := p.file.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil || n < offloadNote+addresses {
			continue // the device was down for a moment
		}
		s.carry(p, append([]byte(nil), buffer[:n]...))
	}
}

// carry decides what becomes of one frame.
func (s *Switch) carry(from *port, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to, by := [6]byte(frame[offloadNote:]), [6]byte(frame[offloadNote+6:])
	s.homes[by] = from.name
	home, known := s.homes[to]
	for name, p := range s.ports {
		if name == from.name || (known && name != home) {
			continue
		}
		rule := s.rules[link{from.name, name}]
		if rule.Cut || s.random.IntN(100) < rule.Lose {
			s.counts.Lost++
			continue
		}
		copies := 1
		if s.random.IntN(100) < rule.Double {
			copies = 2
			s.counts.Doubled++
		}
		p.sent[from.name]++
		number := p.sent[from.name]
		for range copies {
			s.counts.Passed++
			if rule.Delay == 0 {
				s.deliver(p, from.name, number, frame)
				continue
			}
			s.counts.Delayed++
			delay := time.Duration(s.random.Int64N(int64(rule.Delay)))
			time.AfterFunc(delay, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.deliver(p, from.name, number, frame)
			})
		}
	}
}

// deliver hands a frame to a machine. The lock of the switch is held, so that frames without a delay
// keep their order.
func (s *Switch) deliver(p *port, from string, number uint64, frame []byte) {
	if number < p.last[from] {
		s.counts.Overtaken++
	}
	p.last[from] = max(p.last[from], number)
	_, _ = p.file.Write(frame) // a full queue loses frames, as switches do
}
