package telemetry

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// ErrCounters is wrapped by every error of ParseCounters.
var ErrCounters = errors.New("bad counters file")

// Counters is a site's own choice of fields.
type Counters struct {
	Fields        []device.Info // ascending by field, each once
	DriverVersion bool          // every device series has DCGM_FI_DRIVER_VERSION as a label
}

const driverLabel = "DCGM_FI_DRIVER_VERSION"

// ParseCounters reads a counters file in dcgm-exporter's format: lines of
// field, type and help, separated by commas; # begins a comment. Types are
// gauge and counter, and label for DCGM_FI_DRIVER_VERSION. The error names
// every bad line as file:line:column.
func ParseCounters(file, text string) (*Counters, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.Comment = '#'
	r.FieldsPerRecord = -1
	r.TrimLeadingSpace = true
	r.LazyQuotes = true
	var counters Counters
	var problems error
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(problems, fmt.Errorf("%w: %s: %w", ErrCounters, file, err))
		}
		column, text := counters.addLine(record)
		if text != "" {
			line, col := r.FieldPos(column)
			problems = errors.Join(
				problems,
				fmt.Errorf("%w: %s:%d:%d: %s", ErrCounters, file, line, col, text),
			)
		}
	}
	if problems != nil {
		return nil, problems
	}
	slices.SortFunc(
		counters.Fields,
		func(a, b device.Info) int { return int(a.Field) - int(b.Field) },
	)
	return &counters, nil
}

// addLine takes one line, or says what is wrong in which column.
func (c *Counters) addLine(record []string) (column int, problem string) {
	for i := range record {
		record[i] = strings.TrimSpace(record[i])
	}
	if len(record) != 3 {
		return 0, fmt.Sprintf("want field, type, help; there are %d columns", len(record))
	}
	name := record[0]
	kind := record[1]
	help := record[2]
	if name == driverLabel {
		if kind != "label" {
			return 1, fmt.Sprintf("%s can only be a label", driverLabel)
		}
		c.DriverVersion = true
		return 0, ""
	}
	info, known := fieldOf(name)
	switch {
	case !known:
		return 0, fmt.Sprintf("%q is no field that Muster reads", name)
	case slices.ContainsFunc(c.Fields, func(g device.Info) bool { return g.Field == info.Field }):
		return 0, fmt.Sprintf("%s stands twice", name)
	case kind != "gauge" && kind != "counter":
		return 1, fmt.Sprintf("type %q: want gauge or counter", kind)
	case help == "":
		return 2, "the help text is missing"
	case strings.ContainsAny(help, "\n\r\\"):
		return 2, "the help text must be one line without backslashes"
	}
	info.Help, info.Kind = help, device.Gauge
	if kind == "counter" {
		info.Kind = device.Counter
	}
	c.Fields = append(c.Fields, info)
	return 0, ""
}

// fieldOf finds a field by its metric name.
func fieldOf(name string) (device.Info, bool) {
	for _, info := range device.Fields() {
		if info.Name == name {
			return info, true
		}
	}
	return device.Info{}, false
}
