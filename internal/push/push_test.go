package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	dto "github.com/prometheus/client_model/go"
	metricsrpc "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// some are a counter, a gauge and a histogram with an exemplar.
func some(at time.Time) []*dto.MetricFamily {
	text := FromText(func(w io.Writer) error {
		_, err := io.WriteString(w, `# HELP jobs_total Jobs.
# TYPE jobs_total counter
jobs_total{cluster="lab",user="al\"ice"} 7
# TYPE temp gauge
temp{gpu="0"} 61.5
# TYPE wait histogram
wait_bucket{le="1"} 2
wait_bucket{le="2.5"} 5
wait_bucket{le="+Inf"} 6
wait_sum 30.5
wait_count 6
`)
		return err
	})
	families, _, err := text()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == "wait" {
			bucket := f.GetMetric()[0].GetHistogram().GetBucket()[1]
			bucket.Exemplar = &dto.Exemplar{
				Value:     new(2.0),
				Timestamp: timestamppb.New(at),
				Label:     []*dto.LabelPair{{Name: new("trace_id"), Value: new("0102030405060708090a0b0c0d0e0f10")}},
			}
		}
	}
	return families
}

var node = Target{Job: "dcgm", Instance: "n1", Labels: map[string]string{"cluster": "lab", "site": "north"}}

// wanted are the series of some, as a scrape of the target would store them.
func wanted() []string {
	const of = `cluster="lab",instance="n1",job="dcgm"`
	return []string{
		`jobs_total{` + of + `,site="north",user="al\"ice"} 7`,
		`temp{cluster="lab",gpu="0",instance="n1",job="dcgm",site="north"} 61.5`,
		`wait_bucket{` + of + `,le="+Inf",site="north"} 6`,
		`wait_bucket{` + of + `,le="1.0",site="north"} 2`,
		`wait_bucket{` + of + `,le="2.5",site="north"} 5`,
		`wait_count{` + of + `,site="north"} 6`,
		`wait_sum{` + of + `,site="north"} 30.5`,
	}
}

// storeV2 keeps what a receiver of version 2.0 is sent.
type storeV2 struct {
	mu        sync.Mutex
	series    []string
	exemplars []string
	help      map[string]string
	away      bool
	headers   []string
}

// Store implements the storage of the handler.
func (s *storeV2) Store(r *http.Request, _ remote.WriteMessageType) (*remote.WriteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := remote.NewWriteResponse()
	if s.away {
		out.SetStatusCode(http.StatusServiceUnavailable)
		return out, errors.New("away")
	}
	data, err := io.ReadAll(r.Body)
	m := &writev2.Request{}
	if err == nil {
		err = proto.Unmarshal(data, m)
	}
	if err != nil {
		return out, err
	}
	s.headers = append(s.headers, r.Header.Get("X-Scope"))
	text := func(refs []uint32) (name, labels string) {
		var list []string
		for i := 0; i < len(refs); i += 2 {
			key, value := m.Symbols[refs[i]], m.Symbols[refs[i+1]]
			if key == "__name__" {
				name = value
				continue
			}
			list = append(list, fmt.Sprintf("%s=%q", key, value))
		}
		return name, "{" + strings.Join(list, ",") + "}"
	}
	for _, ts := range m.GetTimeseries() {
		name, labels := text(ts.GetLabelsRefs())
		s.series = append(s.series, fmt.Sprintf("%s%s %v", name, labels, ts.GetSamples()[0].GetValue()))
		s.help[name] = fmt.Sprintf("%s %s", ts.GetMetadata().GetType(), m.Symbols[ts.GetMetadata().GetHelpRef()])
		for _, e := range ts.GetExemplars() {
			_, labels := text(e.GetLabelsRefs())
			s.exemplars = append(s.exemplars, fmt.Sprintf("%s %s %v", name, labels, e.GetValue()))
		}
	}
	out.Add(remote.WriteResponseStats{Samples: len(m.GetTimeseries())})
	return out, nil
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestRemoteWrite2 sends to the handler of the library: names, help, types, exemplars and
// headers arrive, and what a receiver missed while it was away comes when it is back.
func TestRemoteWrite2(t *testing.T) {
	store := &storeV2{help: map[string]string{}}
	web := httptest.NewServer(http.StripPrefix("/api/v1/write", remote.NewWriteHandler(store, remote.MessageTypes{remote.WriteV2MessageType})))
	t.Cleanup(web.Close)
	to, err := Open(Settings{Format: FormatRemoteWrite, At: parse(t, web.URL+"/api/v1/write"), Headers: []string{"X-Scope: team"}, Target: node})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_800_000_000, 0)
	p := New(Config{To: to, Now: func() time.Time { return at }, Gather: func() ([]*dto.MetricFamily, func(), error) { return some(at), func() {}, nil }})
	store.away = true
	for range maxWaiting + 2 {
		if p.push(t.Context()) == nil {
			t.Fatal("a receiver that is away took values")
		}
	}
	store.away = false
	if err := p.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := p.Status(); st.Pushes != maxWaiting || st.Dropped != 3 || st.Waiting != 0 || st.Failures != maxWaiting+2 {
		t.Errorf("status %+v", st)
	}
	last := slices.Clone(store.series[len(store.series)-len(wanted()):])
	slices.Sort(last)
	if !slices.Equal(last, wanted()) || len(store.series) != maxWaiting*len(wanted()) {
		t.Errorf("%d series, the last are\n%s", len(store.series), strings.Join(last, "\n"))
	}
	if store.help["jobs_total"] != "METRIC_TYPE_COUNTER Jobs." || store.help["wait_bucket"] != "METRIC_TYPE_HISTOGRAM " || store.headers[0] != "team" {
		t.Errorf("help %v, header %q", store.help, store.headers[0])
	}
	if len(store.exemplars) != maxWaiting || store.exemplars[0] != `wait_bucket {trace_id="0102030405060708090a0b0c0d0e0f10"} 2` {
		t.Errorf("exemplars: %q", store.exemplars[:1])
	}
}

