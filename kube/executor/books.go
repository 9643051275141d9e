package executor

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// GenericNodes is the resource that shows what both worlds have on each node.
var GenericNodes = schema.GroupVersionResource{
	Group:    "kai.alibabacloud.com",
	Version:  "v1alpha1",
	Resource: "genericnodes",
}

// Labels of a GenericNode.
const (
	clusterNameLabel      = "kai.alibabacloud.com/cluster-name"
	clusterNamespaceLabel = "kai.alibabacloud.com/cluster-namespace"
)

// How often the books are written: jobs come and go faster than people read.
const (
	booksEvery = 500 * time.Millisecond
	// booksAfresh is how often they are compared with what the API server has, in
	// case that somebody else has written there.
	booksAfresh = 5 * time.Minute
	booksTime   = time.Minute // for writing all of them once
)

// books writes a GenericNode for each node that both worlds have.
type books struct {
	cfg *Config

	mu   sync.Mutex
	last *looked       // nil: nothing is known yet
	news chan struct{} // has room for one mark

	written map[string]page // only keep touches it; nil: has to be read
}

// looked is what a round has seen of both sides. None of it is changed any more.
type looked struct {
	held  []*apiv1.HeldNode
	nodes []*corev1.Node
	names *names
}

// page is one GenericNode. Equal pages need no write.
type page struct {
	node   types.UID
	alias  string
	slurm  amounts
	kubern amounts
}

type amounts struct{ milli, mem int64 }

func newBooks(cfg *Config) *books {
	return &books{cfg: cfg, news: make(chan struct{}, 1)}
}

// note has the books follow a look at both sides. What follows from it is found when the books are
// written, which is less often: pods wait for the round that calls this.
func (b *books) note(held []*apiv1.HeldNode, nodes []*corev1.Node, names *names) {
	b.mu.Lock()
	b.last = &looked{held, nodes, names}
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// pages are what the books should say, by name of the Node.
func (l *looked) pages() map[string]page {
	byName := map[string]*corev1.Node{}
	for _, n := range l.nodes {
		byName[n.Name] = n
	}
	want := map[string]page{}
	for _, h := range l.held {
		node := byName[l.names.kube[h.GetName()]]
		if node == nil {
			continue
		}
		p := page{
			node:  node.UID,
			alias: h.GetName(),
			slurm: amounts{
				milli: (h.GetJobCpus() - h.GetPodCpus()) * 1000,
				mem:   h.GetJobMem() - h.GetPodMem(),
			},
			kubern: amounts{milli: h.GetPodCpus() * 1000, mem: h.GetPodMem()},
		}
		for _, hold := range h.GetHolds() {
			p.kubern.milli += hold.GetMilliCpu()
			p.kubern.mem += hold.GetMem()
		}
		want[node.Name] = p
	}
	return want
}

// keep writes until the context ends.
func (b *books) keep(ctx context.Context) {
	afresh := time.NewTicker(booksAfresh)
	defer afresh.Stop()
	var again <-chan time.Time // nil: nothing failed
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.news:
		case <-again:
		case <-afresh.C:
			b.written = nil
		}
		b.mu.Lock()
		last := b.last
		b.mu.Unlock()
		again = nil
		if last == nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, booksTime)
		err := b.write(limited, last.pages())
		cancel()
		if err != nil && ctx.Err() == nil {
			b.cfg.Log.Warn("cannot write GenericNodes", "error", err)
			b.written = nil
			again = time.After(maxWatchPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(booksEvery):
		}
	}
}

// write brings the API server from what it has to what is wanted.
func (b *books) write(ctx context.Context, want map[string]page) error {
	if b.written == nil {
		there, err := b.read(ctx)
		if err != nil {
			return err
		}
		b.written = there
	}
	api := b.cfg.Dynamic.Resource(GenericNodes)
	for name := range b.written {
		if _, ok := want[name]; ok {
			continue
		}
		if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
		delete(b.written, name)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		p := want[name]
		old, ok := b.written[name]
		if ok && old == p {
			continue
		}
		if err := b.apply(ctx, name, &p, !ok || old.node != p.node || old.alias != p.alias); err != nil {
			return err
		}
		b.written[name] = p
	}
	return nil
}

