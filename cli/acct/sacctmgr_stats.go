package acct

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// isAccounting tells the calls that Slurm's slurmdbd would answer.
func isAccounting(method string) bool {
	switch method {
	case "Cluster/ChangePolicy", "Cluster/GetPolicy", "Cluster/NoteJobs", "Cluster/Transactions":
		return true
	}
	return strings.HasPrefix(method, "Accounting/")
}

// showStatistics is sacctmgr show stats: how often accounting was asked what, and how long the
// answers took. There is no rollup to tell of: what sreport adds up are the events themselves.
func showStatistics(call *tool.Call) error {
	var diag apiv1.DiagReply
	if err := call.RPC(tool.MethodDiag, &apiv1.DiagRequest{}, &diag); err != nil {
		return err
	}
	var figures []*apiv1.CallFigure
	for _, figure := range diag.GetMethods() {
		if isAccounting(figure.GetName()) {
			figures = append(figures, figure)
		}
	}
	slices.SortStableFunc(figures, func(a, b *apiv1.CallFigure) int {
		return cmp.Compare(b.GetCount(), a.GetCount())
	})
	if render.WantsDocument(call) {
		return statisticsDocument(call, &diag, figures)
	}
	at := func(ns int64) string {
		seconds := ns / tool.Second
		text := time.Unix(seconds, 0).In(call.Loc).Format("Mon Jan _2 15:04:05 2006")
		return fmt.Sprintf("%s (%d)", text, seconds)
	}
	rule := strings.Repeat("*", 67) + "\n"
	var text strings.Builder
	text.WriteString(rule)
	fmt.Fprintf(&text, "sacctmgr show stats output at %s\n", at(diag.GetNow()))
	fmt.Fprintf(&text, "Data since                    %s\n", at(diag.GetStartedAt()))
	text.WriteString("All statistics are in microseconds\n" + rule + "\n")
	text.WriteString("Remote Procedure Call statistics by message type\n")
	for _, figure := range figures {
		fmt.Fprintf(&text, "\t%-25s( %4d) count:%-6d ave_time:%-6d total_time:%d\n",
			figure.GetName(), 0, figure.GetCount(), meanMicros(figure), micros(figure))
	}
	return call.WriteOut([]byte(text.String()))
}

func micros(figure *apiv1.CallFigure) uint64 {
	return figure.GetNanos() / uint64(spec.Microsecond)
}

func meanMicros(figure *apiv1.CallFigure) uint64 {
	if figure.GetCount() == 0 {
		return 0
	}
	return micros(figure) / figure.GetCount()
}

func statisticsDocument(
	call *tool.Call, diag *apiv1.DiagReply, figures []*apiv1.CallFigure,
) error {
	calls := tree.List{}
	for _, figure := range figures {
		calls = append(calls, tree.Object{
			{Key: "rpc", Value: figure.GetName()},
			{Key: "count", Value: figure.GetCount()},
			{Key: "time", Value: tree.Object{
				{Key: "average", Value: meanMicros(figure)},
				{Key: "total", Value: micros(figure)},
			}},
		})
	}
	return render.Answer(call, "openapi_slurmdbd_stats_resp", tree.Member{
		Key: "statistics",
		Value: tree.Object{
			{Key: "time_start", Value: diag.GetStartedAt() / tool.Second},
			{Key: "RPCs", Value: calls},
		},
	})
}
