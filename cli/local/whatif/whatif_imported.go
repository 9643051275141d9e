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
func (w *source) imported(ctx context.Context, from, to spec.Instant, config *spec.Config) (*replay.Workload, int, error) {
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
	s, err := conn.Stream(ctx, "/muster.v1.Accounting/JobRows", &apiv1.AcctQuery{Cluster: w.cluster, AllUsers: true, AllocationsOnly: true, Start: int64(from), End: int64(to)})
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	var records []replay.Record
	for {
		var rep apiv1.AcctReply
		if err := s.Recv(&rep); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, 0, err
		}
		for _, row := range rep.GetRows() {
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
func recordOf(r *apiv1.AcctRow) replay.Record {
	asked, given := wire.ToTRES(r.GetReqTres()), wire.ToTRES(r.GetAllocTres())
	asked.CPU = cmp.Or(asked.CPU, int64(r.GetReqCpus()), given.CPU)
	asked.Mem = cmp.Or(asked.Mem, given.Mem)
	untold := asked.Get("gres/gpu") == 0
	for _, o := range given.Other {
		if untold && strings.HasPrefix(o.Name, "gres/gpu") {
			asked = asked.With(o.Name, o.N)
		}
	}
	out := replay.Record{Name: r.GetName(), User: r.GetUser(), Group: r.GetGroup(), Account: r.GetAccount(), QOS: r.GetQos(), Constraint: r.GetConstraint(),
		UID: r.GetUserId(), GID: r.GetGroupId(), Eligible: spec.Instant(cmp.Or(r.GetEligible(), r.GetSubmit())), Start: spec.Instant(r.GetStart()),
		Run: spec.Span(r.GetElapsed()), Limit: spec.Span(r.GetTimeLimit()), Asked: asked,
		Nodes: cmp.Or(int64(r.GetReqNodes()), given.Node), Ended: r.GetEnd() != 0 && r.GetStart() != 0, Failed: r.GetExitCode() != 0 || r.GetExitSignal() != 0}
	if p := r.GetPartition(); p != "" {
		out.Partitions = strings.Split(p, ",")
	}
	if r.GetTimeLimit() < 0 {
		out.Limit = spec.Infinite
	}
	return out
}
