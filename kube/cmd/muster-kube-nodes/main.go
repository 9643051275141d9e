// Command muster-kube-nodes runs beside a controller of Muster and keeps the nodes of
// its cluster that are pods of Kubernetes: a node of a NodeSet has a pod while the
// ledger says that its power is on.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/musterhpc/muster/kube/muster"
	"github.com/musterhpc/muster/kube/nodesets"
	"github.com/musterhpc/muster/kube/program"
)

var version = "unknown" // set by -ldflags

const usage = `muster-kube-nodes keeps the nodes of a Muster cluster that are pods of Kubernetes.
A NodeSet names nodes of slurm.conf and has a template of their pods. A node has a
pod while the ledger says that its power is on: nodes with State=CLOUD while jobs
need them and for SuspendTime after that, the others always. Nodes that leave are
drained first, and no pod goes while a job is on it.

It runs beside a controller, as root, since it lets nodes join the cluster.

Usage:
  muster-kube-nodes [options]

Examples:
  muster-kube-nodes                                   # in the controller's pod, as the chart muster has it
  muster-kube-nodes --kubeconfig /etc/muster/kube --namespace hpc   # on the controller's host
  kubectl -n hpc get nodesets

Options:
`

type options struct {
	socket     string
	kubeconfig string
	namespace  string
	cluster    string
	lease      string
	token      nodesets.TokenSecret
	listen     string
}

func main() {
	var o options
	fl := program.NewFlags("muster-kube-nodes")
	fl.StringVar(&o.socket, "socket", "/run/muster/rest.sock", "`path` of the controller's REST socket (listen.rest_socket of muster.yaml)")
	fl.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: as a pod of the cluster")
	fl.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the NodeSets (default: POD_NAMESPACE of the environment)")
	fl.StringVar(&o.cluster, "cluster", "", "`name` of the MusterCluster whose NodeSets and login hosts these are; empty: all NodeSets of the namespace")
	fl.StringVar(&o.lease, "lease", "", "`name` of the lease by which one of several copies works; empty: there is one copy")
	fl.StringVar(&o.token.Name, "token-secret", "", "`name` of a Secret in which a token for REST is kept fresh; empty: none")
	fl.StringVar(&o.token.Key, "token-key", "token", "`key` of that Secret")
	fl.StringVar(&o.token.User, "token-user", "", "`user` as whom the token acts")
	fl.StringVar(&o.listen, "listen", "", "`address` for /healthz, /readyz and /metrics; empty: none")
	p := &program.Program{Name: "muster-kube-nodes", Version: version, Usage: usage, Flags: fl}
	p.Check = func() error {
		if o.namespace == "" {
			return errors.New("--namespace is needed: that of the NodeSets")
		}
		if o.token.Name != "" && o.token.User == "" {
			return errors.New("--token-secret needs --token-user")
		}
		return nil
	}
	p.Work = func(ctx context.Context, log *slog.Logger) error { return work(ctx, p, &o, log) }
	p.Main()
}

// rates: what nodes wait for has no bound of its own, as in muster-kube; the status of NodeSets has.
var rates = program.Rates{Typed: program.Unbounded, Dynamic: 100}

// work runs until the context ends.
func work(ctx context.Context, p *program.Program, o *options, log *slog.Logger) error {
	controller, err := muster.New(muster.Config{Addresses: []string{"unix://" + o.socket}})
	if err != nil {
		return err
	}
	kube, err := p.Connect(o.kubeconfig, rates)
	if err != nil {
		return err
	}
	recorder, end := p.Record(ctx, kube, o.namespace)
	defer end()
	metrics := nodesets.NewMetrics(o.cluster)
	cfg := nodesets.Config{
		Kube:      kube.Typed,
		Dynamic:   kube.Dynamic,
		Muster:    controller,
		Namespace: o.namespace,
		Cluster:   o.cluster,
		Recorder:  recorder,
		Log:       log,
		Metrics:   metrics,
	}
	if o.token.Name != "" {
		cfg.Token = &o.token
	}
	keeper := nodesets.New(cfg)
	ready := func() (string, error) {
		if !keeper.Synced() {
			return "", errors.New("the NodeSets and pods have not been read yet")
		}
		return "ok", nil
	}
	wait, err := program.Serve(ctx, o.listen, program.Pages{Ready: ready, Metrics: metrics.Handler()}, log)
	if err != nil {
		return err
	}
	defer wait()
	return kube.RunAlone(ctx, o.namespace, o.lease, program.Leading(metrics.Leader, keeper.Run))
}
