// Command muster-operator runs clusters of Muster in Kubernetes, as their MusterClusters
// and SlurmClusters describe them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/musterhpc/muster/kube/clusters"
	"github.com/musterhpc/muster/kube/program"
)

var version = "unknown" // set by -ldflags

const usage = `muster-operator keeps what the clusters of Muster in Kubernetes consist of:
controllers, REST, login hosts and NodeSets, as the MusterClusters say. It never
deletes a pod, and what runs goes on while it is away.

Usage:
  muster-operator [options]
  muster-operator certificate --help

Examples:
  muster-operator --namespace muster-system           # as the chart's Deployment runs it
  muster-operator --kubeconfig ~/.kube/config --lease ''
  kubectl get musterclusters -A

Options:
`

const certificateUsage = `muster-operator certificate makes the certificate of a controller, before musterd
starts in its pod for the first time. One that is there is kept: musterd renews it.

Usage:
  muster-operator certificate --authority DIR --tls DIR --name NAME [--host HOST]...

Options:
`

// requestsPerSecond bounds what the API server gets from here.
const requestsPerSecond = 100

func main() {
	if len(os.Args) > 1 && os.Args[1] == "certificate" {
		os.Args = append(os.Args[:1:1], os.Args[2:]...)
		certificate().Main()
	}
	operator().Main()
}

func operator() *program.Program {
	var kubeconfig, namespace, lease, listen, image string
	fl := program.NewFlags("muster-operator")
	fl.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: as a pod of the cluster")
	fl.StringVar(&namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`namespace` of the lease (default: POD_NAMESPACE of the environment)")
	fl.StringVar(&lease, "lease", "muster-operator", "`name` of the lease by which one of several copies works; empty: there is one copy")
	fl.StringVar(&image, "image", "muster:"+version, "`image` of clusters that a SlurmCluster describes")
	fl.StringVar(&listen, "listen", "", "`address` for /healthz, /readyz and /metrics; empty: none")
	p := &program.Program{Name: clusters.Manager, Version: version, Usage: usage, Flags: fl}
	p.Check = func() error {
		if lease != "" && namespace == "" {
			return errors.New("--namespace is needed: that of the lease")
		}
		return nil
	}
	p.Work = func(ctx context.Context, log *slog.Logger) error {
		kube, err := p.Connect(kubeconfig, program.Rates{Typed: requestsPerSecond, Dynamic: requestsPerSecond})
		if err != nil {
			return err
		}
		recorder, end := p.Record(ctx, kube, "")
		defer end()
		metrics := clusters.NewMetrics()
		o := &clusters.Operator{
			Kube:     kube.Typed,
			Dynamic:  kube.Dynamic,
			Recorder: recorder,
			Log:      log,
			Image:    image,
			Metrics:  metrics,
		}
		// A copy that waits for the lease is ready: it has nothing else to do.
		ready := func() (string, error) { return "ok", nil }
		pages := program.Pages{Ready: ready, Metrics: metrics.Handler()}
		wait, err := program.Serve(ctx, listen, pages, log)
		if err != nil {
			return err
		}
		defer wait()
		return kube.RunAlone(ctx, namespace, lease, program.Leading(metrics.Leader, o.Run))
	}
	return p
}

func certificate() *program.Program {
	var c clusters.Certificate
	fl := program.NewFlags("muster-operator certificate")
	fl.StringVar(&c.Authority, "authority", "", "`folder` with ca.crt and ca.key of the cluster's authority")
	fl.StringVar(&c.TLS, "tls", "/var/lib/muster/tls", "`folder` of the controller's certificate (tls.dir of muster.yaml)")
	fl.StringVar(&c.Name, "name", "", "`name` of the controller in slurm.conf")
	fl.StringArrayVar(&c.Hosts, "host", nil, "`name` or address by which it is reached; may be repeated")
	p := &program.Program{Name: "muster-operator certificate", Version: version, Usage: certificateUsage, Flags: fl}
	p.Check = func() error {
		if c.Authority == "" || c.Name == "" {
			return errors.New("--authority and --name are needed")
		}
		return nil
	}
	p.Work = func(context.Context, *slog.Logger) error {
		made, err := c.Prepare(time.Now())
		if err == nil && made {
			fmt.Println("made the certificate of", c.Name)
		}
		return err
	}
	return p
}
