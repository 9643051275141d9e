package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// TestRecordManyEvents: an API server that is slow loses no event of 5,000 pods, and those of
// one pod come in their order. A recorder that writes one after the other never ends here.
func TestRecordManyEvents(t *testing.T) {
	const pods = 5000
	came := make(chan corev1.Event, 2*pods)
	arrived := make(chan struct{}, 2*pods)
	goOn := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event corev1.Event
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		arrived <- struct{}{}
		<-goOn
		came <- event
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(event); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := typedcorev1.NewForConfig(&rest.Config{Host: server.URL, QPS: Unbounded,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	recorder, end := (&Program{Name: "it"}).Record(t.Context(), Kube{events: client}, "")
	defer end()
	for i := range pods {
		name := fmt.Sprint("p", i)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name)}}
		recorder.Event(pod, corev1.EventTypeNormal, "Waits", "it waits")
		recorder.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "job %d has started", i)
	}
	for range eventsAtOnce {
		<-arrived // all of them write, though none has an answer
	}
	close(goOn)
	last := map[string]string{}
	for range 2 * pods {
		event := <-came
		name := event.InvolvedObject.Name
		if want := map[string]string{"": "Waits", "Waits": "Scheduled"}[last[name]]; event.Reason != want {
			t.Fatalf("pod %s: event %s after %q", name, event.Reason, last[name])
		}
		last[name] = event.Reason
	}
}
