package nodesets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/kube/program"
	"github.com/musterhpc/muster/ledger/event"
)

// Muster is the controller that leads. The caller has to be one who may let machines in:
// root on the controller's socket, or an administrator's certificate.
type Muster interface {
	Call(ctx context.Context, method string, req, rep proto.Message) error
}

// Config is what a keeper needs.
type Config struct {
	Kube      kubernetes.Interface
	Dynamic   dynamic.Interface
	Muster    Muster
	Namespace string // of its NodeSets
	// Cluster is the MusterCluster whose NodeSets and login hosts these are. Empty: all NodeSets of the
	// namespace, and no login hosts.
	Cluster string
	// Token is a Secret in which a token for REST is kept fresh; nil: none.
	Token    *TokenSecret
	Recorder record.EventRecorder
	Log      *slog.Logger
	Metrics  *Metrics // nil: nobody reads them
}

// lookEvery is how often the power of nodes is looked at.
const lookEvery = 2 * time.Second

// ordersAtOnce is how many nodes are worked on at the same time.
const ordersAtOnce = 32

// maxLooks is how many pods are looked at one by one. Where more are to be made, one list of all
// pods costs less.
const maxLooks = 8

// Keeper is the program's state: two views and a mark that one of them moved.
type Keeper struct {
	cfg    Config
	pods   corelisters.PodNamespaceLister
	sets   cache.GenericNamespaceLister
	moved  chan struct{} // has room for one mark
	synced atomic.Bool
	tokens tokens
}

// New makes a keeper. Run starts it.
func New(cfg Config) *Keeper {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(cfg.Cluster)
	}
	return &Keeper{cfg: cfg, moved: make(chan struct{}, 1)}
}

// Synced tells whether NodeSets and pods have been read.
func (k *Keeper) Synced() bool { return k.synced.Load() }

func (k *Keeper) mark() {
	select {
	case k.moved <- struct{}{}:
	default:
	}
}

// Run works until the context ends. It keeps nothing, so that it may be killed at any
// moment.
func (k *Keeper) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(k.cfg.Kube, 0,
		informers.WithNamespace(k.cfg.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = SetLabel }))
	objects := dynamicinformer.NewFilteredDynamicSharedInformerFactory(k.cfg.Dynamic, 0, k.cfg.Namespace, func(o *metav1.ListOptions) {
		if k.cfg.Cluster != "" {
			o.LabelSelector = ClusterLabel + "=" + k.cfg.Cluster
		}
	})
	pods, sets := factory.Core().V1().Pods(), objects.ForResource(Resource)
	k.pods = pods.Lister().Pods(k.cfg.Namespace)
	k.sets = sets.Lister().ByNamespace(k.cfg.Namespace)
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), sets.Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { k.mark() },
			UpdateFunc: func(any, any) { k.mark() },
			DeleteFunc: func(any) { k.mark() },
		})
		if err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	objects.Start(ctx.Done())
	defer objects.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced, sets.Informer().HasSynced) {
		return fmt.Errorf("the NodeSets and pods were not read: %w", context.Cause(ctx))
	}
	if k.cfg.Cluster != "" {
		if err := k.watchLogins(ctx); err != nil {
			return err
		}
	}
	k.synced.Store(true)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		k.round(ctx)
		k.keepTokens(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-k.moved:
		}
	}
}