// TestRealPrometheus sends to the Prometheus of Debian 12, which knows version 1.0 only:
// the values can be asked for as if they had been scraped.
func TestRealPrometheus(t *testing.T) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skipf("NOT TESTED with a real Prometheus: %v (deploy/deps/install.sh installs it)", err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := errors.Join(l.Close(), os.WriteFile(config, []byte("global: {}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address,
		"--web.enable-remote-write-receiver", "--enable-feature=exemplar-storage")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait() // it was killed
	})
	to, err := Open(Settings{Format: FormatRemoteWrite, At: parse(t, "http://"+address+"/api/v1/write"), Target: node})
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{To: to, Now: time.Now, Gather: func() ([]*dto.MetricFamily, func(), error) { return some(time.Now()), func() {}, nil }})
	for err := p.push(t.Context()); err != nil; err = p.push(t.Context()) {
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) //muster:sleep a process comes up
	}
	ask := func(path string, into any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	var found struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	ask("/api/v1/query?query="+url.QueryEscape(`{instance="n1"}`), &found)
	var got []string
	for _, r := range found.Data.Result {
		var labels []string
		for key, value := range r.Metric {
			if key != "__name__" {
				labels = append(labels, fmt.Sprintf("%s=%q", key, value))
			}
		}
		slices.Sort(labels)
		got = append(got, fmt.Sprintf("%s{%s} %v", r.Metric["__name__"], strings.Join(labels, ","), r.Value[1]))
	}
	slices.Sort(got)
	if !slices.Equal(got, wanted()) {
		t.Errorf("Prometheus has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted(), "\n"))
	}
	var exemplars struct {
		Data []struct {
			Exemplars []struct{ Labels map[string]string }
		}
	}
	now := time.Now().Unix()
	ask(fmt.Sprintf("/api/v1/query_exemplars?query=wait_bucket&start=%d&end=%d", now-600, now+600), &exemplars)
	if len(exemplars.Data) != 1 || exemplars.Data[0].Exemplars[0].Labels["trace_id"] != "0102030405060708090a0b0c0d0e0f10" {
		t.Errorf("exemplars: %+v", exemplars)
	}
}

// pointReceiver is a collector of metrics by gRPC.
type pointReceiver struct {
	metricsrpc.UnimplementedMetricsServiceServer
	got chan *metricsrpc.ExportMetricsServiceRequest
}

// Export takes points.
func (r *pointReceiver) Export(_ context.Context, m *metricsrpc.ExportMetricsServiceRequest) (*metricsrpc.ExportMetricsServiceResponse, error) {
	r.got <- m
	return &metricsrpc.ExportMetricsServiceResponse{}, nil
}

// TestOTLPMetrics sends to a collector: sums count from the start of the process, a
// histogram has each bucket's own count, and an exemplar names its trace by the id.
func TestOTLPMetrics(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	receiver := &pointReceiver{got: make(chan *metricsrpc.ExportMetricsServiceRequest, 1)}
	server := grpc.NewServer()
	metricsrpc.RegisterMetricsServiceServer(server, receiver)
	go func() { _ = server.Serve(l) }() // Stop ends it
	t.Cleanup(server.Stop)
	began, at := time.Unix(1_790_000_000, 0), time.Unix(1_800_000_000, 0)
	to, err := Open(Settings{Format: FormatOTLP, At: &url.URL{Scheme: "grpc", Host: l.Addr().String()}, Target: node, Began: began, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{To: to, Now: func() time.Time { return at }, Gather: func() ([]*dto.MetricFamily, func(), error) { return some(at), func() {}, nil }})
	if err := p.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	resource := (<-receiver.got).GetResourceMetrics()[0]
	if got := resource.GetResource().GetAttributes(); got[0].GetValue().GetStringValue() != "dcgm" || got[1].GetValue().GetStringValue() != "n1" || got[2].GetValue().GetStringValue() != "lab" {
		t.Errorf("the resource is %v", got)
	}
	by := map[string]*metrics.Metric{}
	for _, m := range resource.GetScopeMetrics()[0].GetMetrics() {
		by[m.GetName()] = m
	}
	jobs := by["jobs_total"].GetSum()
	if point := jobs.GetDataPoints()[0]; !jobs.GetIsMonotonic() || point.GetAsDouble() != 7 || point.GetStartTimeUnixNano() != uint64(began.UnixNano()) ||
		point.GetTimeUnixNano() != uint64(at.UnixNano()) || len(point.GetAttributes()) != 3 {
		t.Errorf("jobs_total: %v", jobs)
	}
	if got := by["temp"].GetGauge().GetDataPoints()[0].GetAsDouble(); got != 61.5 {
		t.Errorf("temp: %v", got)
	}
	wait := by["wait"].GetHistogram().GetDataPoints()[0]
	if !slices.Equal(wait.GetBucketCounts(), []uint64{2, 3, 1}) || !slices.Equal(wait.GetExplicitBounds(), []float64{1, 2.5}) || wait.GetSum() != 30.5 {
		t.Errorf("wait: %v", wait)
	}
	if e := wait.GetExemplars(); len(e) != 1 || fmt.Sprintf("%x", e[0].GetTraceId()) != "0102030405060708090a0b0c0d0e0f10" || e[0].GetAsDouble() != 2 {
		t.Errorf("exemplars: %v", e)
	}
}
