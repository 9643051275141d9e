package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Kube are the clients of one API server. Each has a rate of its own, so that events and
// what is written for people never keep up what pods wait for.
type Kube struct {
	Typed   *kubernetes.Clientset
	Dynamic *dynamic.DynamicClient
	events  *typedcorev1.CoreV1Client
}

// Rates are how many requests a second the clients send at most. Zero is client-go's own
// bound.
type Rates struct{ Typed, Dynamic int }

// Unbounded leaves it to the API server how many requests it takes of a client: it knows
// what others ask of it, and says when to come again. Such a program bounds how many it
// sends at the same time.
const Unbounded = -1

// Connect makes clients. An empty kubeconfig is the service account of this pod.
func (p *Program) Connect(kubeconfig string, rates Rates) (Kube, error) {
	config, err := reach(kubeconfig)
	if err != nil {
		return Kube{}, fmt.Errorf("no way to Kubernetes: %w; give --kubeconfig outside of a cluster", err)
	}
	config.UserAgent = p.Name + "/" + p.Version
	var out Kube
	var typedErr, objectsErr, eventsErr error
	out.Typed, typedErr = kubernetes.NewForConfig(atRate(config, rates.Typed))
	out.Dynamic, objectsErr = dynamic.NewForConfig(atRate(config, rates.Dynamic))
	out.events, eventsErr = typedcorev1.NewForConfig(atRate(config, eventsPerSecond))
	return out, errors.Join(typedErr, objectsErr, eventsErr)
}

// atRate is a configuration of a client that has its own bound.
func atRate(config *rest.Config, perSecond int) *rest.Config {
	out := rest.CopyConfig(config)
	out.QPS = float32(perSecond)
	out.Burst = max(2*perSecond, 0)
	return out
}

func reach(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
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
