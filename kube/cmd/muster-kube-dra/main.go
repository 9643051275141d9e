// Command muster-kube-dra runs on each node beside Muster's agent and gives pods of
// Kubernetes exactly the GPUs that Muster's ledger has for them: it is the node program
// of a driver for dynamic resource allocation (DRA).
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/kube/dra"
	"github.com/musterhpc/muster/kube/program"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
)

var version = "unknown" // set by -ldflags

const usage = `muster-kube-dra publishes the GPUs of this node to Kubernetes under the UUIDs of
Muster's ledger, and gives a pod exactly the devices that the ledger has for it.
It runs as root on each node, beside Muster's agent, from which it has the
devices and the ledger's word.

Usage:
  muster-kube-dra --node NAME [options]

Examples:
  muster-kube-dra --node $(hostname)            # as the chart's DaemonSet runs it
  muster-kube-dra --node n1 --kubeconfig /etc/muster/kubeconfig \
      --agent-socket /var/lib/muster/agent/n1/pods.sock
  kubectl get resourceslices -o wide            # what it has published

Options:
`

type options struct {
	node       string
	kubeconfig string
	socket     string
	listen     string
	kubelet    string
	pluginDir  string
	registry   string
	cdiDir     string
	cdiVendor  string
}

func main() {
	var o options
	fl := program.NewFlags("muster-kube-dra")
	fl.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`name` of this Node in Kubernetes (default: NODE_NAME of the environment)")
	fl.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: as a pod of the cluster")
	fl.StringVar(&o.socket, "agent-socket", "", "`path` of the agent's socket (default: /var/lib/muster/agent/NODE/pods.sock)")
	fl.StringVar(&o.kubelet, "kubelet-dir", "/var/lib/kubelet", "kubelet's `folder`, with plugins and plugins_registry")
	fl.StringVar(&o.pluginDir, "plugin-dir", "", "`folder` of this program's socket and memory (default: plugins/"+claims.Driver+" of --kubelet-dir)")
	fl.StringVar(&o.registry, "registry-dir", "", "`folder` in which kubelet looks for plug-ins (default: plugins_registry of --kubelet-dir)")
	fl.StringVar(&o.cdiDir, "cdi-dir", "/var/run/cdi", "`folder` for the CDI specs of claims; the container runtime reads it")
	fl.StringVar(&o.cdiVendor, "cdi-vendor", "nvidia.com/gpu", "`kind` of the vendor's CDI devices, used beside ours where there is one with the UUID; empty: not looked for")
	fl.StringVar(&o.listen, "listen", "", "`address` for /healthz and /readyz; empty: none")
	p := &program.Program{Name: "muster-kube-dra", Version: version, Usage: usage, Flags: fl}
	p.Check = func() error {
		if o.node == "" {
			return errors.New("--node is needed: the name that `kubectl get nodes` shows for this machine")
		}
		o.setDefaults()
		return nil
	}
	p.Work = func(ctx context.Context, log *slog.Logger) error {
		klog.SetSlogLogger(log)
		return work(klog.NewContext(ctx, logr.FromSlogHandler(log.Handler())), p, &o, log)
	}
	p.Main()
}

func (o *options) setDefaults() {
	if o.socket == "" {
		o.socket = findSocket("/var/lib/muster/agent", o.node)
	}
	if o.pluginDir == "" {
		o.pluginDir = filepath.Join(o.kubelet, "plugins", claims.Driver)
	}
	if o.registry == "" {
		o.registry = filepath.Join(o.kubelet, "plugins_registry")
	}
}

// findSocket is the agent's socket below a folder: that of the Node's name, or the only
// one that is there, since a node may have another name in Muster.
func findSocket(dir, node string) string {
	byName := filepath.Join(dir, node, podapi.Socket)
	if _, err := os.Stat(byName); err == nil {
		return byName
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*", podapi.Socket)); err == nil && len(found) == 1 {
		return found[0]
	}
	return byName
}

// work runs until the context ends.
func work(ctx context.Context, p *program.Program, o *options, log *slog.Logger) error {
	kube, err := p.Connect(o.kubeconfig, program.Rates{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.pluginDir, 0o750); err != nil {
		return err
	}
	if _, err := os.Stat(o.registry); err != nil {
		return fmt.Errorf("kubelet's folder of plug-ins: %w; name kubelet's folder with --kubelet-dir", err)
	}
	driver, err := dra.New(dra.Config{
		Kube:      kube.Typed,
		Agent:     podapi.NewClient(o.socket),
		Node:      o.node,
		PluginDir: o.pluginDir,
		Registry:  o.registry,
		CDIDir:    o.cdiDir,
		CDIRead:   []string{"/etc/cdi"},
		CDIVendor: o.cdiVendor,
		Log:       log,
	})
	if err != nil {
		return err
	}
	ready := func() (string, error) { return "ok", driver.Ready() }
	wait, err := program.Serve(ctx, o.listen, program.Pages{Ready: ready}, log)
	if err != nil {
		return err
	}
	defer wait()
	return driver.Run(ctx)
}
