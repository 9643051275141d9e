package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/kube/nodesets"
	"github.com/musterhpc/muster/kube/program"
)

// Manager is the name under which the operator writes fields.
const Manager = "muster-operator"

// How often ConfigMaps of sites are read, and when everything is applied again although
// nothing has changed, since somebody else may have changed it.
const (
	lookEvery  = 10 * time.Second
	applyAgain = 5 * time.Minute
)

// Operator keeps the clusters of all namespaces.
type Operator struct {
	Kube     kubernetes.Interface
	Dynamic  dynamic.Interface
	Recorder record.EventRecorder
	Log      *slog.Logger
	// Image is that of clusters that are described by a SlurmCluster.
	Image string
	// Metrics are what it says of itself; nil: nobody reads them.
	Metrics *Metrics

	clusters, slurms, sets cache.GenericLister
	stateful               appslisters.StatefulSetLister
	moved                  chan struct{}      // has room for one mark
	applied                map[string]applied // what this process has applied, by resource and name
	told                   map[string]int64   // the generation for which a text was told last
}

// applied is the last application of an object.
type applied struct {
	sum uint64
	at  time.Time
}

// Run works until the context ends. What it has done is in the API server alone, so that it
// may be killed at any moment.
func (o *Operator) Run(ctx context.Context) error {
	o.moved = make(chan struct{}, 1)
	o.applied, o.told = map[string]applied{}, map[string]int64{}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Kube, 0,
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = ClusterLabel }))
	objects := dynamicinformer.NewDynamicSharedInformerFactory(o.Dynamic, 0)
	stateful := factory.Apps().V1().StatefulSets()
	o.stateful = stateful.Lister()
	watched := []cache.SharedIndexInformer{stateful.Informer()}
	for _, w := range []struct {
		resource schema.GroupVersionResource
		lister   *cache.GenericLister
	}{{Resource, &o.clusters}, {SlurmResource, &o.slurms}, {nodesets.Resource, &o.sets}} {
		informer := objects.ForResource(w.resource)
		*w.lister = informer.Lister()
		watched = append(watched, informer.Informer())
	}
	var ready []cache.InformerSynced
	for _, informer := range watched {
		ready = append(ready, informer.HasSynced)
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { o.mark() },
			UpdateFunc: func(any, any) { o.mark() },
			DeleteFunc: func(any) { o.mark() },
		}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	objects.Start(ctx.Done())
	defer objects.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), ready...) {
		return fmt.Errorf("the clusters were not read: %w", context.Cause(ctx))
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		o.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-o.moved:
		}
	}
}

func (o *Operator) mark() {
	select {
	case o.moved <- struct{}{}:
	default:
	}
}

// round goes through all clusters once. What fails is tried again in the next round.
func (o *Operator) round(ctx context.Context) {
	each(o, kindSlurm, o.slurms, func(s *SlurmCluster) error { return o.translate(ctx, s) })
	each(o, kindMuster, o.clusters, func(c *MusterCluster) error { return o.keep(ctx, c) })
}

// each reads the objects of a lister and works on them one by one.
func each[T any](o *Operator, kind string, lister cache.GenericLister, work func(*T) error) {
	list, err := lister.List(labels.Everything())
	if err != nil {
		o.Log.Error("cannot list", "error", err)
		return
	}
	o.Metrics.Gauge("muster_operator_objects", kind).Set(float64(len(list)))
	queue := o.Metrics.Gauge("muster_operator_queue", kind)
	defer queue.Set(0)
	for i, object := range list {
		queue.Set(float64(len(list) - i))
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		began := time.Now()
		into := new(T)
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
		if err == nil {
			err = work(into)
		}
		program.Since(o.Metrics.Histogram("muster_operator_reconcile_seconds", kind), began)
		if err != nil {
			o.Metrics.Counter("muster_operator_reconcile_failures_total", kind).Inc()
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			o.Log.Warn("not as it should be", "kind", u.GetKind(), "namespace", u.GetNamespace(), "name", u.GetName(), "error", err)
		}
	}
}

