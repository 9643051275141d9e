package query

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// callFigure is one line of the tables of calls.
type callFigure struct {
	name  string
	id    int64 // of the message type, or of the user
	count uint64
	nanos uint64
}

func (f *callFigure) totalTime() int64 { return toMicros(int64(f.nanos)) }

func (f *callFigure) meanTime() int64 { return toMicros(meanOf(int64(f.nanos), f.count)) }

// messageTypes are Slurm's names and numbers of what methods do.
func messageTypes() map[string]callFigure {
	return map[string]callFigure{
		"Cluster/ListPartitions": {name: "REQUEST_PARTITION_INFO", id: 2009},
		"Cluster/ListNodes":      {name: "REQUEST_NODE_INFO", id: 2007},
		"Cluster/ListJobs":       {name: "REQUEST_JOB_INFO", id: 2003},
		"Cluster/Diag":           {name: "REQUEST_STATS_INFO", id: 2035},
	}
}

func methodFigures(list []*apiv1.CallFigure) []callFigure {
	types := messageTypes()
	var figures []callFigure
	for _, figure := range list {
		line := callFigure{name: figure.GetName()}
		if of, known := types[figure.GetName()]; known {
			line = of
		}
		line.count = figure.GetCount()
		line.nanos = figure.GetNanos()
		figures = append(figures, line)
	}
	return figures
}

func callerFigures(call *tool.Call, list []*apiv1.CallFigure) []callFigure {
	var figures []callFigure
	for _, figure := range list {
		line := callFigure{
			name:  figure.GetName(),
			id:    unknownUser,
			count: figure.GetCount(),
			nanos: figure.GetNanos(),
		}
		if uid, err := strconv.ParseInt(call.UserID(figure.GetName()), 10, 64); err == nil {
			line.id = uid
		}
		figures = append(figures, line)
	}
	return figures
}

// unknownUser is the number of a user whom this host does not know: nobody's.
const unknownUser = 65534

// sortFigures puts the most frequent first, or those that an option puts there.
func sortFigures(call *tool.Call, list []callFigure) {
	order := func(a, b *callFigure) int { return cmp.Compare(b.count, a.count) }
	switch {
	case call.Opts.On("sort-by-id"):
		order = func(a, b *callFigure) int { return cmp.Compare(a.id, b.id) }
	case call.Opts.On("sort-by-time"):
		order = func(a, b *callFigure) int { return cmp.Compare(b.nanos, a.nanos) }
	case call.Opts.On("sort-by-time2"):
		order = func(a, b *callFigure) int { return cmp.Compare(b.meanTime(), a.meanTime()) }
	}
	slices.SortStableFunc(list, func(a, b callFigure) int {
		return cmp.Or(order(&a, &b), strings.Compare(a.name, b.name))
	})
}

// figuresText lays the tables out as sdiag does.
func figuresText(methods, callers []callFigure) string {
	var text strings.Builder
	table := func(title string, list []callFigure, head func(f *callFigure) string) {
		text.WriteString("\nRemote Procedure Call statistics by " + title + "\n")
		for i := range list {
			figure := &list[i]
			fmt.Fprintf(&text, "\t%s count:%-6d ave_time:%-6d total_time:%d\n",
				head(figure), figure.count, figure.meanTime(), figure.totalTime())
		}
	}
	table("message type", methods, func(figure *callFigure) string {
		return fmt.Sprintf("%-40s(%5d)", figure.name, figure.id)
	})
	table("user", callers, func(figure *callFigure) string {
		return fmt.Sprintf("%-16s(%8d)", figure.name, figure.id)
	})
	return text.String()
}

// figureTrees are the tables as a document has them.
func figureTrees(methods, callers []callFigure) tree.Object {
	list := func(figures []callFigure, name, id string) tree.List {
		out := tree.List{}
		for i := range figures {
			figure := &figures[i]
			out = append(out, tree.Object{
				{Key: name, Value: figure.name},
				{Key: id, Value: figure.id},
				{Key: "count", Value: figure.count},
				{Key: "average_time", Value: figure.meanTime()},
				{Key: "total_time", Value: figure.totalTime()},
			})
		}
		return out
	}
	return tree.Object{
		{Key: "rpcs_by_message_type", Value: list(methods, "message_type", "type_id")},
		{Key: "rpcs_by_user", Value: list(callers, "user", "user_id")},
	}
}
