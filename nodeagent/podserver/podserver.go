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
func Open(options Options) (*Server, error) {
	listener, err := listen.Unix(options.Socket, 0o600)
	if err != nil {
		return nil, fmt.Errorf("pods cannot be given devices on this node: %w", err)
	}
	return &Server{options: options, listener: listener}, nil
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

func (s *Server) devices(writer http.ResponseWriter, _ *http.Request) {
	answer(writer, http.StatusOK, podapi.Node{Name: s.options.Node, Devices: s.options.Devices()})
}

// askTime bounds the question to the controllers. It is below the client's own time.
const askTime = 10 * time.Second

func (s *Server) holds(writer http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), askTime)
	defer cancel()
	list, err := s.options.Holds(ctx, s.options.Node)
	if err != nil {
		answer(writer, http.StatusServiceUnavailable, podapi.Failure{Error: err.Error()})
		return
	}
	holds := podapi.Holds{Holds: make([]podapi.Hold, 0, len(list))}
	for _, foreignHold := range list {
		hold := podapi.Hold{
			UID:       foreignHold.GetId(),
			Namespace: foreignHold.GetSpace(),
			Pod:       foreignHold.GetOwner(),
		}
		for _, gpu := range foreignHold.GetGpus() {
			hold.GPUs = append(hold.GPUs, gpu.GetUuid())
		}
		holds.Holds = append(holds.Holds, hold)
	}
	answer(writer, http.StatusOK, holds)
}

func (s *Server) pods(writer http.ResponseWriter, request *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, podapi.MaxBody))
	var list []podapi.Pod
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		answer(
			writer,
			http.StatusBadRequest,
			podapi.Failure{Error: "the list of pods: " + err.Error()},
		)
		return
	}
	pods := make([]telemetry.PodOnNode, len(list))
	for i, pod := range list {
		pods[i] = telemetry.PodOnNode(pod)
	}
	s.options.SetPods(pods)
	answer(writer, http.StatusOK, struct{}{})
}

func answer(writer http.ResponseWriter, status int, what any) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(status)
	_ = json.NewEncoder(writer).Encode(what) // a client that left needs no answer
}