// round goes through all NodeSets once. What fails is tried again in the next round.
func (k *Keeper) round(ctx context.Context) {
	list, err := k.sets.List(labels.Everything())
	if err != nil {
		k.cfg.Log.Error("cannot list NodeSets", "error", err)
		return
	}
	there := map[string]bool{}
	for _, object := range list {
		text, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		there[text.GetName()] = true
		began := time.Now()
		set := &NodeSet{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(text.Object, set)
		if err == nil {
			err = k.keep(ctx, set)
		}
		if ctx.Err() != nil {
			return
		}
		program.Since(k.cfg.Metrics.reconcile, began)
		if err != nil {
			k.cfg.Metrics.failures.Inc()
			k.cfg.Log.Warn("a NodeSet is not as it should be", "nodeset", text.GetName(), "error", err)
		}
	}
	k.cfg.Metrics.forgetSets(there)
}

// keep brings one NodeSet on.
func (k *Keeper) keep(ctx context.Context, set *NodeSet) error {
	leaving := set.DeletionTimestamp != nil
	if !leaving && !slices.Contains(set.Finalizers, Finalizer) {
		return k.setFinalizers(ctx, set, append(slices.Clone(set.Finalizers), Finalizer))
	}
	seen, err := k.pods.List(labels.SelectorFromSet(labels.Set{SetLabel: set.Name}))
	if err != nil {
		return err
	}
	wanted, wrong := check(set)
	// Pods that are there are known to the ledger by their names, whatever the spec says now.
	asked := slices.Clone(wanted)
	pods := make([]Pod, 0, len(seen))
	uids := make(map[string]types.UID, len(seen))
	for _, p := range seen {
		uids[p.Name] = p.UID
		pods = append(pods, Pod{
			Name:     p.Name,
			Over:     p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded,
			Deleting: p.DeletionTimestamp != nil,
		})
		asked = append(asked, p.Name)
	}
	nodes, err := k.look(ctx, set.Name, asked)
	if err != nil {
		return errors.Join(err, k.tell(ctx, set, &Status{Nodes: len(wanted), Pods: len(pods)}, wrong, err))
	}
	if wrong != nil && !leaving {
		// What is there stays as it is until the spec can be read again.
		return k.tell(ctx, set, statusOf(wanted, nodes, pods), wrong, nil)
	}
	plan := Make(wanted, nodes, pods, leaving)
	failed := k.carryOut(ctx, set, &plan, uids)
	if plan.Gone {
		rest := slices.DeleteFunc(slices.Clone(set.Finalizers), func(f string) bool { return f == Finalizer })
		return k.setFinalizers(ctx, set, rest)
	}
	return errors.Join(failed, k.tell(ctx, set, statusOf(wanted, nodes, pods), nil, failed))
}

// look asks the ledger for nodes by name. Those that it does not know are not in the answer.
func (k *Keeper) look(ctx context.Context, set string, asked []string) (map[string]Node, error) {
	if len(asked) == 0 {
		return map[string]Node{}, nil
	}
	rep := &apiv1.ListNodesReply{}
	err := k.cfg.Muster.Call(ctx, "ListNodes", &apiv1.ListNodesRequest{Nodes: asked}, rep)
	k.cfg.Metrics.noteConnection(err)
	if err != nil {
		return nil, fmt.Errorf("the ledger cannot be asked for the nodes: %w", err)
	}
	out := make(map[string]Node, len(rep.GetNodes()))
	for _, n := range rep.GetNodes() {
		node := Node{
			Name:       n.GetName(),
			Registered: n.GetRegistered() && !n.GetLost(),
			Idle: n.GetJobsRunning() == 0 && n.GetJobsCompleting() == 0 && len(n.GetHolds()) == 0 &&
				idleState(n.GetState()),
			Drained: slices.Contains(strings.Split(n.GetState(), "+"), "DRAIN"),
			Ours:    n.GetReason() == Why(set),
			Cloud:   n.GetCloud(),
		}
		switch event.PowerState(n.GetPower()) {
		case event.PoweringDown, event.PoweredDown:
			node.Power = Off
		case event.PowerUpWish:
			node.Power = Asked
		}
		out[node.Name] = node
	}
	return out, nil
}

// carryOut gives the orders of a plan about pods that were seen with some UIDs. It goes on
// after a failure.
func (k *Keeper) carryOut(ctx context.Context, set *NodeSet, plan *Plan, uids map[string]types.UID) error {
	var mu sync.Mutex
	var failed []error
	var all errgroup.Group
	all.SetLimit(ordersAtOnce)
	give := func(names []string, order func(name string) error) {
		for _, name := range names {
			all.Go(func() error {
				if err := order(name); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, err)
				}
				return nil
			})
		}
	}
	give(plan.Drain, func(name string) error { return k.update(ctx, set, name, "drain") })
	give(plan.Off, func(name string) error { return k.update(ctx, set, name, "power_down") })
	give(plan.Resume, func(name string) error { return k.update(ctx, set, name, "undrain") })
	give(plan.Delete, func(name string) error { return k.deletePod(ctx, set, name, uids[name]) })
	there, err := k.findPods(ctx, set, plan.Create)
	if err == nil {
		give(plan.Create, func(name string) error { return k.createPod(ctx, set, name, there[name]) })
	}
	_ = all.Wait() // what failed is in the list
	if err != nil {
		failed = append(failed, err)
	}
	return someOf(failed)
}

