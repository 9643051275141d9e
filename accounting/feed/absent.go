package feed

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/spec"
)

// Absent answers for the accounting that another process does.
type Absent struct {
	service.UnimplementedAccountingServer
	Socket string
}

// knocking is how long a process that listens may take to be reached.
const knocking = time.Second

func (a Absent) away() error {
	where := "ask it at " + a.Socket
	conn, err := net.DialTimeout("unix", a.Socket, knocking)
	if err == nil {
		conn.Close()
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		where = "start it with musterd --role accounting (nothing listens at " + a.Socket + ")"
	}
	return spec.Refuse(
		spec.CodeDatabaseUnreachable,
		"accounting runs in a process of its own: "+where,
	)
}

// Jobs refuses.
func (a Absent) Jobs(context.Context, *apiv1.AcctQuery) (*apiv1.AcctReply, error) {
	return nil, a.away()
}

// Report refuses.
func (a Absent) Report(context.Context, *apiv1.ReportQuery) (*apiv1.ReportReply, error) {
	return nil, a.away()
}

// JobRows refuses.
func (a Absent) JobRows(*apiv1.AcctQuery, service.Accounting_JobRowsServer) error {
	return a.away()
}

// Scripts refuses.
func (a Absent) Scripts(
	context.Context,
	*apiv1.AcctScriptQuery,
) (*apiv1.AcctScriptReply, error) {
	return nil, a.away()
}

// Sql refuses.
func (a Absent) Sql(
	*apiv1.SqlQuery,
	service.Accounting_SqlServer,
) error {
	return a.away()
}

// JobReport refuses.
func (a Absent) JobReport(
	context.Context,
	*apiv1.JobReportQuery,
) (*apiv1.JobReportReply, error) {
	return nil, a.away()
}

// Advise refuses.
func (a Absent) Advise(context.Context, *apiv1.AdviceQuery) (*apiv1.AdviceReply, error) {
	return nil, a.away()
}

// Reasons refuses.
func (a Absent) Reasons(
	context.Context,
	*apiv1.ReasonsQuery,
) (*apiv1.ReasonsReply, error) {
	return nil, a.away()
}

// PutGpuSamples refuses.
func (a Absent) PutGpuSamples(
	context.Context,
	*apiv1.PutGpuSamplesRequest,
) (*apiv1.PutGpuSamplesReply, error) {
	return nil, spec.Refuse(
		spec.CodeDatabaseUnreachable,
		"accounting runs in a process of its own: name it in telemetry.samples_to of the agents' muster.yaml",
	)
}

// GpuHistory refuses.
func (a Absent) GpuHistory(
	context.Context,
	*apiv1.GpuHistoryQuery,
) (*apiv1.GpuHistoryReply, error) {
	return nil, a.away()
}

// Status refuses.
func (a Absent) Status(
	context.Context,
	*apiv1.AccountingStatusRequest,
) (*apiv1.AccountingStatusReply, error) {
	return nil, a.away()
}
