package push

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/prompb"
)

// RemoteWrite sends by Prometheus' remote write. It begins with version 2.0 and goes on
// with 1.0 where the receiver does not know that.
type RemoteWrite struct {
	api     *remote.API
	web     *http.Client
	answers *answers
	target  Target
	old     atomic.Bool // the receiver knows 1.0 only
}

// HTTP is how a receiver over HTTP is reached.
type HTTP struct {
	URL     *url.URL
	TLS     *tls.Config
	Headers []string // lines "Name: value"
}

// withHeaders adds the headers to each request.
type withHeaders struct {
	HTTP
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w withHeaders) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for _, line := range w.Headers {
		if name, value, ok := strings.Cut(line, ":"); ok {
			request.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return w.next.RoundTrip(request)
}

// NewRemoteWrite makes one for a URL such as http://prometheus:9090/api/v1/write.
func NewRemoteWrite(to HTTP, target Target) (*RemoteWrite, error) {
	said := &answers{next: &http.Transport{
		TLSClientConfig: to.TLS,
		Proxy:           http.ProxyFromEnvironment,
		IdleConnTimeout: time.Minute,
	}}
	web := &http.Client{Transport: withHeaders{to, said}}
	base := *to.URL
	base.Path = ""
	api, err := remote.NewAPI(
		base.String(),
		remote.WithAPIHTTPClient(web),
		remote.WithAPIPath(strings.TrimPrefix(to.URL.Path, "/")),
		remote.WithAPINoRetryOnRateLimit(),
		remote.WithAPIBackoff(remote.BackoffConfig{Min: time.Second, Max: time.Second, MaxRetries: 1}),
	)
	if err != nil {
		return nil, fmt.Errorf("remote write to %s: %w", to.URL, err)
	}
	return &RemoteWrite{api: api, web: web, answers: said, target: target}, nil
}

// Encode implements Receiver: both versions are made from the series when it is known
// which one the receiver takes.
func (r *RemoteWrite) Encode(families []*dto.MetricFamily, at time.Time) Message {
	var list []one
	r.target.eachSeries(families, at, func(s one) {
		// The families are used again by the next gathering.
		s.family = &dto.MetricFamily{
			Name: new(s.family.GetName()),
			Help: new(s.family.GetHelp()),
			Type: s.family.GetType().Enum(),
		}
		list = append(list, s)
	})
	return list
}

// maxSeriesAtOnce bounds one request.
const maxSeriesAtOnce = 5000

// Send implements Receiver.
func (r *RemoteWrite) Send(ctx context.Context, message Message) error {
	list := message.([]one)
	for len(list) > 0 {
		n := min(len(list), maxSeriesAtOnce)
		if err := r.sendSome(ctx, list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func (r *RemoteWrite) sendSome(ctx context.Context, list []one) error {
	if !r.old.Load() {
		_, err := r.api.Write(ctx, remote.WriteV2MessageType, messageV2(list))
		if err == nil {
			return nil
		}
		if !r.answers.mayKnowOldOnly() {
			return r.judge(err)
		}
		if _, older := r.api.Write(ctx, remote.WriteV1MessageType, messageV1(list)); older != nil {
			return r.judge(errors.Join(err, older))
		}
		r.old.Store(true)
		return nil
	}
	_, err := r.api.Write(ctx, remote.WriteV1MessageType, messageV1(list))
	return r.judge(err)
}

// judge marks what would be refused again: values that are too old, or that the receiver
// cannot read.
func (r *RemoteWrite) judge(err error) error {
	if err != nil && r.answers.status.Load() == http.StatusBadRequest {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// answers remembers the last answer of a receiver, since the errors of the client are
// texts. It is used by one goroutine at a time.
type answers struct {
	next    http.RoundTripper
	status  atomic.Int32
	counted atomic.Bool // it said what it has written, as version 2.0 has to
}

// RoundTrip implements http.RoundTripper.
func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	a.status.Store(0)
	resp, err := a.next.RoundTrip(request)
	if err == nil {
		a.status.Store(int32(resp.StatusCode))
		a.counted.Store(resp.Header.Get("X-Prometheus-Remote-Write-Samples-Written") != "")
	}
	return resp, err
}

// mayKnowOldOnly tells whether the last answer is that of a receiver that may know version
// 1.0 only: it took the message for one and found nothing in it, or refused its type.
func (a *answers) mayKnowOldOnly() bool {
	switch status := a.status.Load(); status {
	case http.StatusUnsupportedMediaType, http.StatusBadRequest:
		return true
	default:
		return status/100 == 2 && !a.counted.Load()
	}
}

// Close implements Receiver.
func (r *RemoteWrite) Close() error {
	r.web.CloseIdleConnections()
	return nil
}

func messageV2(list []one) *writev2.Request {
	symbols := writev2.NewSymbolTable()
	out := &writev2.Request{}
	refs := func(labels []pair) (out []uint32) {
		for _, l := range labels {
			out = append(out, symbols.Symbolize(l.name), symbols.Symbolize(l.value))
		}
		return out
	}
	for i := range list {
		s := &list[i]
		series := &writev2.TimeSeries{
			LabelsRefs: refs(s.labels),
			Samples:    []*writev2.Sample{{Value: s.value, Timestamp: s.at}},
			Metadata:   &writev2.Metadata{Type: typesV2[s.family.GetType()], HelpRef: symbols.Symbolize(s.family.GetHelp())},
		}
		if s.exemplar != nil {
			series.Exemplars = []*writev2.Exemplar{{
				LabelsRefs: refs(exemplarLabels(s.exemplar)),
				Value:      s.exemplar.GetValue(),
				Timestamp:  s.exemplar.GetTimestamp().AsTime().UnixMilli(),
			}}
		}
		out.Timeseries = append(out.Timeseries, series)
	}
	out.Symbols = symbols.Symbols()
	return out
}

var typesV2 = map[dto.MetricType]writev2.Metadata_MetricType{
	dto.MetricType_COUNTER:   writev2.Metadata_METRIC_TYPE_COUNTER,
	dto.MetricType_GAUGE:     writev2.Metadata_METRIC_TYPE_GAUGE,
	dto.MetricType_HISTOGRAM: writev2.Metadata_METRIC_TYPE_HISTOGRAM,
	dto.MetricType_SUMMARY:   writev2.Metadata_METRIC_TYPE_SUMMARY,
}

func messageV1(list []one) *prompb.WriteRequest {
	out := &prompb.WriteRequest{}
	label := func(labels []pair) (out []prompb.Label) {
		for _, l := range labels {
			out = append(out, prompb.Label{Name: l.name, Value: l.value})
		}
		return out
	}
	for i := range list {
		s := &list[i]
		series := prompb.TimeSeries{
			Labels:  label(s.labels),
			Samples: []prompb.Sample{{Value: s.value, Timestamp: s.at}},
		}
		if s.exemplar != nil {
			series.Exemplars = []prompb.Exemplar{{
				Labels:    label(exemplarLabels(s.exemplar)),
				Value:     s.exemplar.GetValue(),
				Timestamp: s.exemplar.GetTimestamp().AsTime().UnixMilli(),
			}}
		}
		out.Timeseries = append(out.Timeseries, series)
	}
	return out
}

func exemplarLabels(e *dto.Exemplar) []pair {
	var pairs []pair
	for _, l := range e.GetLabel() {
		pairs = append(pairs, pair{l.GetName(), l.GetValue()})
	}
	return pairs
}
