package render

import (
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// EventFacts appends what an event is about and what it says.
func EventFacts(clock Clock, data []byte, event *apiv1.EventInfo) []byte {
	data = EventWord(data, "job", event.GetJob())
	data = EventWord(data, "user", event.GetUser())
	data = EventWord(data, "account", event.GetAccount())
	data = EventWord(data, "nodes", hostlist.Fold(event.GetNodes()))
	return EventFields(clock, data, event)
}

// EventFields appends what an event says, without what it is about.
func EventFields(clock Clock, data []byte, event *apiv1.EventInfo) []byte {
	for _, field := range event.GetFields() {
		data = EventWord(data, field.GetName(), eventFieldText(clock, field))
	}
	return data
}

// EventWord appends name=value, quoted where a reader could not tell its end.
func EventWord(buffer []byte, name, value string) []byte {
	if value == "" {
		return buffer
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == '"' }) {
		value = strconv.Quote(value)
	}
	return append(append(append(append(buffer, ' '), name...), '='), value...)
}

func eventFieldText(clock Clock, field *apiv1.EventField) string {
	switch v := field.GetValue().(type) {
	case *apiv1.EventField_Text:
		return v.Text
	case *apiv1.EventField_Number:
		return strconv.FormatInt(v.Number, 10)
	case *apiv1.EventField_Time:
		return clock.Time(v.Time)
	case *apiv1.EventField_Span:
		switch {
		case v.Span < 0:
			return "UNLIMITED"
		case v.Span%tool.Second == 0:
			return format.Duration(v.Span / tool.Second)
		}
		return strconv.FormatFloat(float64(v.Span)/float64(tool.Second), 'f', 3, 64) + "s"
	case *apiv1.EventField_Yes:
		return "yes"
	}
	return ""
}
