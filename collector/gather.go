package collector

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/internal/catalogue"
)

// page is one path of the exporter: its families, gathered into memory that
// the next scrape uses again. promhttp's transactional gathering makes that
// safe: what was gathered is not touched before the answer is written.
type page struct {
	families []family
	runtime  prometheus.Gatherer // of the process, or nil
	scrape   func() *scrape      // nil when there is nothing to show yet
	spare    atomic.Pointer[slab]
}

var _ prometheus.TransactionalGatherer = (*page)(nil)

// cell holds one series with everything it points to.
type cell struct {
	metric  dto.Metric
	gauge   dto.Gauge
	counter dto.Counter
	value   float64
	pairs   [maxLabels]dto.LabelPair
	texts   [maxLabels]string
	labels  [maxLabels]*dto.LabelPair
}

const (
	maxLabels = 8
	// cellsEach is how many cells are allocated at once. A block is never moved, because what was
	// gathered points into it.
	cellsEach = 512
)

// slab is the memory of one scrape.
type slab struct {
	cells    [][]cell
	used     int
	families []*dto.MetricFamily
	out      []*dto.MetricFamily
}

// nextCell gives a cell that nothing uses.
func (s *slab) nextCell() *cell {
	block, i := s.used/cellsEach, s.used%cellsEach
	if block == len(s.cells) {
		s.cells = append(s.cells, make([]cell, cellsEach))
	}
	s.used++
	return &s.cells[block][i]
}

func newPage(families []family, runtime prometheus.Gatherer, scrape func() *scrape) *page {
	return &page{families: families, runtime: runtime, scrape: scrape}
}

// Gather implements prometheus.TransactionalGatherer.
func (p *page) Gather() ([]*dto.MetricFamily, func(), error) {
	mem := p.spare.Swap(nil)
	if mem == nil {
		mem = p.newSlab()
	}
	mem.used, mem.out = 0, mem.out[:0]
	done := func() { p.spare.Store(mem) }
	if scrape := p.scrape(); scrape != nil {
		scrape.mem = mem
		for i := range p.families {
			f := mem.families[i]
			f.Metric = f.Metric[:0]
			scrape.family, scrape.def = f, &p.families[i]
			if !scrape.hidesFamily(scrape.def) {
				p.families[i].read(scrape)
			}
			if len(f.Metric) > 0 {
				mem.out = append(mem.out, f)
			}
		}
	}
	if p.runtime == nil {
		return mem.out, done, nil
	}
	more, err := p.runtime.Gather()
	return append(mem.out, more...), done, err
}

func (p *page) newSlab() *slab {
	mem := &slab{families: make([]*dto.MetricFamily, len(p.families))}
	for i := range p.families {
		family := &p.families[i]
		kind := dto.MetricType_GAUGE
		switch family.Type {
		case catalogue.Counter:
			kind = dto.MetricType_COUNTER
		case catalogue.Histogram:
			kind = dto.MetricType_HISTOGRAM
		case catalogue.Gauge, catalogue.Info:
		}
		mem.families[i] = &dto.MetricFamily{Name: &family.Name, Help: &family.Help, Type: &kind}
	}
	return mem
}

// startCell starts a series of the present family with its labels.
func (s *scrape) startCell(values []string) *cell {
	c := s.mem.nextCell()
	names := s.def.Labels
	n := 0
	for i := range names {
		c.texts[i] = s.pic.cluster
		if i > 0 {
			c.texts[i] = validText(values[i-1])
		}
		c.pairs[i].Name, c.pairs[i].Value = &names[i], &c.texts[i]
		c.labels[i] = &c.pairs[i]
		n++
	}
	c.metric.Label = c.labels[:n:n]
	c.metric.Gauge = nil
	c.metric.Counter = nil
	c.metric.Histogram = nil
	s.family.Metric = append(s.family.Metric, &c.metric)
	return c
}

// sendSeries shows one series; the labels follow the cluster's, in the order of the
// definition.
func (s *scrape) sendSeries(value float64, labels ...string) {
	cell := s.startCell(labels)
	cell.value = value
	if s.def.Type == catalogue.Counter {
		cell.counter.Value = &cell.value
		cell.metric.Counter = &cell.counter
		return
	}
	cell.gauge.Value = &cell.value
	cell.metric.Gauge = &cell.gauge
}

// sendHistogram shows one histogram.
func (s *scrape) sendHistogram(h *dto.Histogram, labels ...string) {
	s.startCell(labels).metric.Histogram = h
}

// validText makes a label's value one that every format can carry: bytes that
// are not UTF-8 would cost the whole scrape.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
