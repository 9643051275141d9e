package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

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
)

// Kube are the clients of one API server.
type Kube struct {
	Typed   *kubernetes.Clientset
	Dynamic *dynamic.DynamicClient
}

// Connect makes clients. An empty kubeconfig is the service account of this pod, and zero
// requests a second leave client-go's own bound.
func (p *Program) Connect(kubeconfig string, perSecond int) (Kube, error) {
	config, err := reach(kubeconfig)
	if err != nil {
		return Kube{}, fmt.Errorf("no way to Kubernetes: %w; give --kubeconfig outside of a cluster", err)
	}
	config.UserAgent = p.Name + "/" + p.Version
	config.QPS, config.Burst = float32(perSecond), 2*perSecond
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Kube{}, err
	}
	objects, err := dynamic.NewForConfig(config)
	return Kube{Typed: typed, Dynamic: objects}, err
}

func reach(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// Record makes a recorder of events in a namespace; an empty one: in all. The function ends
// it, and has to be called.
func (p *Program) Record(ctx context.Context, kube Kube, namespace string) (record.EventRecorder, func()) {
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.Typed.CoreV1().Events(namespace)})
	return events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: p.Name}), events.Shutdown
}

// Times of the lease by which one of several copies works.
const (
	leaseTime   = 15 * time.Second
	renewWithin = 10 * time.Second
	retryLease  = 2 * time.Second
)

// RunAlone works while this copy has the lease. An empty name is that of a program of which
// there is one copy.
func (k Kube) RunAlone(ctx context.Context, namespace, name string, work func(context.Context) error) error {
	if name == "" {
		return work(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace},
		Client:     k.Typed.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s-%d", host, os.Getpid())},
	}
	leading, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseTime, RenewDeadline: renewWithin, RetryPeriod: retryLease, ReleaseOnCancel: true, Name: name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				done <- work(ctx)
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
