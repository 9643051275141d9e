// Command muster-kube keeps Kubernetes and Muster's ledger in step: a pod is bound
// only where Muster holds for it what it requests, and jobs do not get that.
package main

import (
	"context"
	"errors"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/musterhpc/muster/kube/executor"
	"github.com/musterhpc/muster/kube/muster"
	"github.com/musterhpc/muster/kube/program"
)

var version = "unknown" // set by -ldflags

const usage = `muster-kube runs beside Kubernetes: it has Muster hold what a pod requests before
Kubernetes' scheduler may bind the pod, gives the hold back when the pod has
ended, and writes a GenericNode for each node. Pods with schedulerName: muster
become jobs of Muster, and are bound where those start.

Usage:
  muster-kube --muster https://HOST:6820 --muster-token FILE --muster-ca FILE

Several --muster name the controllers of one cluster. The token is one of
scontrol token scope=pods; its user needs no further rights.

Options:
`

// rates are without a bound for what pods wait for: the executor bounds how many requests
// it sends at the same time. GenericNodes, which the other client writes, are for people.
var rates = program.Rates{Typed: program.Unbounded, Dynamic: 100}

type options struct {
	muster     muster.Config
	kubeconfig string
	cluster    string
	namespace  string
	gpus       string
	scheduler  string
	lease      string
	listen     string
}

func main() {
	var o options
	fl := program.NewFlags("muster-kube")
	fl.StringArrayVar(
		&o.muster.Addresses,
		"muster",
		nil,
		"`address` of a controller: https://HOST:PORT or unix:///PATH; may be repeated",
	)
	fl.StringVar(
		&o.muster.TokenFile,
		"muster-token",
		"",
		"`file` with the token, read again for each call",
	)
	fl.StringVar(
		&o.muster.CAFile,
		"muster-ca",
		"",
		"`file` with the cluster's certificate authority; empty: the system's",
	)
	fl.StringVar(
		&o.kubeconfig,
		"kubeconfig",
		"",
		"kubeconfig `file`; empty: as a pod of the cluster",
	)
	fl.StringVar(
		&o.cluster,
		"cluster",
		"muster",
		"`name` of the Muster cluster, on the labels of GenericNodes",
	)
	fl.StringVar(
		&o.namespace,
		"namespace",
		"default",
		"`namespace` of the lease, and on the labels of GenericNodes",
	)
	fl.StringVar(&o.gpus, "gpu-resource", "nvidia.com/gpu", "`resource` by which pods request GPUs")
	fl.StringVar(
		&o.scheduler,
		"scheduler-name",
		"muster",
		"`name` in schedulerName of pods that Muster schedules",
	)
	fl.StringVar(
		&o.lease,
		"lease",
		"muster-kube",
		"`name` of the lease by which one of several copies works; empty: there is one copy",
	)
	fl.StringVar(&o.listen, "listen", "", "`address` for /healthz, /readyz and /metrics; empty: none")
	p := &program.Program{Name: "muster-kube", Version: version, Usage: usage, Flags: fl}
	p.Work = func(ctx context.Context, log *slog.Logger) error { return work(ctx, p, &o, log) }
	p.Main()
}

// work sets everything up and runs until the context ends or the lease is lost.
func work(ctx context.Context, p *program.Program, o *options, log *slog.Logger) error {
	controller, err := muster.New(o.muster)
	kube, kubeErr := p.Connect(o.kubeconfig, rates)
	if err := errors.Join(err, kubeErr); err != nil {
		return err
	}
	recorder, end := p.Record(ctx, kube, "")
	defer end()
	metrics := executor.NewMetrics(o.cluster)
	e := executor.New(executor.Config{
		Kube:        kube.Typed,
		Dynamic:     kube.Dynamic,
		Muster:      controller,
		Recorder:    recorder,
		GPUResource: corev1.ResourceName(o.gpus),
		Scheduler:   o.scheduler,
		Cluster:     o.cluster,
		Namespace:   o.namespace,
		Metrics:     metrics,
		Log:         log,
	})
	// Muster's absence does not make this program unready: it has to stay, for the pods to be told.
	ready := func() (string, error) {
		if !e.Synced() {
			return "", errors.New("the pods and Nodes of Kubernetes have not been read yet")
		}
		return e.Connection(), nil
	}
	pages := program.Pages{Ready: ready, Metrics: metrics.Handler()}
	wait, err := program.Serve(ctx, o.listen, pages, log)
	if err != nil {
		return err
	}
	defer wait()
	// Two copies at once would do no harm, but would write everything twice.
	return kube.RunAlone(ctx, o.namespace, o.lease, program.Leading(metrics.Leader, e.Run))
}
