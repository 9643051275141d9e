package clusters

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/kube/nodesets"
)

// TestRemoveKeepsTheAuthority: the public certificate stays with the Secret that it belongs to.
// A cluster of the same name begins with that Secret, which the operator cannot read.
func TestRemoveKeepsTheAuthority(t *testing.T) {
	c := cluster(nil)
	now := metav1.Now()
	c.DeletionTimestamp, c.Finalizers = &now, []string{Finalizer}
	m := maker{cluster: c}
	m.add(Resource, "MusterCluster", Resource.GroupVersion().String(), c)
	for _, name := range []string{c.configMap(), c.publicCA()} {
		m.add(configMaps, "ConfigMap", "v1", &corev1.ConfigMap{ObjectMeta: m.meta(name, ""), Data: map[string]string{pki.CACertFile: "public"}})
	}
	if m.err != nil {
		t.Fatal(m.err)
	}
	var objects []runtime.Object
	for _, x := range m.out {
		objects = append(objects, x.Object)
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{Resource: "MusterClusterList", configMaps: "ConfigMapList"}, objects...)
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	o := &Operator{
		Dynamic: client,
		Log:     slog.New(slog.DiscardHandler),
		sets:    cache.NewGenericLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers), nodesets.Resource.GroupResource()),
	}
	if err := o.remove(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	left, err := client.Resource(configMaps).Namespace(c.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	isPublic := func(u unstructured.Unstructured) bool { return u.GetName() == c.publicCA() }
	if len(left.Items) != 1 || !slices.ContainsFunc(left.Items, isPublic) {
		t.Errorf("ConfigMaps that are left: %v", left.Items)
	}
}
