// Package executor carries out what copilot.Reconcile decides: it watches the pods
// and Nodes of Kubernetes and the nodes of Muster's ledger, asks Muster for holds,
// lets pods through that have one, and gives back the holds of pods that have ended.
//
// It keeps nothing of its own. What it knows it reads from both sides when it
// starts, so that it may be killed at any moment, and two of it at the same time do
// no harm: a hold is asked for by the pod's UID, and a pod is let through by a write
// that fails if the pod is not as it was seen.
//
// When Muster is away, no order is given: pods wait and say why, and what runs goes
// on. When the API server is away, holds stay as they are.
package executor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/kube/muster"
	"github.com/musterhpc/muster/kube/program"
)

// What is done at the same time, and how long it is waited.
const (
	ordersAtOnce = muster.CallsAtOnce
	// maxRest bounds the pause after a round.
	maxRest = time.Second
	// again is when a round comes back to an order that failed.
	again = time.Second
	// reachTime bounds the wait for the watch. After it, a pod may be given a second
	// hold, which is given back when the pod is pinned.
	reachTime = 20 * time.Second
)

// Config is what an executor needs.
type Config struct {
	Kube        kubernetes.Interface
	Dynamic     dynamic.Interface
	Muster      Muster
	Recorder    record.EventRecorder
	GPUResource corev1.ResourceName // of GPUs in pods
	Scheduler   string              // name by which pods ask to be scheduled by Muster
	Cluster     string              // label of the GenericNodes
	Namespace   string              // likewise
	Log         *slog.Logger
	Metrics     *Metrics // nil: nobody reads them
}

// Executor is the program's state: two views, and a mark that one of them moved.
type Executor struct {
	cfg    Config
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	claims claimSource
	books  *books
	ledger *ledger
	around surroundings
	asks   asks // of the pods of the last round
	// written are the pods of which the watch has yet to show what was written.
	written written
	// refusals are the pods whose submission Muster has refused, by UID.
	refusals refusals
	moved    chan struct{} // has room for one mark
	synced   atomic.Bool
}

// New makes an executor. Run starts it.
func New(cfg Config) *Executor {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(cfg.Cluster)
	}
	return &Executor{
		cfg:      cfg,
		ledger:   newLedger(),
		moved:    make(chan struct{}, 1),
		refusals: refusals{until: map[string]refusal{}},
	}
}

// Synced tells whether the pods and Nodes of Kubernetes have been read.
func (e *Executor) Synced() bool { return e.synced.Load() }

// Connection says in words whether Muster answers.
func (e *Executor) Connection() string {
	if _, _, err := e.ledger.look(); err != nil {
		return "pods wait: " + err.Error()
	}
	return "ok"
}

// Run works until the context ends.
func (e *Executor) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(
		e.cfg.Kube,
		0,
		informers.WithTransform(trim),
	)
	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	devices := factory.Resource().V1()
	e.pods = pods.Lister()
	e.nodes = nodes.Lister()
	e.claims = claimSource{devices.ResourceClaims().Lister(), devices.DeviceClasses().Lister()}
	core, classes := factory.Core().V1(), factory.Scheduling().V1().PriorityClasses()
	e.around = surroundings{
		spaces:  core.Namespaces().Lister(),
		classes: classes.Lister(),
		claims:  core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
	}
	for _, informer := range []cache.SharedIndexInformer{
		pods.Informer(),
		nodes.Informer(),
		core.Namespaces().Informer(),
		classes.Informer(),
		core.PersistentVolumeClaims().Informer(),
		core.PersistentVolumes().Informer(),
		devices.ResourceClaims().Informer(),
		devices.DeviceClasses().Informer(),
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { e.mark() },
			UpdateFunc: func(any, any) { e.mark() },
			DeleteFunc: func(any) { e.mark() },
		})
		if err != nil {
			return err
		}
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    e.cfg.Metrics.noteSeen,
		DeleteFunc: e.cfg.Metrics.noteGone,
	})
	if err != nil {
		return err
	}
	e.books = newBooks(&e.cfg)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("the list of %s was not read: %w", kind, context.Cause(ctx))
		}
	}
	e.synced.Store(true)

	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { e.ledger.follow(ctx, e.cfg.Muster, e.mark) })
	work.Go(func() { e.books.keep(ctx) })
	return e.loop(ctx)
}

// trim drops what an informer would keep of each object for nothing.
func trim(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return object, nil
}

// mark has a round follow.
func (e *Executor) mark() {
	select {
	case e.moved <- struct{}{}:
	default:
	}
}