// keep brings one cluster on.
func (o *Operator) keep(ctx context.Context, c *MusterCluster) error {
	if c.DeletionTimestamp != nil {
		return o.remove(ctx, c)
	}
	if !slices.Contains(c.Finalizers, Finalizer) {
		return o.setFinalizers(ctx, c, append(slices.Clone(c.Finalizers), Finalizer))
	}
	cfg, err := o.configure(ctx, c)
	if err != nil {
		// What runs stays as it is until its configuration can be read again.
		return errors.Join(err, o.report(ctx, c, err, nil))
	}
	err = o.bringAbout(ctx, c, cfg)
	for _, note := range cfg.Notes {
		o.tellOnce(ref(c), c.Generation, "Configuration", note)
	}
	return errors.Join(err, o.report(ctx, c, nil, err))
}

// configure makes the configuration of what the site has written.
func (o *Operator) configure(ctx context.Context, c *MusterCluster) (*Configuration, error) {
	files := c.Spec.Config.Files
	if name := c.Spec.Config.ConfigMap; name != "" {
		site, err := o.Kube.CoreV1().ConfigMaps(c.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("%w: its configuration: %w", ErrSpec, err)
		}
		files = site.Data
		if only := c.Spec.Config.Only; len(only) > 0 {
			maps.DeleteFunc(files, func(name, _ string) bool { return !slices.Contains(only, name) })
		}
	}
	return Configure(c, files)
}

// bringAbout applies what has changed, secrets first, and deletes what is not wanted any more.
func (o *Operator) bringAbout(ctx context.Context, c *MusterCluster, cfg *Configuration) error {
	list, err := Make(c, cfg)
	if err != nil {
		return err
	}
	if err := o.ensureAuthority(ctx, c); err != nil {
		return fmt.Errorf("the authority of the cluster: %w", err)
	}
	var failed []error
	wanted := map[string]bool{}
	for _, object := range list {
		wanted[object.Resource.Resource+" "+object.Object.GetName()] = true
		failed = append(failed, o.apply(ctx, c.UID, object))
	}
	for resource, name := range c.optional() {
		if !wanted[resource.Resource+" "+name] {
			failed = append(failed, o.delete(ctx, resource, c.Namespace, name))
		}
	}
	names, err := o.setsOf(c)
	failed = append(failed, err)
	for _, name := range names {
		if !wanted[nodesets.Resource.Resource+" "+name] {
			failed = append(failed, o.delete(ctx, nodesets.Resource, c.Namespace, name))
		}
	}
	return errors.Join(failed...)
}

// optional is what a cluster may have and need not.
func (c *MusterCluster) optional() func(func(schema.GroupVersionResource, string) bool) {
	return func(yield func(schema.GroupVersionResource, string) bool) {
		_ = yield(statefulSets, c.loginSet()) && yield(services, c.loginSet()) && yield(services, c.web()) && yield(budgets, c.controllerSet()) &&
			yield(statefulSets, c.witnessSet()) && yield(services, c.witnessSet()) && yield(networkPolicies, c.witnessSet())
	}
}

// setsOf names the NodeSets that there are of a cluster.
func (o *Operator) setsOf(c *MusterCluster) ([]string, error) {
	list, err := o.sets.ByNamespace(c.Namespace).List(labels.SelectorFromSet(labels.Set{ClusterLabel: c.Name}))
	var names []string
	for _, object := range list {
		set, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		names = append(names, set.GetName())
	}
	return names, err
}

// apply writes an object unless it was written so already.
func (o *Operator) apply(ctx context.Context, owner types.UID, x Object) error {
	text, err := json.Marshal(x.Object)
	if err != nil {
		return err
	}
	hash := fnv.New64a()
	_, _ = hash.Write(text) // it never fails
	key := fmt.Sprint(owner, " ", x.Resource.Resource, " ", x.Object.GetName())
	if was := o.applied[key]; was.sum == hash.Sum64() && time.Since(was.at) < applyAgain {
		return nil
	}
	_, err = o.Dynamic.Resource(x.Resource).Namespace(x.Object.GetNamespace()).
		Apply(ctx, x.Object.GetName(), x.Object, metav1.ApplyOptions{FieldManager: Manager, Force: true})
	if err != nil {
		return fmt.Errorf("%s %s: %w", x.Object.GetKind(), x.Object.GetName(), err)
	}
	o.applied[key] = applied{hash.Sum64(), time.Now()}
	return nil
}

