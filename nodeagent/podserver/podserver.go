// Package podserver is the agent's socket for what another scheduler runs on this
// node, such as a DRA driver of Kubernetes: it gives the node's devices and what the
// ledger has given to pods here, and takes which containers hold which device, for the
// metrics. It knows nothing of Kubernetes.
//
// The socket is for root: who may connect there learns who has what on the node, and
// says what the metrics show.
package podserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
	"github.com/musterhpc/muster/nodeagent/telemetry"
)

// Options of Open.
type Options struct {
	Node   string // its name in Muster
	Socket string
	// Devices is the node's inventory.
	Devices func() []device.Device
	// Holds asks the controller that leads.
	Holds func(ctx context.Context, node string) ([]*apiv1.ForeignHold, error)
	// SetPods shows which pods hold which device.
	SetPods func([]telemetry.PodOnNode)
	Log     *slog.Logger
}

// Server is the open socket.
type Server struct {
	options  Options
	listener *listen.UnixListener
}

// Open opens the socket.
func Open(o Options) (*Server, error) {
	listener, err := listen.Unix(o.Socket, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pods cannot be given devices on this node: %w", err)
	}
	return &Server{options: o, listener: listener}, nil
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context, wg *sync.WaitGroup) {
	if s == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+podapi.DevicesPath, s.devices)
	mux.HandleFunc("GET "+podapi.HoldsPath, s.holds)
	mux.HandleFunc("PUT "+podapi.PodsPath, s.pods)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	wg.Go(func() {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.options.Log.Error("pods cannot be given devices on this node any more", "error", err)
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(stop)
	})
}

func (s *Server) devices(rw http.ResponseWriter, _ *http.Request) {
	answer(rw, http.StatusOK, podapi.Node{Name: s.options.Node, Devices: s.options.Devices()})
}

// askTime bounds the question to the controllers. It is below the client's own time.
const askTime = 10 * time.Second

func (s *Server) holds(rw http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), askTime)
	defer cancel()
	list, err := s.options.Holds(ctx, s.options.Node)
	if err != nil {
		answer(rw, http.StatusServiceUnavailable, podapi.Failure{Error: err.Error()})
		return
	}
	out := podapi.Holds{Holds: make([]podapi.Hold, 0, len(list))}
	for _, h := range list {
		hold := podapi.Hold{UID: h.GetId(), Namespace: h.GetSpace(), Pod: h.GetOwner()}
		for _, gpu := range h.GetGpus() {
			hold.GPUs = append(hold.GPUs, gpu.GetUuid())
		}
		out.Holds = append(out.Holds, hold)
	}
	answer(rw, http.StatusOK, out)
}

func (s *Server) pods(rw http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(rw, req.Body, podapi.MaxBody))
	var list []podapi.Pod
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		answer(rw, http.StatusBadRequest, podapi.Failure{Error: "the list of pods: " + err.Error()})
		return
	}
	pods := make([]telemetry.PodOnNode, len(list))
	for i, p := range list {
		pods[i] = telemetry.PodOnNode(p)
	}
	s.options.SetPods(pods)
	answer(rw, http.StatusOK, struct{}{})
}

func answer(rw http.ResponseWriter, status int, what any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(what) // a client that left needs no answer
}