// loop makes rounds while anything moves. What happens during a round is seen by the next
// one, so that the pods of a deployment come together by themselves and the first of them
// waits for nobody. A round looks at all pods: until the next one it takes at least as long
// as that took, with the orders and a pause, so that thinking takes at most half of a core.
func (e *Executor) loop(ctx context.Context) error {
	var later <-chan time.Time // nil: nothing failed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.moved:
		case <-later:
		}
		later = nil
		thought, gave, ok := e.round(ctx)
		if !ok {
			later = time.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(thought-gave, maxRest)): // at once where the orders took longer
		}
	}
}

// round compares both sides once and does what follows. It tells how long the comparison
// took, and the orders; ok is false if an order failed that nothing else will bring up again.
func (e *Executor) round(ctx context.Context) (thought, gave time.Duration, ok bool) {
	began := time.Now()
	defer program.Since(e.cfg.Metrics.round, began)
	seen, err := e.pods.List(labels.Everything())
	if err != nil {
		e.cfg.Log.Error("cannot list pods", "error", err)
		return 0, 0, false
	}
	nodes, err := e.nodes.List(labels.Everything())
	if err != nil {
		e.cfg.Log.Error("cannot list nodes", "error", err)
		return 0, 0, false
	}
	names := namesOf(nodes)
	held, jobs, away := e.ledger.look()
	e.cfg.Metrics.connected.Set(1)
	if away != nil {
		e.cfg.Metrics.connected.Set(0)
		return 0, 0, e.tellAway(ctx, seen, &names, away)
	}
	r, orders := e.think(ctx, seen, nodes, &names, held, jobs)
	thought = time.Since(began)
	e.carryOut(orders)

	reach, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	e.ledger.reach(reach, r.seq.Load())
	return thought, time.Since(began) - thought, !r.failed.Load()
}

// think compares both sides and finds the orders that follow.
func (e *Executor) think(
	ctx context.Context,
	seen []*corev1.Pod,
	nodes []*corev1.Node,
	names *names,
	held []*apiv1.HeldNode,
	jobs []copilot.PodJob,
) (*round, []func()) {
	e.books.note(held, nodes, names)
	e.asks.begin()

	admitting := newAdmissions(nodes, names)
	r := &round{
		Executor: e,
		names:    names,
		pods:     make(map[string]*corev1.Pod, len(seen)),
		wants:    map[string]*claims.Want{},
	}
	pods := make([]copilot.Pod, 0, len(seen))
	for _, p := range seen {
		want := r.want(ctx, p)
		pod := podOf(p, e.asks.of(p, e.cfg.GPUResource), want, names)
		if want == noWant {
			pod.Gated = false // what it asks for is not known
		}
		if pod.Gated {
			admitted, err := admitting.of(p)
			if err != nil {
				// It waits; its holds stay known.
				e.cfg.Log.Error("cannot tell which nodes admit a pod", "error", err)
			} else {
				pod.Admits = admitted.nodes
			}
		}
		r.pods[pod.UID] = p
		pods = append(pods, pod)
	}
	e.written.forget(r.pods)
	ledger := make([]copilot.Node, 0, len(held))
	for _, n := range held {
		ledger = append(ledger, nodeOf(n))
	}
	copilot.MarkOwn(pods, jobs)
	orders := r.orders(ctx, copilot.Reconcile(pods, ledger))
	scheduled := r.scheduledPods(seen, nodes, admitting)
	e.cfg.Metrics.notePods(pods, ledger, scheduled)
	orders = append(orders, r.jobOrders(ctx, copilot.ReconcileJobs(scheduled, jobs))...)
	return r, orders
}

// round is one comparison and its orders.
type round struct {
	*Executor
	names  *names
	pods   map[string]*corev1.Pod  // by UID
	wants  map[string]*claims.Want // likewise, of pods with claims for devices of the ledger
	seq    atomic.Uint64           // of the last order that the ledger took
	failed atomic.Bool
}

// orders are those of a plan.
func (r *round) orders(ctx context.Context, plan copilot.Plan) []func() {
	var out []func()
	out = each(out, plan.Releases, func(x copilot.Release) { r.release(ctx, x) })
	out = each(out, plan.LetGo, func(x copilot.LetGo) { r.letGo(ctx, x) })
	out = each(out, plan.Takes, func(x copilot.Take) { r.take(ctx, x) })
	return each(out, plan.Waits, func(x copilot.Wait) {
		r.tell(ctx, r.pods[x.Pod.UID], "NoRoom", x.Why+": it needs "+needs(&x.Pod.Ask))
	})
}

// each adds an order for all of a list.
func each[T any](orders []func(), list []T, do func(T)) []func() {
	for _, x := range list {
		orders = append(orders, func() { do(x) })
	}
	return orders
}