// apply writes one page: what never changes only if it is new.
func (b *books) apply(ctx context.Context, name string, p *page, whole bool) error {
	api := b.cfg.Dynamic.Resource(GenericNodes)
	options := metav1.ApplyOptions{FieldManager: "muster-kube", Force: true}
	if whole {
		if _, err := api.Apply(ctx, name, b.object(name, p), options); err != nil {
			return err
		}
	}
	status := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": GenericNodes.GroupVersion().String(),
		"kind":       "GenericNode",
		"metadata":   map[string]any{"name": name},
		"status":     map[string]any{"allocatedResources": p.allocated()},
	}}
	_, err := api.ApplyStatus(ctx, name, status, options)
	return err
}

// object is a page without its status. It belongs to its Node and goes with it.
func (b *books) object(name string, p *page) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": GenericNodes.GroupVersion().String(),
		"kind":       "GenericNode",
		"metadata": map[string]any{
			"name": name,
			"labels": map[string]any{
				clusterNameLabel:      b.cfg.Cluster,
				clusterNamespaceLabel: b.cfg.Namespace,
			},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "v1", "kind": "Node", "name": name, "uid": string(p.node)}},
		},
		"spec": map[string]any{"alias": p.alias, "type": "Slurm"},
	}}
}

// allocated is the column that people read.
func (p *page) allocated() []any {
	part := func(kind string, a *amounts) map[string]any {
		return map[string]any{"type": kind, "allocated": map[string]any{
			"cpu":    resource.NewMilliQuantity(a.milli, resource.DecimalSI).String(),
			"memory": memory(a.mem),
		}}
	}
	return []any{part("Slurm", &p.slurm), part("Kubernetes", &p.kubern)}
}

// memory is always in MiB, so that two figures can be compared at a glance.
func memory(mib int64) string {
	if mib == 0 {
		return "0"
	}
	return strconv.FormatInt(mib, 10) + "Mi"
}

// read lists what the API server has. Of a page that is not as this program writes
// it only the name is known, so that it is written again.
func (b *books) read(ctx context.Context) (map[string]page, error) {
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{
		MatchLabels: map[string]string{
			clusterNameLabel:      b.cfg.Cluster,
			clusterNamespaceLabel: b.cfg.Namespace,
		}})
	list, err := b.cfg.Dynamic.Resource(GenericNodes).
		List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	out := map[string]page{}
	for i := range list.Items {
		out[list.Items[i].GetName()] = b.pageOf(&list.Items[i])
	}
	return out, nil
}

func (b *books) pageOf(o *unstructured.Unstructured) page {
	var there struct {
		Spec   struct{ Alias string }
		Status struct {
			AllocatedResources []struct {
				Type      string
				Allocated struct{ CPU, Memory resource.Quantity }
			}
		}
	}
	text, err := json.Marshal(o.Object)
	if err != nil || json.Unmarshal(text, &there) != nil || len(o.GetOwnerReferences()) != 1 ||
		len(there.Status.AllocatedResources) != 2 {
		return page{}
	}
	amountsOf := func(at int) amounts {
		a := &there.Status.AllocatedResources[at].Allocated
		return amounts{a.CPU.MilliValue(), a.Memory.Value() >> 20}
	}
	p := page{
		node:   o.GetOwnerReferences()[0].UID,
		alias:  there.Spec.Alias,
		slurm:  amountsOf(0),
		kubern: amountsOf(1),
	}
	want := b.object(o.GetName(), &p)
	want.Object["status"] = map[string]any{"allocatedResources": p.allocated()}
	for _, field := range []string{"spec", "status"} {
		if !equality.Semantic.DeepEqual(o.Object[field], want.Object[field]) {
			return page{}
		}
	}
	return p
}
