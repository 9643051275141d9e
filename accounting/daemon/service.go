package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/spec"
)

// Service answers the API's questions about the past.
type Service struct {
	service.UnimplementedAccountingServer
	D *Daemon
}

var _ service.AccountingServer = Service{}

// Service is the API of the daemon.
func (d *Daemon) Service() Service { return Service{D: d} }

// Status tells how far the store is.
func (s Service) Status(
	context.Context,
	*apiv1.AccountingStatusRequest,
) (*apiv1.AccountingStatusReply, error) {
	status := s.D.Status()
	reply := &apiv1.AccountingStatusReply{
		Seq:     status.Seq,
		HeadSeq: status.Head,
		Lag:     int64(status.Lag),
		Store:   s.D.cfg.Store.Target(),
		Up:      status.Up,
	}
	if status.Error != nil {
		reply.Error = status.Error.Error()
	}
	return reply, nil
}

// loadZone is a time zone by its IANA name; UTC without one.
func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, "there is no time zone "+name+
			": give an IANA name like Europe/Berlin")
	}
	return zone, nil
}

// midnightBefore is the beginning of a day in a zone, some days before the one that
// an instant lies in. Days have 23 to 25 hours; the calendar knows.
func midnightBefore(at spec.Instant, zone *time.Location, before int) spec.Instant {
	y, m, d := time.Unix(0, int64(at)).In(zone).Date()
	return spec.Instant(time.Date(y, m, d-before, 0, 0, 0, 0, zone).UnixNano())
}

// callerOf is who asks.
func (d *Daemon) callerOf(ctx context.Context) Caller {
	if d.cfg.Identify == nil {
		return Caller{Admin: true}
	}
	return d.cfg.Identify(ctx)
}

// storeAway says to the caller that the store cannot answer.
func (d *Daemon) storeAway(err error) error {
	if err == nil || spec.CodeOf(err) != 0 || errors.Is(err, context.Canceled) {
		return err
	}
	return spec.Refuse(
		spec.CodeDatabaseUnreachable,
		fmt.Sprintf("accounting (%s): %v", d.cfg.Store.Target(), d.cfg.Store.Explain(err)),
	)
}