// delete deletes what is there.
func (o *Operator) delete(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) error {
	background := metav1.DeletePropagationBackground
	err := o.Dynamic.Resource(resource).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ensureAuthority makes the certificate authority of a cluster, once. Its key is written and
// never read: whether it is there is asked by a dry run. The public certificate comes first,
// so that an interruption between the two only makes another pair.
func (o *Operator) ensureAuthority(ctx context.Context, c *MusterCluster) error {
	key := fmt.Sprint(c.UID, " authority")
	if _, done := o.applied[key]; done {
		return nil
	}
	ca, err := pki.NewCA(c.clusterName(), time.Now())
	if err != nil {
		return err
	}
	pair, err := ca.Pair()
	if err != nil {
		return err
	}
	m := maker{cluster: c}
	secret := &corev1.Secret{ObjectMeta: m.meta(c.authority(), "controller"), Data: map[string][]byte{pki.CACertFile: pair.Cert, pki.CAKeyFile: pair.Key}}
	secrets := o.Kube.CoreV1().Secrets(c.Namespace)
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		m.add(configMaps, "ConfigMap", "v1", &corev1.ConfigMap{ObjectMeta: m.meta(c.publicCA(), "controller"), Data: map[string]string{pki.CACertFile: string(pair.Cert)}})
		if err = errors.Join(m.err, o.apply(ctx, c.UID, m.out[0])); err == nil {
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		}
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	o.applied[key] = applied{at: time.Now()}
	return nil
}

// remove takes a cluster away: its NodeSets first, which drain their nodes and wait for jobs,
// then the rest. Volumes stay, and so does the authority, whose certificates are on them: its
// public certificate cannot be made again, since the operator cannot read the Secret.
func (o *Operator) remove(ctx context.Context, c *MusterCluster) error {
	if !slices.Contains(c.Finalizers, Finalizer) {
		return nil
	}
	sets, err := o.setsOf(c)
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range sets {
		failed = append(failed, o.delete(ctx, nodesets.Resource, c.Namespace, name))
	}
	if len(sets) > 0 {
		return errors.Join(append(failed, o.report(ctx, c, nil, nil))...)
	}
	for _, x := range []struct {
		resource schema.GroupVersionResource
		name     string
	}{
		{statefulSets, c.controllerSet()}, {configMaps, c.configMap()}, {services, c.peers()}, {services, c.rest()},
		{networkPolicies, c.controllerSet()}, {roleBindings, c.controllerSet()}, {serviceAccounts, c.controllerSet()},
	} {
		failed = append(failed, o.delete(ctx, x.resource, c.Namespace, x.name))
	}
	for resource, name := range c.optional() {
		failed = append(failed, o.delete(ctx, resource, c.Namespace, name))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(c.Finalizers), func(f string) bool { return f == Finalizer })
	return o.setFinalizers(ctx, c, rest)
}

func (o *Operator) setFinalizers(ctx context.Context, c *MusterCluster, list []string) error {
	return o.patch(ctx, Resource, c.Namespace, c.Name, map[string]any{"metadata": map[string]any{
		"finalizers": list, "resourceVersion": c.ResourceVersion,
	}})
}

// patch changes an object of a site. One that is gone or has changed is met in the next round.
func (o *Operator) patch(ctx context.Context, resource schema.GroupVersionResource, namespace, name string, change any, sub ...string) error {
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = o.Dynamic.Resource(resource).Namespace(namespace).Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: Manager}, sub...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// ref is a cluster as events name it.
func ref(c *MusterCluster) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: Resource.GroupVersion().String(), Kind: "MusterCluster",
		Namespace: c.Namespace, Name: c.Name, UID: c.UID}
}

// tellOnce makes an event of each text once for a generation of an object.
func (o *Operator) tellOnce(about *corev1.ObjectReference, generation int64, reason, text string) {
	key := fmt.Sprint(about.UID, " ", reason, " ", text)
	if last, told := o.told[key]; told && last == generation {
		return
	}
	o.told[key] = generation
	o.Recorder.Event(about, corev1.EventTypeWarning, reason, text)
}
