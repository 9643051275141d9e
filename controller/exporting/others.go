package exporting

import (
	"errors"
	"net/http"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
)

// What keeps a process from being ready.
var (
	errDiskFull = errors.New("the ledger's disk is almost full: submissions are refused")
	errNoLeader = errors.New("the controllers have no leader")
)

// Standby is a controller that does not lead, or a witness. Its figures are about itself alone, so
// that sums over controllers count the cluster once.
type Standby struct {
	Cluster string
	Version string
	Durable *log.Durable
}

// Pages are its metrics and its health.
func (s Standby) Pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", collector.StandbyHandler(collector.Source{
		Version: s.Version,
		Cluster: s.Cluster,
		Now:     clock.NewSystem().Now,
		Raft:    func() collector.Raft { return readRaft(s.Durable) },
	}))
	mountHealth(mux, "ok: standby", func() error {
		if !s.Durable.Leader().Known {
			return errNoLeader
		}
		return nil
	})
	return mux
}

// AccountingApart is an accounting that has its process for itself, behind a controller of another
// process or beside a Slurm.
type AccountingApart struct {
	Cluster string
	Version string
	Private collector.Privacy
	Of      Accounting
	Head    func() (seq uint64, at spec.Instant) // of the history that it stores; 0 = not known yet
	Ready   func() error                         // why the store takes no rows; nil = it does
}

// Pages are its metrics, which are the KPIs, and whether the store takes rows.
func (a AccountingApart) Pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", collector.AccountingHandler(collector.Source{
		Now:     clock.NewSystem().Now,
		Version: a.Version,
		KPIs:    a.Of.KPIs,
		Private: a.Private,
		View:    a.emptyView,
	}))
	mountHealth(mux, "ok", a.Ready)
	return mux
}

// emptyView is an empty state as old as the history: the exposition needs the cluster's name and the
// position.
func (a AccountingApart) emptyView() *view.View {
	head, at := a.Head()
	if head == 0 {
		return nil
	}
	cluster := state.New()
	cluster.Seq = head
	cluster.At = at
	cluster.ClusterName = a.Cluster
	return &view.View{State: cluster}
}
