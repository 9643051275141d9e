package podserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/podserver"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
	"github.com/musterhpc/muster/nodeagent/telemetry"
)

// TestSocket: what the agent knows comes over the socket as it is, what is told there
// arrives, and a controller that does not answer is told from a refusal.
func TestSocket(t *testing.T) {
	devices := []device.Device{{
		UUID: "GPU-1", Index: 1, Model: "NVIDIA H100", MemoryMiB: 81559, NUMA: device.Unknown,
		Links: []device.Link{{Kind: device.LinkSelf}, {Kind: device.LinkNVLink, NVLinks: 18}},
		MIG:   []device.MIG{{UUID: "MIG-1", Profile: "1g.10gb", GPUInstance: 7, Slices: 1}},
	}}
	var away error
	var told []telemetry.PodOnNode
	socket := filepath.Join(t.TempDir(), "pods.sock")
	server, err := podserver.Open(podserver.Options{
		Node: "n1", Socket: socket, Log: slog.New(slog.DiscardHandler),
		Devices: func() []device.Device { return devices },
		Holds: func(_ context.Context, node string) ([]*apiv1.ForeignHold, error) {
			if node != "n1" {
				t.Errorf("asked for node %q", node)
			}
			return []*apiv1.ForeignHold{{Id: "u1", Space: "web", Owner: "front", MilliCpu: 100,
				Gpus: []*apiv1.HeldGpu{{Uuid: "GPU-1"}, {Uuid: "MIG-1"}}}}, away
		},
		SetPods: func(pods []telemetry.PodOnNode) { told = pods },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	server.Serve(ctx, &wg)
	defer wg.Wait()
	defer stop()

	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is open to others: %v %v", info.Mode(), err)
	}
	client := podapi.NewClient(socket)
	node, err := client.Devices(ctx)
	if err != nil || node.Name != "n1" || !reflect.DeepEqual(node.Devices, devices) {
		t.Errorf("%+v, %v", node, err)
	}
	holds, err := client.Holds(ctx)
	want := []podapi.Hold{{UID: "u1", Namespace: "web", Pod: "front", GPUs: []string{"GPU-1", "MIG-1"}}}
	if err != nil || !reflect.DeepEqual(holds, want) {
		t.Errorf("%+v, %v", holds, err)
	}
	away = errors.New("no controller answers")
	if _, err := client.Holds(ctx); !errors.Is(err, podapi.ErrAway) || !strings.Contains(err.Error(), "no controller answers") {
		t.Errorf("%v", err)
	}
	pods := []podapi.Pod{{UUID: "GPU-1", Namespace: "web", Pod: "front", Container: "main", From: 5}}
	if err := client.SetPods(ctx, pods); err != nil || len(told) != 1 || told[0] != telemetry.PodOnNode(pods[0]) {
		t.Errorf("%+v, %v", told, err)
	}
	if err := client.SetPods(ctx, nil); err != nil || len(told) != 0 {
		t.Errorf("%+v, %v", told, err)
	}
	if status := put(t, socket, "nonsense"); status != http.StatusBadRequest {
		t.Errorf("nonsense is answered with %d", status)
	}
	stop()
	wg.Wait()
	if _, err := client.Devices(t.Context()); !errors.Is(err, podapi.ErrAway) {
		t.Errorf("nobody is there: %v", err)
	}
}

func put(t *testing.T, socket, body string) int {
	t.Helper()
	req := fmt.Sprintf("PUT %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", podapi.PodsPath, len(body), body)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(req)); err != nil {
		t.Fatal(err)
	}
	var version string
	var status int
	if _, err := fmt.Fscan(conn, &version, &status); err != nil {
		t.Fatal(err)
	}
	return status
}
