package push

import (
	"bytes"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// FromText reads what a process writes for scrapers in the text format.
func FromText(write func(io.Writer) error) Gatherer {
	return func() ([]*dto.MetricFamily, func(), error) {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			return nil, func() {}, err
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		byName, err := parser.TextToMetricFamilies(&text)
		list := make([]*dto.MetricFamily, 0, len(byName))
		for _, f := range byName {
			list = append(list, f)
		}
		slices.SortFunc(list, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
		return list, func() {}, err
	}
}
