package daemon

import (
	"context"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// occurrence is one time that a reservation holds its nodes. One that repeats
// has many, each with the same name.
type occurrence struct {
	name       string
	start, end int64 // microseconds
	spans      []held
}

// held is what an occurrence held from an instant on.
type held struct {
	from    int64 // microseconds
	amounts string
}

// occurrences are those of all reservations, with the ones that still hold
// something by name.
type occurrences struct {
	list []*occurrence
	open map[string]*occurrence
}

// noted is an event about a reservation; times in microseconds.
type noted struct {
	at, start, end int64
	over           bool
	name, amounts  string
}

// addEvent follows an event. An occurrence ends with its time, with whoever deletes
// it, or when it is given another time before that.
func (s *occurrences) addEvent(e noted) {
	cur := s.open[e.name]
	if cur != nil && (e.over || e.start != cur.start) {
		cur.end = max(min(cur.end, e.at), cur.start)
		delete(s.open, e.name)
		cur = nil
	}
	if e.over {
		return
	}
	if cur == nil {
		cur = &occurrence{name: e.name, start: e.start}
		s.open[e.name] = cur
		s.list = append(s.list, cur)
	}
	cur.end = e.end
	cur.spans = append(cur.spans, held{max(e.at, e.start), e.amounts})
}

// reservedAmount is how much of a TRES an occurrence held within a window, in
// TRES-microseconds.
func (o *occurrence) reservedAmount(tres string, from, to int64) (*big.Int, error) {
	sum := new(big.Int)
	for i, h := range o.spans {
		until := o.end
		if i+1 < len(o.spans) {
			until = min(until, o.spans[i+1].from)
		}
		n, err := amountOf(h.amounts, tres)
		if err != nil {
			return nil, err
		}
		if us := min(until, to) - max(h.from, from); us > 0 {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(n), big.NewInt(us)))
		}
	}
	return sum, nil
}

// amountOf reads one TRES of a list such as cpu=8,mem=500M,gres/gpu=2.
func amountOf(list, tres string) (int64, error) {
	for part := range strings.SplitSeq(list, ",") {
		name, text, _ := strings.Cut(part, "=")
		if name != tres {
			continue
		}
		scale := int64(1)
		if name == "mem" && text != "" {
			if i := strings.IndexByte("MGTP", text[len(text)-1]); i >= 0 {
				text, scale = text[:len(text)-1], 1<<(10*i)
			}
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("a reservation holds %q: %w", part, err)
		}
		return n * scale, nil
	}
	return 0, nil
}

// reportReservations is sreport reservation Utilization: of each occurrence within
// the window what its nodes had, and what of it jobs held that ran in it.
func (r *report) reportReservations(ctx context.Context) error {
	zone, err := loadZone(r.q.GetZone())
	if err != nil {
		return err
	}
	r.addColumns(
		[3]string{"Cluster", "text"},
		[3]string{"Name", "text"},
		[3]string{"Start", "text"},
		[3]string{"End", "text"},
		[3]string{"TRES Name", "text"},
		[3]string{
			"Allocated",
			"int",
			"TRES-seconds",
		},
		[3]string{"Idle", "int", "TRES-seconds"},
		[3]string{"total", "int", "TRES-seconds"},
	)
	seen := occurrences{open: map[string]*occurrence{}}
	err = r.runQuery(ctx, query.Reservations(r.scope), func(scan func(...any) error) error {
		var e noted
		var over uint8
		if err := scan(&e.at, &over, &e.name, &e.start, &e.end, &e.amounts); err != nil {
			return err
		}
		e.start /= 1000
		e.end /= 1000
		e.over = over != 0
		seen.addEvent(e)
		return nil
	})
	if err != nil {
		return err
	}
	text := func(us int64) string {
		return time.UnixMicro(us).In(zone).Format("2006-01-02T15:04:05")
	}
	for _, o := range seen.list {
		from, to := max(o.start, int64(r.ask.Start)/1000), min(o.end, int64(r.ask.End)/1000)
		if to <= from {
			continue
		}
		for _, tres := range r.tres {
			whole, err := o.reservedAmount(tres, from, to)
			if err != nil {
				return err
			}
			used, err := r.inReservation(ctx, o.name, tres, from, to)
			if err != nil {
				return err
			}
			idle := new(big.Int).Sub(whole, used)
			if idle.Sign() < 0 { // jobs outside its nodes, where it allows that
				idle.SetInt64(0)
			}
			r.addRow(
				r.reply.GetCluster(),
				o.name,
				text(o.start),
				text(o.end),
				tres,
				wholeSeconds(used),
				wholeSeconds(idle),
				wholeSeconds(whole),
			)
		}
	}
	return nil
}

func (r *report) inReservation(
	ctx context.Context,
	name, tres string,
	from, to int64,
) (*big.Int, error) {
	request := query.Report{
		Start: spec.Instant(from * 1000), End: spec.Instant(to * 1000), TRES: tres,
	}
	q, err := request.InReservation(r.scope, name)
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	sum := new(big.Int)
	return sum, r.runQuery(ctx, q, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		n, err := parseAmount(text)
		if err == nil {
			sum.Set(n)
		}
		return err
	})
}
