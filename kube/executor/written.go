package executor

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// written are the versions of pods, by UID, that this program has let through or bound. A write that
// succeeded made another version: who still sees this one is behind, and would be refused.
type written struct {
	mu sync.Mutex
	at map[string]string
}

func (w *written) note(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil {
		w.at = map[string]string{}
	}
	w.at[string(pod.UID)] = pod.ResourceVersion
}

// isOld tells of a pod as it was seen whether the watch has yet to bring what was written.
func (w *written) isOld(pod *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, wrote := w.at[string(pod.UID)]
	return wrote && at == pod.ResourceVersion
}

// forget drops those of which the watch has brought more.
func (w *written) forget(pods map[string]*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, at := range w.at {
		if pod := pods[uid]; pod == nil || pod.ResourceVersion != at {
			delete(w.at, uid)
		}
	}
}
