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
func EventFacts(call *tool.Call, b []byte, e *apiv1.EventInfo) []byte {
	b = EventWord(b, "job", e.GetJob())
	b = EventWord(b, "user", e.GetUser())
	b = EventWord(b, "account", e.GetAccount())
	b = EventWord(b, "nodes", hostlist.Fold(e.GetNodes()))
	for _, f := range e.GetFields() {
		b = EventWord(b, f.GetName(), eventFieldText(call, f))
	}
	return b
}

// EventWord appends name=value, quoted where a reader could not tell its end.
func EventWord(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == '"' }) {
		value = strconv.Quote(value)
	}
	return append(append(append(append(b, ' '), name...), '='), value...)
}

func eventFieldText(call *tool.Call, field *apiv1.EventField) string {
	switch v := field.GetValue().(type) {
	case *apiv1.EventField_Text:
		return v.Text
	case *apiv1.EventField_Number:
		return strconv.FormatInt(v.Number, 10)
	case *apiv1.EventField_Time:
		return FormatTime(call, v.Time)
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