// findPods looks afresh which pods of these names there are. The watch may be behind what this
// keeper itself has made, and a pod that is there is never given a second token, because another
// one lets another machine in under its name. Nobody else makes them meanwhile: who works has the lease.
func (k *Keeper) findPods(ctx context.Context, set *NodeSet, names []string) (map[string]*corev1.Pod, error) {
	pods := k.cfg.Kube.CoreV1().Pods(set.Namespace)
	there := make(map[string]*corev1.Pod, len(names))
	if len(names) > maxLooks {
		list, err := pods.List(ctx, metav1.ListOptions{}) // those of others too: names are taken by any
		if err != nil {
			return nil, fmt.Errorf("cannot look which pods are there: %w", err)
		}
		for i := range list.Items {
			there[list.Items[i].Name] = &list.Items[i]
		}
		return there, nil
	}
	for _, name := range names {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			there[name] = pod
			continue
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("cannot look whether pod %s is there: %w", name, err)
		}
	}
	return there, nil
}

// someOf joins the first few of what failed: a thousand pods fail for the same reason.
func someOf(failed []error) error {
	const most = 5
	slices.SortFunc(failed, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if more := len(failed) - most; more > 0 {
		failed = append(failed[:most:most], fmt.Errorf("%d more", more))
	}
	return errors.Join(failed...)
}

// update changes the state of a node in the ledger.
func (k *Keeper) update(ctx context.Context, set *NodeSet, node, state string) error {
	req := &apiv1.UpdateNodeRequest{Nodes: node, State: state}
	if state == "drain" {
		req.Reason = Why(set.Name)
	}
	if err := k.cfg.Muster.Call(ctx, "UpdateNode", req, &apiv1.UpdateNodeReply{}); err != nil {
		return fmt.Errorf("node %s: %s: %w", node, state, err)
	}
	k.cfg.Log.Info("node changed", "node", node, "state", state, "nodeset", set.Name)
	return nil
}

// deletePod deletes the pod that was seen, and none that has its name by now.
func (k *Keeper) deletePod(ctx context.Context, set *NodeSet, name string, uid types.UID) error {
	err := k.cfg.Kube.CoreV1().Pods(set.Namespace).Delete(ctx, name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsConflict(err) {
		return nil // the watch brings what it is
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("pod %s is not deleted: %w", name, err)
	}
	err = k.cfg.Kube.CoreV1().Secrets(set.Namespace).Delete(ctx, secretName(name), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("the token of pod %s is not deleted: %w", name, err)
	}
	k.cfg.Log.Info("pod deleted", "pod", name, "nodeset", set.Name)
	return nil
}

// createPod makes the pod of a node, if a fresh look has found none of its name. Its token comes
// first: it is for this node, and good once.
func (k *Keeper) createPod(ctx context.Context, set *NodeSet, node string, there *corev1.Pod) error {
	switch {
	case there != nil && there.Labels[SetLabel] != set.Name:
		return fmt.Errorf("pod %s is there already and is not of this NodeSet", node)
	case there != nil:
		return nil // the watch will show it
	}
	rep := &apiv1.CreateTokenReply{}
	if err := k.cfg.Muster.Call(ctx, "CreateToken", &apiv1.CreateTokenRequest{Node: node}, rep); err != nil {
		return fmt.Errorf("node %s gets no token to join: %w", node, err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName(node), Namespace: set.Namespace, Labels: map[string]string{SetLabel: set.Name}},
		StringData: map[string]string{tokenKey: rep.GetToken()},
	}
	secrets := k.cfg.Kube.CoreV1().Secrets(set.Namespace)
	_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("the token of node %s: %w", node, err)
	}
	_, err = k.cfg.Kube.CoreV1().Pods(set.Namespace).Create(ctx, makePod(set, node), metav1.CreateOptions{})
	if err != nil {
		k.cfg.Recorder.Eventf(ref(set), corev1.EventTypeWarning, "PodNotCreated", "pod %s: %v", node, err)
		return fmt.Errorf("pod %s is not created: %w", node, err)
	}
	k.cfg.Log.Info("pod created", "pod", node, "nodeset", set.Name)
	return nil
}

// ref is a NodeSet as events name it.
func ref(set *NodeSet) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: Resource.GroupVersion().String(), Kind: "NodeSet",
		Namespace: set.Namespace, Name: set.Name, UID: set.UID}
}