// carryOut gives orders, several at a time. They are begun in their order, and none waits
// for another: one that is slow, or that fails, keeps up nobody else's pod.
func (e *Executor) carryOut(orders []func()) {
	waiting := e.cfg.Metrics.orders
	waiting.Set(float64(len(orders)))
	var g errgroup.Group
	g.SetLimit(ordersAtOnce)
	for _, give := range orders {
		g.Go(func() error {
			give()
			waiting.Dec()
			return nil
		})
	}
	_ = g.Wait() // orders report by themselves
}

// came notes a position of the ledger that the watch must reach.
func (r *round) came(seq uint64) {
	for {
		old := r.seq.Load()
		if seq <= old || r.seq.CompareAndSwap(old, seq) {
			return
		}
	}
}

// fail notes an order that has to be given again.
func (r *round) fail(what string, err error) {
	r.failed.Store(true)
	r.cfg.Metrics.failures.Inc()
	r.cfg.Log.Warn(what, "error", err)
}

// release gives a hold back, if need be after a fresh look at its pod.
func (r *round) release(ctx context.Context, x copilot.Release) {
	if x.Confirm {
		now, err := r.freshLook(ctx, x.Pod)
		if err != nil {
			r.fail("cannot look at pod "+x.Pod, err)
			return
		}
		if !copilot.Gone(x, now) {
			// The watch is behind and will bring it.
			r.failed.Store(true)
			return
		}
	}
	rep, err := r.cfg.Muster.Release(ctx, releaseOf(&x))
	if err != nil {
		r.fail("cannot give back the hold of "+x.Pod+" on "+x.Node, err)
		return
	}
	r.came(rep.GetSeq())
	r.cfg.Log.Info("hold given back", "pod", x.Pod, "node", x.Node, "why", x.Why)
}

// freshLook asks the API server for a pod, past all caches; nil: there is none.
func (r *round) freshLook(ctx context.Context, name string) (*copilot.Pod, error) {
	space, pod, err := cache.SplitMetaNamespaceKey(name)
	if err != nil {
		return nil, err
	}
	now, err := r.cfg.Kube.CoreV1().Pods(space).Get(ctx, pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := podOf(now, askOf(now, r.cfg.GPUResource), &claims.Want{}, r.names) // only its end is asked for
	return &out, nil
}

// isThere looks afresh at a pod that is to be counted as it is: one that has ended since
// it was seen needs nothing, and a node without room for it would be drained for nothing.
func (r *round) isThere(ctx context.Context, pod *corev1.Pod) bool {
	now, err := r.freshLook(ctx, pod.Namespace+"/"+pod.Name)
	if err != nil {
		r.fail("cannot look at pod "+pod.Namespace+"/"+pod.Name, err)
		return false
	}
	return now != nil && now.UID == string(pod.UID) && !now.Over
}

// take asks for a hold and lets the pod through once it is durable.
func (r *round) take(ctx context.Context, x copilot.Take) {
	pod := r.pods[x.Pod.UID]
	if x.Running && !r.isThere(ctx, pod) {
		return
	}
	rep, err := r.cfg.Muster.Hold(ctx, r.requestOf(&x))
	if err != nil {
		r.refused(ctx, &x, pod, err)
		return
	}
	r.came(rep.GetSeq())
	if drained := rep.GetDrained(); drained != "" {
		r.tell(ctx, pod, "NotInLedger", drained)
		return
	}
	r.cfg.Log.Info("hold taken", "pod", pod.Namespace+"/"+pod.Name, "node", x.Node)
	if x.LetGo {
		devices := wire.ToGPURefs(rep.GetHold().GetGpus())
		r.letGo(ctx, copilot.LetGo{Pod: x.Pod, Node: x.Node, GPUs: devices})
	}
}

// refused tells a pod why it has no hold.
func (r *round) refused(ctx context.Context, x *copilot.Take, pod *corev1.Pod, err error) {
	reason, text := "NoRoom", fmt.Sprintf(
		"Muster refuses %s on %s: %v",
		needs(&x.Pod.Ask),
		x.Node,
		err,
	)
	if !answered(err) {
		// Whether the hold was taken is not known; the next look shows it.
		reason, text = "MusterAway", awayText(err)
	}
	r.failed.Store(true)
	r.cfg.Metrics.failures.Inc()
	if x.Running {
		r.cfg.Log.Warn(
			"a pod is there without a hold",
			"pod",
			pod.Namespace+"/"+pod.Name,
			"node",
			x.Node,
			"error",
			err,
		)
		return
	}
	r.tell(ctx, pod, reason, text)
}
