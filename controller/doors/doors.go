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
// port taken.
func (d Doors) ServeAll(g *parts.Group, endpoint *grpcx.Endpoint) (err error) {
	if err := d.Metrics.Readers.Check(); err != nil {
		return err
	}
	opened := opener{ctx: g.Context()}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	var api net.Listener
	if d.TakeAPI == nil {
		api, err = opened.openTCP(d.API)
		if err != nil {
			return err
		}
	}
	metrics, err := opened.openTCP(d.Metrics.Address)
	if err != nil {
		return err
	}
	var local net.Listener
	if d.TakeLocal == nil {
		local, err = opened.openSocket(d.Socket)
		if err != nil {
			return err
		}
	}
	if d.REST != nil {
		if err := d.REST.serve(g, &opened); err != nil {
			return err
		}
	}
	if d.Console != nil {
		if err := d.Console.serve(g, &opened); err != nil {
			return err
		}
	}
	if d.TakeAPI != nil {
		api = d.TakeAPI()
		local = d.TakeLocal()
	}
	serveEndpoint(g, endpoint, local, api)
	if metrics != nil {
		d.Metrics.ServeOn(g, metrics)
	}
	return nil
}

// serveEndpoint serves the API on the local socket and, unless it is nil, on a port.
func serveEndpoint(g *parts.Group, endpoint *grpcx.Endpoint, local, api net.Listener) {
	g.Spawn("local socket", func(context.Context) error { return endpoint.Serve(local) })
	if api != nil {
		g.Spawn("API", func(context.Context) error { return endpoint.Serve(api) })
	}
	g.Spawn("stop API", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		return endpoint.Shutdown(stop)
	})
}

// Serve opens the address, unless it is off, and serves there.
func (m Metrics) Serve(g *parts.Group) error {
	if err := m.Readers.Check(); err != nil {
		return err
	}
	opened := opener{ctx: g.Context()}
	l, err := opened.openTCP(m.Address)
	if err != nil || l == nil {
		return err
	}
	m.ServeOn(g, l)
	return nil
}

// ServeOn serves the pages on a listener until the group ends.
func (m Metrics) ServeOn(g *parts.Group, l net.Listener) {
	srv := &http.Server{Handler: m.Pages, ReadHeaderTimeout: 10 * time.Second}
	g.Spawn("metrics", func(context.Context) error {
		if err := m.Readers.Serve(l, srv, m.Log); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	stopLater(g, "stop metrics", srv)
}

// stopLater shuts a server down when the group ends.
func stopLater(g *parts.Group, name string, srv *http.Server) {
	g.Spawn(name, func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return srv.Shutdown(stop)
	})
}

// opener opens listeners and remembers them.
type opener struct {
	ctx    context.Context
	opened []net.Listener
}

// openTCP opens an address of muster.yaml; nil where it is off.
func (o *opener) openTCP(a Address) (net.Listener, error) {
	if a.At.Off() {
		return nil, nil
	}
	l, err := listen.TCP(o.ctx, string(a.At))
	if err != nil {
		return nil, fmt.Errorf("%s: %w (choose another in muster.yaml)", a.Key, err)
	}
	o.opened = append(o.opened, l)
	return l, nil
}

// openSocket opens a socket that every user of the host may use.
func (o *opener) openSocket(path string) (net.Listener, error) {
	l, err := listen.Unix(path, 0o666)
	if err != nil {
		return nil, err
	}
	o.opened = append(o.opened, l)
	return l, nil
}

// close closes all that was opened.
func (o *opener) close() error {
	var failed error
	for _, l := range o.opened {
		failed = errors.Join(failed, l.Close())
	}
	return failed
}
