// Package podapi is what the agent of a node and the programs of another scheduler on
// that node say to each other, as JSON over the agent's socket: which devices the node
// has, what the ledger has given to pods, and which containers hold which device.
package podapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// Socket is the name of the agent's socket in its state folder.
const Socket = "pods.sock"

// Paths of the socket.
const (
	DevicesPath = "/v1/devices" // GET: Node
	HoldsPath   = "/v1/holds"   // GET: Holds
	PodsPath    = "/v1/pods"    // PUT: []Pod, all of them
)

// MaxBody bounds a message: a node has some hundred devices at most.
const MaxBody = 8 << 20

// Node is what a node says of its devices.
type Node struct {
	Name    string          `json:"name"` // in Muster
	Devices []device.Device `json:"devices"`
}

// Hold is what the ledger has given to a pod on this node.
type Hold struct {
	UID       string   `json:"uid"` // of the pod
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	GPUs      []string `json:"gpus,omitempty"` // UUIDs of devices and MIG instances
}

// Holds are all of a node, as the controller that leads has them.
type Holds struct {
	Holds []Hold `json:"holds"`
}

// Pod is a device that a container of a pod holds.
type Pod struct {
	UUID      string       `json:"uuid"`
	Namespace string       `json:"namespace"`
	Pod       string       `json:"pod"`
	Container string       `json:"container,omitempty"` // empty: several share it
	From      spec.Instant `json:"from"`
}

// Failure is an answer that is none.
type Failure struct {
	Error string `json:"error"`
}

// ErrAway is wrapped by every failure to reach the agent, or of the agent to reach a
// controller: to ask again may help.
var ErrAway = errors.New("the agent of Muster on this node does not answer")

// Client asks the agent of this node. It is safe for several goroutines.
type Client struct {
	socket string
	http   *http.Client
}

// callTime bounds one call. The agent asks a controller for holds within it.
const callTime = 15 * time.Second

// NewClient makes a client of the agent's socket.
func NewClient(socket string) *Client {
	dialer := &net.Dialer{Timeout: callTime}
	return &Client{socket: socket, http: &http.Client{
		Timeout: callTime,
		Transport: &http.Transport{
			MaxIdleConns:    2,
			IdleConnTimeout: time.Minute,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
		},
	}}
}

// Devices asks what the node has.
func (c *Client) Devices(ctx context.Context) (Node, error) {
	var node Node
	return node, c.call(ctx, http.MethodGet, DevicesPath, nil, &node)
}

// Holds asks what the ledger has given to pods on this node.
func (c *Client) Holds(ctx context.Context) ([]Hold, error) {
	var holds Holds
	return holds.Holds, c.call(ctx, http.MethodGet, HoldsPath, nil, &holds)
}

// SetPods tells which containers hold which device: all of them.
func (c *Client) SetPods(ctx context.Context, pods []Pod) error {
	if pods == nil {
		pods = []Pod{}
	}
	return c.call(ctx, http.MethodPut, PodsPath, pods, nil)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return err
	}
	reply, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w at %s: %w", ErrAway, c.socket, err)
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(reply.Body, MaxBody))
	if err != nil {
		return fmt.Errorf("%w at %s: %w", ErrAway, c.socket, err)
	}
	if reply.StatusCode != http.StatusOK {
		var failed Failure
		if err := json.Unmarshal(text, &failed); err != nil || failed.Error == "" {
			failed.Error = reply.Status
		}
		if reply.StatusCode == http.StatusServiceUnavailable {
			return fmt.Errorf("%w: %s", ErrAway, failed.Error)
		}
		return fmt.Errorf("the agent at %s refuses: %s", c.socket, failed.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the agent's answer at %s: %w", c.socket, err)
	}
	return nil
}
