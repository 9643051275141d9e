// Package doors opens the places at which a process of musterd is reached, and serves there: the
// local socket, the API, metrics, REST and the web console.
package doors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/listen"
)

// Address is an address of muster.yaml, with the key that chooses it.
type Address struct {
	Key string
	At  conffile.Addr
}

// Doors are those of one process.
type Doors struct {
	Socket  string
	API     Address
	Metrics Metrics
	REST    *REST    // nil = none
	Console *Console // nil = none
	// Of a group of controllers: the port of the API and the socket are open already, and these
	// take what comes there from now on. Others leave them nil.
	TakeAPI, TakeLocal func() net.Listener
}

// Metrics are pages for everybody who may read them, by HTTP.
type Metrics struct {
	Address Address
	Pages   http.Handler
	Readers web.Options // what is asked of those who read them
	Log     *slog.Logger
}

// ServeAll opens all doors, or none, and serves: nobody is served by a process that then finds a
// port taken. The error names every door that cannot be opened.
func (d Doors) ServeAll(group *parts.Group, endpoint *grpcx.Endpoint) error {
	if err := d.Metrics.Readers.Check(); err != nil {
		return err
	}
	opened := opener{ctx: group.Context()}
	var api, local net.Listener
	if d.TakeAPI == nil {
		api = opened.openTCP(d.API)
		local = opened.openSocket(d.Socket)
	}
	beside := d.openBeside(&opened)
	if err := opened.result(); err != nil {
		return err
	}
	if d.TakeAPI != nil {
		api = d.TakeAPI()
		local = d.TakeLocal()
	}
	serveEndpoint(group, endpoint, local, api)
	d.serveBeside(group, beside)
	return nil
}

// ServeBeside opens and serves the doors of a process that has no API of its own: all but the
// socket and the API.
func (d Doors) ServeBeside(group *parts.Group) error {
	if err := d.Metrics.Readers.Check(); err != nil {
		return err
	}
	opened := opener{ctx: group.Context()}
	beside := d.openBeside(&opened)
	if err := opened.result(); err != nil {
		return err
	}
	d.serveBeside(group, beside)
	return nil
}

// beside are the open doors other than those of the API; nil is off.
type beside struct {
	metrics, console net.Listener
	rest, restSocket net.Listener
}

// openBeside opens them. What cannot be opened is noted in opened.
func (d Doors) openBeside(opened *opener) beside {
	out := beside{metrics: opened.openTCP(d.Metrics.Address)}
	if d.REST != nil && !d.REST.Address.At.Off() {
		out.rest = opened.openTCP(d.REST.Address)
		out.restSocket = opened.openSocket(d.REST.Socket)
	}
	if d.Console != nil {
		out.console = opened.openTCP(d.Console.Address)
	}
	return out
}

func (d Doors) serveBeside(group *parts.Group, open beside) {
	if open.metrics != nil {
		d.Metrics.ServeOn(group, open.metrics)
	}
	if open.rest != nil {
		d.REST.serveOn(group, open.rest, open.restSocket)
	}
	if open.console != nil {
		d.Console.serveOn(group, open.console)
	}
}

// serveEndpoint serves the API on the local socket and, unless it is nil, on a port.
func serveEndpoint(group *parts.Group, endpoint *grpcx.Endpoint, local, api net.Listener) {
	group.Spawn("local socket", func(context.Context) error { return endpoint.Serve(local) })
	if api != nil {
		group.Spawn("API", func(context.Context) error { return endpoint.Serve(api) })
	}
	group.Spawn("stop API", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		return endpoint.Shutdown(stop)
	})
}

// Serve opens the address, unless it is off, and serves there.
func (m Metrics) Serve(group *parts.Group) error {
	if err := m.Readers.Check(); err != nil {
		return err
	}
	opened := opener{ctx: group.Context()}
	listener := opened.openTCP(m.Address)
	if err := opened.result(); err != nil || listener == nil {
		return err
	}
	m.ServeOn(group, listener)
	return nil
}

// ServeOn serves the pages on a listener until the group ends.
func (m Metrics) ServeOn(group *parts.Group, listener net.Listener) {
	server := &http.Server{Handler: m.Pages, ReadHeaderTimeout: 10 * time.Second}
	group.Spawn("metrics", func(context.Context) error {
		if err := m.Readers.Serve(listener, server, m.Log); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	stopLater(group, "stop metrics", server)
}

// stopLater shuts a server down when the group ends.
func stopLater(group *parts.Group, name string, server *http.Server) {
	group.Spawn(name, func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return server.Shutdown(stop)
	})
}

// opener opens listeners, and remembers them and what could not be opened.
type opener struct {
	ctx    context.Context
	opened []net.Listener
	failed []error
}

// openTCP opens an address of muster.yaml; nil where it is off or cannot be opened.
func (o *opener) openTCP(address Address) net.Listener {
	if address.At.Off() {
		return nil
	}
	listener, err := listen.TCP(o.ctx, string(address.At))
	if err != nil {
		o.failed = append(
			o.failed, fmt.Errorf("%s: %w (choose another in muster.yaml)", address.Key, err),
		)
		return nil
	}
	o.opened = append(o.opened, listener)
	return listener
}

// openSocket opens a socket that every user of the host may use; nil where it cannot.
func (o *opener) openSocket(path string) net.Listener {
	listener, err := listen.Unix(path, 0o666)
	if err != nil {
		o.failed = append(o.failed, err)
		return nil
	}
	o.opened = append(o.opened, listener)
	return listener
}

// result is what could not be opened. Where that is anything, all that was opened is closed.
func (o *opener) result() error {
	if len(o.failed) == 0 {
		return nil
	}
	failed := errors.Join(o.failed...)
	for _, l := range o.opened {
		failed = errors.Join(failed, l.Close())
	}
	return failed
}
