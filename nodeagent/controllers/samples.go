package controllers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/daemon"
)

// sampleStore is where samples of GPUs go: the accounting that muster.yaml
// names, or that of this host, or the controllers', in turn until one takes
// them.
type sampleStore struct {
	addresses func() []string
	source    *pki.Source

	mu    sync.Mutex
	at    int
	conns map[string]*grpc.ClientConn
}

// NewSampleStore makes the store of the accounting at an address, if one is given, or at a
// socket of this host, or of the controllers.
func NewSampleStore(to, socket string, controller daemon.Controller) *sampleStore {
	store := &sampleStore{conns: map[string]*grpc.ClientConn{}}
	controllers, ok := controller.(*Controllers)
	if ok {
		store.source = controllers.source
	}
	store.addresses = func() (list []string) {
		switch _, err := os.Stat(socket); {
		case to != "":
			return []string{to}
		case err == nil:
			list = append(list, socket)
		}
		if ok {
			list = append(list, controllers.addresses...)
		}
		return list
	}
	return store
}

var errNoStore = errors.New("no accounting endpoint accepts GPU samples")

// Put implements daemon.Samples.
func (s *sampleStore) Put(ctx context.Context, request *apiv1.PutGpuSamplesRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.addresses()
	err := errNoStore
	for range list {
		address := list[s.at%len(list)]
		var conn *grpc.ClientConn
		conn, err = s.connTo(address)
		if err == nil {
			_, err = service.NewAccountingClient(conn).PutGpuSamples(ctx, request)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		err = fmt.Errorf("%s: %w", address, err)
		s.at++
	}
	return err
}

// connTo gives a connection to an address, which connects when it is used.
func (s *sampleStore) connTo(address string) (*grpc.ClientConn, error) {
	if c := s.conns[address]; c != nil {
		return c, nil
	}
	if s.source == nil && !strings.Contains(address, "/") {
		return nil, fmt.Errorf(
			"telemetry.samples_to: %w: this agent has no certificate for %s",
			errNoStore,
			address,
		)
	}
	c, err := dialController(address, s.source)
	if err == nil {
		s.conns[address] = c
	}
	return c, err
}
