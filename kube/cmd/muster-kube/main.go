// Command muster-kube keeps Kubernetes and Muster's ledger in step: a pod is bound
// only where Muster holds for it what it requests, and jobs do not get that.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/musterhpc/muster/kube/executor"
	"github.com/musterhpc/muster/kube/muster"
)

var version = "unknown" // set by -ldflags

const usage = `muster-kube runs beside Kubernetes: it has Muster hold what a pod requests before
Kubernetes' scheduler may bind the pod, gives the hold back when the pod has
ended, and writes a GenericNode for each node.

Usage:
  muster-kube --muster https://HOST:6820 --muster-token FILE --muster-ca FILE

Several --muster name the controllers of one cluster. The token is one of
scontrol token for a user whom accounting gives AdminLevel=Operator.

Options:
`

// Times of the lease by which one of several copies works.
const (
	leaseTime   = 15 * time.Second
	renewWithin = 10 * time.Second
	retryLease  = 2 * time.Second
)

// requestsPerSecond bounds what the API server gets from here.
const requestsPerSecond = 500

type options struct {
	muster     muster.Config
	kubeconfig string
	cluster    string
	namespace  string
	gpus       string
	lease      string
	listen     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	var o options
	fl := pflag.NewFlagSet("muster-kube", pflag.ContinueOnError)
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
		&o.lease,
		"lease",
		"muster-kube",
		"`name` of the lease by which one of several copies works; empty: there is one copy",
	)
	fl.StringVar(&o.listen, "listen", "", "`address` for /healthz and /readyz; empty: none")
	help := fl.BoolP("help", "h", false, "print this help and exit")
	show := fl.Bool("version", false, "print the version and exit")
	if err := fl.Parse(args); err != nil {
		fmt.Fprintf(os.Stderr, "muster-kube: %v\n", err)
		return 2
	}
	switch {
	case *help:
		fmt.Print(usage, fl.FlagUsages())
		return 0
	case *show:
		fmt.Println("muster-kube", version)
		return 0
	case fl.NArg() > 0:
		fmt.Fprintf(os.Stderr, "muster-kube: unexpected argument %q\n", fl.Arg(0))
		return 2
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := work(ctx, &o, log); err != nil {
		fmt.Fprintf(os.Stderr, "muster-kube: %v\n", err)
		return 1
	}
	return 0
}

// work sets everything up and runs until the context ends or the lease is lost.
func work(ctx context.Context, o *options, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	controller, err := muster.New(o.muster)
	reach := rest.InClusterConfig
	if o.kubeconfig != "" {
		reach = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.kubeconfig) }
	}
	config, configErr := reach()
	if configErr != nil {
		configErr = fmt.Errorf(
			"no way to Kubernetes: %w; give --kubeconfig outside of a cluster",
			configErr,
		)
	}
	if err := errors.Join(err, configErr); err != nil {
		return err
	}
	config.UserAgent = "muster-kube/" + version
	config.QPS, config.Burst = requestsPerSecond, 2*requestsPerSecond
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}

	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	e := executor.New(executor.Config{
		Kube:    kube,
		Dynamic: objects,
		Muster:  controller,
		Recorder: events.NewRecorder(
			scheme.Scheme,
			corev1.EventSource{Component: "muster-kube"},
		),
		GPUResource: corev1.ResourceName(o.gpus),
		Cluster:     o.cluster,
		Namespace:   o.namespace,
		Log:         log,
	})
	if o.listen != "" {
		done, err := serveHealth(ctx, o.listen, e)
		if err != nil {
			return err
		}
		defer func() {
			cancel()
			<-done
		}()
	}
	if o.lease == "" {
		return e.Run(ctx)
	}
	return alone(ctx, o, kube, e)
}

// alone runs while this copy has the lease. Two at once would do no harm, but
// would write everything twice.
func alone(ctx context.Context, o *options, kube kubernetes.Interface, e *executor.Executor) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Name: o.lease, Namespace: o.namespace},
		Client:    kube.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{
			Identity: fmt.Sprintf("%s-%d", host, os.Getpid()),
		},
	}
	leading, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseTime, RenewDeadline: renewWithin, RetryPeriod: retryLease, ReleaseOnCancel: true, Name: o.lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				done <- e.Run(ctx)
				cancel()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(leading)
	if ctx.Err() != nil {
		return nil // asked to stop, with or without the lease
	}
	if err := <-done; err != nil {
		return err
	}
	return errors.New("another copy has the lease now")
}

// serveHealth answers probes. Muster's absence does not make this program unready:
// it has to stay, for the pods to be told.
func serveHealth(
	ctx context.Context,
	address string,
	e *executor.Executor,
) (<-chan struct{}, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc(
		"GET /healthz",
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") },
	)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !e.Synced() {
			http.Error(
				w,
				"the pods and Nodes of Kubernetes have not been read yet",
				http.StatusServiceUnavailable,
			)
			return
		}
		fmt.Fprintln(w, e.Connection())
	})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends when it is closed below
	}()
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	return done, nil
}
