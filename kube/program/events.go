package program

import (
	"context"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const (
	// eventsPerSecond bounds events: they are for people, and Kubernetes keeps them for an hour.
	eventsPerSecond = 200
	// eventsAtOnce is how many are written at the same time. A recorder of client-go writes one
	// after the other, and drops events while 2,000 wait.
	eventsAtOnce = 16
	// eventsKnown is how many events are remembered, to count those that come again.
	eventsKnown = 4096
)

// Record makes a recorder of events in a namespace; an empty one: in all. The function ends
// it, and has to be called.
func (p *Program) Record(ctx context.Context, kube Kube, namespace string) (record.EventRecorder, func()) {
	var out recorders
	var ends []func()
	for range eventsAtOnce {
		events := record.NewBroadcaster(record.WithContext(ctx),
			record.WithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: eventsKnown / eventsAtOnce}))
		events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.events.Events(namespace)})
		out = append(out, events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: p.Name}))
		ends = append(ends, events.Shutdown)
	}
	return out, func() {
		for _, end := range ends {
			end()
		}
	}
}

// recorders write side by side. All events of an object go to the same one, so that they keep
// their order and those that come again are counted.
type recorders []record.EventRecorder

func (r recorders) of(object runtime.Object) record.EventRecorder {
	about, err := meta.Accessor(object)
	if err != nil {
		return r[0] // a reference: few events are about these
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(about.GetUID())) // a hash takes everything
	return r[sum.Sum32()%uint32(len(r))]
}

// Event implements record.EventRecorder.
func (r recorders) Event(object runtime.Object, kind, reason, text string) {
	r.of(object).Event(object, kind, reason, text)
}

// Eventf implements record.EventRecorder.
func (r recorders) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.of(object).Eventf(object, kind, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (r recorders) AnnotatedEventf(object runtime.Object, notes map[string]string, kind, reason, format string, args ...any) {
	r.of(object).AnnotatedEventf(object, notes, kind, reason, format, args...)
}
