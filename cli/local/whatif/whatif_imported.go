package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/framed/client"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
)

// imported asks accounting for the history of a cluster that was imported.
func (w *source) imported(
	ctx context.Context,
	from, to spec.Instant,
	config *spec.Config,
) (*replay.Workload, int, error) {
	cfg, err := conffile.Load(w.config)
	if err != nil {
		return nil, 0, err
	}
	socket := cfg.Socket
	if _, err := os.Stat(cfg.AccountingSocket); err == nil {
		socket = cfg.AccountingSocket
	}
	conn, err := client.Dial(ctx, client.Unix(socket))
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	receiver, err := conn.Stream(
		ctx,
		"/muster.v1.Accounting/JobRows",
		&apiv1.AcctQuery{
			Cluster:         w.cluster,
			AllUsers:        true,
			AllocationsOnly: true,
			Start:           int64(from),
			End:             int64(to),
		},
	)
	if err != nil {
		return nil, 0, err
	}
	defer receiver.Close()
	var records []replay.Record
	for {
		var reply apiv1.AcctReply
		if err := receiver.Recv(&reply); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, 0, err
		}
		for _, row := range reply.GetRows() {
			records = append(records, recordOf(row))
		}
	}
	load, left, err := replay.Imported(config, records, from, to)
	if err != nil {
		return nil, 0, fmt.Errorf("cluster %s: %w", w.cluster, err)
	}
	return load, left, nil
}

// recordOf is a row as a replay wants it. Old releases of Slurm tell only of what
// was given, not of what was asked for, that there were GPUs, or how much memory.
func recordOf(row *apiv1.AcctRow) replay.Record {
	asked, given := wire.ToTRES(row.GetReqTres()), wire.ToTRES(row.GetAllocTres())
	asked.CPU = cmp.Or(asked.CPU, int64(row.GetReqCpus()), given.CPU)
	asked.Mem = cmp.Or(asked.Mem, given.Mem)
	untold := asked.Get("gres/gpu") == 0
	for _, o := range given.Other {
		if untold && strings.HasPrefix(o.Name, "gres/gpu") {
			asked = asked.With(o.Name, o.N)
		}
	}
	record := replay.Record{
		Name:       row.GetName(),
		User:       row.GetUser(),
		Group:      row.GetGroup(),
		Account:    row.GetAccount(),
		QOS:        row.GetQos(),
		Constraint: row.GetConstraint(),
		UID:        row.GetUserId(),
		GID:        row.GetGroupId(),
		Eligible:   spec.Instant(cmp.Or(row.GetEligible(), row.GetSubmit())),
		Start:      spec.Instant(row.GetStart()),
		Run:        spec.Span(row.GetElapsed()),
		Limit:      spec.Span(row.GetTimeLimit()),
		Asked:      asked,
		Nodes: cmp.Or(
			int64(row.GetReqNodes()),
			given.Node,
		),
		Ended:  row.GetEnd() != 0 && row.GetStart() != 0,
		Failed: row.GetExitCode() != 0 || row.GetExitSignal() != 0,
	}
	if p := row.GetPartition(); p != "" {
		record.Partitions = strings.Split(p, ",")
	}
	if row.GetTimeLimit() < 0 {
		record.Limit = spec.Infinite
	}
	return record
}
