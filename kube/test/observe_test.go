package test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/kube/muster"
)

// observer sees the ledger and the pods beside muster-kube, and judges each moment.
type observer struct {
	l *lab

	mu     sync.Mutex
	nodes  map[string]*apiv1.HeldNode
	looks  int // at the ledger
	pods   int // that were seen let through
	faults []string
}

// observe begins to look. What it returns ends that, and fails the test with what was
// seen that must not be.
func (l *lab) observe(t *testing.T) (judge func()) {
	t.Helper()
	client, err := muster.New(muster.Config{Addresses: []string{"unix://" + filepath.Join(l.muster, "run", "rest.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	o := &observer{l: l, nodes: map[string]*apiv1.HeldNode{}}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			_ = client.Watch(ctx, o.see) // it ends whenever the controller is killed
			pause(ctx)
		}
	})
	work.Go(func() {
		for ctx.Err() == nil {
			_ = o.seePods(ctx) // a lost watch is begun again
			pause(ctx)
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
	t.Cleanup(end)
	return func() {
		t.Helper()
		end()
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, fault := range o.faults {
			t.Error(fault)
		}
		if o.looks == 0 || o.pods == 0 {
			t.Errorf("the observer saw nothing: %d looks at the ledger, %d pods", o.looks, o.pods)
		}
		t.Logf("%d looks at the ledger, %d looks at pods that were let through", o.looks, o.pods)
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

func (o *observer) fault(format string, args ...any) {
	if len(o.faults) < 20 {
		o.faults = append(o.faults, fmt.Sprintf(format, args...))
	}
}

// see judges what the ledger tells: jobs and pods together never have more than the
// node, and no device of two pods.
func (o *observer) see(news *apiv1.WatchHoldsReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looks++
	for _, n := range news.GetNodes() {
		o.nodes[n.GetName()] = n
		var milli, mem int64
		owners := map[string]string{}
		for _, h := range n.GetHolds() {
			milli += h.GetMilliCpu()
			mem += h.GetMem()
			for _, g := range h.GetGpus() {
				if other, taken := owners[g.GetUuid()]; taken {
					o.fault("GPU %s is of %s and %s", g.GetUuid(), other, h.GetOwner())
				}
				owners[g.GetUuid()] = h.GetOwner()
			}
		}
		if n.GetJobCpus()*1000+milli > n.GetCpus()*1000 || n.GetJobMem()+mem > n.GetMem() {
			o.fault("%s has %d CPUs and %d MiB: jobs have %d and %d, pods %dm and %d", n.GetName(), n.GetCpus(), n.GetMem(),
				n.GetJobCpus(), n.GetJobMem(), milli, mem)
		}
	}
}

// seePods judges each pod that is let through: its hold is in the ledger by then.
func (o *observer) seePods(ctx context.Context) error {
	w, err := o.l.kube.CoreV1().Pods("web").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok || e.Type == watch.Deleted || len(pod.Spec.SchedulingGates) > 0 || pod.DeletionTimestamp != nil {
			continue
		}
		if err := o.judge(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

func (o *observer) judge(ctx context.Context, pod *corev1.Pod) error {
	client, err := muster.New(muster.Config{Addresses: []string{"unix://" + filepath.Join(o.l.muster, "run", "rest.sock")}})
	if err != nil {
		return err
	}
	held := false
	seen, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = client.Watch(seen, func(first *apiv1.WatchHoldsReply) {
		for _, n := range first.GetNodes() {
			for _, h := range n.GetHolds() {
				held = held || h.GetId() == string(pod.UID) && (pod.Spec.NodeName == "" || pod.Spec.NodeName == n.GetName())
			}
		}
		o.mu.Lock()
		o.pods++
		o.mu.Unlock()
		cancel()
	})
	if held || seen.Err() == nil || ctx.Err() != nil {
		return nil // it has one, or nobody could be asked
	}
	now, err := o.l.kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil {
		o.mu.Lock()
		o.fault("pod %s is let through to %q without a hold", pod.Name, pod.Spec.NodeName)
		o.mu.Unlock()
	}
	return nil
}
