package test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scrape reads one series of a page of metrics, or tells why it cannot: then it is -1.
func scrape(t *testing.T, address, series string) (float64, string) {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return -1, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return -1, err.Error()
	}
	line := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(series) + " (.*)$").FindSubmatch(text)
	if line == nil {
		return -1, "no " + series
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(string(line[1])), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n, fmt.Sprint(n)
}

// isScraped waits until a series has a value.
func isScraped(t *testing.T, address, series string, want float64) {
	t.Helper()
	wait(t, fmt.Sprint(series, " is ", want), func() (bool, string) {
		got, text := scrape(t, address, series)
		return got == want, text
	})
}

// TestMetrics: a pod that waits for a hold, has it and goes is seen in the figures of muster-kube.
func TestMetrics(t *testing.T) {
	l := need(t)
	address := l.listens("")
	says := func(series string, want float64) { t.Helper(); isScraped(t, address, series, want) }
	const admitted = `muster_kube_admission_seconds_count{cluster="muster"}`
	says(`muster_kube_leader{cluster="muster"}`, 1)
	says(`muster_kube_connected{cluster="muster"}`, 1)
	before, _ := scrape(t, address, admitted)
	held, _ := scrape(t, address, `muster_kube_pods{cluster="muster",state="held"}`)
	l.make(t, podOf("measured", "100m", "64Mi", 0))
	l.make(t, podOf("too-large", "4000", "64Mi", 0))
	says(admitted, before+1)
	says(`muster_kube_pods{cluster="muster",state="held"}`, held+1)
	says(`muster_kube_pods{cluster="muster",state="gated"}`, 1)
	for _, name := range []string{"measured", "too-large"} {
		if err := l.kube.CoreV1().Pods("web").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
	}
	says(`muster_kube_pods{cluster="muster",state="held"}`, held)
	says(`muster_kube_pods{cluster="muster",state="gated"}`, 0)
}
