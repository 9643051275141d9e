package telemetry

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// contentType is version 0.0.4 of the text format, which every scraper reads.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler serves the metrics. It answers GET and HEAD, compressed where the
// client asks for gzip.
func (t *Telemetry) Handler() http.Handler { return http.HandlerFunc(t.serve) }

func (t *Telemetry) serve(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		writer.Header().Set("Allow", "GET, HEAD")
		http.Error(writer, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	begin := time.Now()
	w := t.pool.Get().(*scratch) //nolint:errcheck // the pool holds nothing else
	defer t.pool.Put(w)
	t.encodeState(w, t.servedState())
	t.self.scrapes.Inc()
	t.self.scraped.UpdateDuration(begin)

	writer.Header().Set("Content-Type", contentType)
	writer.Header().Set("Vary", "Accept-Encoding")
	if !wantsGzip(request.Header.Get("Accept-Encoding")) {
		writer.Header().Set("Content-Length", strconv.Itoa(len(w.out)))
		_, _ = writer.Write(w.out) // a client that left needs no answer
		return
	}
	writer.Header().Set("Content-Encoding", "gzip")
	z, ok := t.zips.Get().(*gzip.Writer)
	if !ok {
		z, _ = gzip.NewWriterLevel(writer, gzip.BestSpeed)
	}
	z.Reset(writer)
	_, _ = z.Write(w.out)
	_ = z.Close()
	t.zips.Put(z)
}

// servedState is the state as the pages show it.
func (t *Telemetry) servedState() *state {
	s := t.state.Load()
	if !t.options.Private {
		return s
	}
	public := *s
	public.omitted += len(s.jobs)
	public.jobs = nil
	public.pods = nil
	public.deriveOwners(t.describeDevice, t.owner)
	return &public
}

// wantsGzip reads an Accept-Encoding header.
func wantsGzip(accept string) bool {
	for _, part := range strings.Split(accept, ",") {
		coding, q, weighted := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		if !weighted {
			return true
		}
		v, err := strconv.ParseFloat(strings.TrimPrefix(strings.ReplaceAll(q, " ", ""), "q="), 64)
		return err == nil && v > 0
	}
	return false
}

// WriteTo prints the metrics as a scrape would get them now.
func (t *Telemetry) WriteTo(out io.Writer) (int64, error) {
	w := t.pool.Get().(*scratch) //nolint:errcheck // the pool holds nothing else
	defer t.pool.Put(w)
	t.encodeState(w, t.state.Load())
	n, err := out.Write(w.out)
	return int64(n), err
}
