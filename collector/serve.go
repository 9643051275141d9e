package collector

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// server answers scrapes of one page. The two text formats are written here:
// every name is one that needs no escaping, so no family is copied, and the
// quickest compression is used, since a scrape stays in a network. All else
// (protobuf, a choice of names) promhttp does.
type server struct {
	page  *page
	speak []expfmt.Format
	other http.Handler
	lines sync.Pool // of *bufio.Writer
	zips  sync.Pool // of *gzip.Writer
}

func pageHandler(p *page) http.Handler {
	return &server{
		page:  p,
		speak: expfmt.DefaultOpenMetricsAcceptedFormats(),
		other: promhttp.HandlerForTransactional(
			p,
			promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError},
		),
	}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	format := expfmt.NegotiateAccept(request.Header, s.speak...)
	open := format.FormatType() == expfmt.TypeOpenMetrics
	if (!open && format.FormatType() != expfmt.TypeTextPlain) || request.URL.RawQuery != "" {
		s.other.ServeHTTP(writer, request)
		return
	}
	families, done, err := s.page.Gather()
	defer done()
	if err != nil && len(families) == 0 {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", string(format))
	var to io.Writer = writer
	if takesGzip(request.Header) {
		writer.Header().Set("Content-Encoding", "gzip")
		zip, ok := s.zips.Get().(*gzip.Writer)
		if !ok {
			zip, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that is there
		}
		zip.Reset(writer)
		defer func() {
			_ = zip.Close() // the reader has gone: there is nobody to tell
			s.zips.Put(zip)
		}()
		to = zip
	}
	lines, ok := s.lines.Get().(*bufio.Writer)
	if !ok {
		lines = bufio.NewWriterSize(nil, 32<<10)
	}
	lines.Reset(to)
	_ = write(lines, families, open)
	_ = lines.Flush()
	s.lines.Put(lines)
}

// write prints families; an error is the reader's going away.
func write(to io.Writer, families []*dto.MetricFamily, open bool) error {
	for _, f := range families {
		var err error
		if open {
			_, err = expfmt.MetricFamilyToOpenMetrics(to, f)
		} else {
			_, err = expfmt.MetricFamilyToText(to, f)
		}
		if err != nil {
			return err
		}
	}
	if !open {
		return nil
	}
	_, err := expfmt.FinalizeOpenMetrics(to)
	return err
}

// takesGzip tells whether the one who asks can read gzip.
func takesGzip(header http.Header) bool {
	for _, part := range strings.Split(header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" || strings.HasPrefix(name, "gzip,") {
			return strings.ReplaceAll(quality, " ", "") != "q=0"
		}
	}
	return false
}