func statusOf(names []string, nodes map[string]Node, pods []Pod) *Status {
	s := &Status{Nodes: len(names), Pods: len(pods)}
	for _, p := range pods {
		if nodes[p.Name].Registered && !p.Deleting && !p.Over {
			s.Ready++
		}
	}
	for _, n := range nodes {
		if !n.Idle {
			s.Busy++
		}
		if n.Drained {
			s.Draining++
		}
	}
	return s
}

// tell writes the status if it is new. wrong is about the spec, failed about what was to
// be done.
func (k *Keeper) tell(ctx context.Context, set *NodeSet, next *Status, wrong, failed error) error {
	k.cfg.Metrics.noteSet(set.Name, next)
	next.ObservedGeneration = set.Generation
	next.Conditions = slices.Clone(set.Status.Conditions)
	accepted := metav1.Condition{Type: Accepted, Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: set.Generation}
	if wrong != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Invalid", wrong.Error()
	}
	ready := metav1.Condition{Type: Ready, Status: metav1.ConditionTrue, Reason: "AllRegistered", ObservedGeneration: set.Generation}
	switch {
	case failed != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Failed", failed.Error()
	case wrong != nil:
		ready.Status, ready.Reason = metav1.ConditionFalse, "Invalid"
	case set.DeletionTimestamp != nil:
		ready.Status, ready.Reason = metav1.ConditionFalse, "Leaving"
		ready.Message = fmt.Sprintf("%d pods are drained and leave once their jobs have ended", next.Pods)
	case next.Ready < next.Pods:
		ready.Status, ready.Reason = metav1.ConditionFalse, "Starting"
		ready.Message = fmt.Sprintf("%d of %d agents have registered", next.Ready, next.Pods)
	}
	meta.SetStatusCondition(&next.Conditions, accepted)
	meta.SetStatusCondition(&next.Conditions, ready)
	was, err := json.Marshal(set.Status)
	if err != nil {
		return err
	}
	now, err := json.Marshal(next)
	if err != nil || string(was) == string(now) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": next})
	if err != nil {
		return err
	}
	_, err = k.cfg.Dynamic.Resource(Resource).Namespace(set.Namespace).
		Patch(ctx, set.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k *Keeper) setFinalizers(ctx context.Context, set *NodeSet, list []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": list, "resourceVersion": set.ResourceVersion,
	}})
	if err != nil {
		return err
	}
	_, err = k.cfg.Dynamic.Resource(Resource).Namespace(set.Namespace).
		Patch(ctx, set.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch brings what it is
	}
	return err
}
