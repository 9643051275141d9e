package importer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// NodeStore is the accounting store, as the nodes of an imported cluster need
// it.
type NodeStore interface {
	// NodeStates gives the newest row of each node.
	NodeStates(ctx context.Context, ledger [16]byte) ([]tally.NodeStateRow, error)
}

// outage is a stretch in which slurmdbd has a node down or drained.
type outage struct {
	from, to          tally.Micros // to 0 = it lasts
	state, reason, by string
}

// Nodes stores what the cluster's nodes had and when they were out of service,
// from sinfo and slurmdbd's events, and gives the number of new rows. Without
// it an imported cluster has no capacity, and no utilisation. What a node has
// is taken to be what it always had, for slurmdbd does not tell.
func (s *Slurm) Nodes(
	ctx context.Context,
	config Config,
	store NodeStore,
	since, until time.Time,
) (int, error) {
	known, err := store.NodeStates(ctx, config.Ledger)
	if err != nil {
		return 0, err
	}
	now, err := s.nodeCapacities(ctx)
	if err != nil {
		return 0, err
	}
	last := map[string]tally.NodeStateRow{}
	for _, row := range known {
		last[row.Node] = row
		if row.Class != tally.ClassGone {
			since = latest(since, time.UnixMicro(row.At))
		}
	}
	out, err := s.nodeOutages(ctx, oldestNeeded(known, since), until)
	if err != nil {
		return 0, err
	}
	var rows []tally.NodeStateRow
	for _, name := range slices.Sorted(maps.Keys(now)) {
		begin := since.UnixMicro()
		prev, seen := last[name]
		seen = seen && prev.Class != tally.ClassGone
		if seen {
			begin = prev.At
		}
		rows = append(
			rows,
			nodeHistory(now[name], out[name], prev, seen, begin, until.UnixMicro())...)
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if _, there := now[name]; !there && last[name].Class != tally.ClassGone {
			rows = append(
				rows,
				tally.NodeStateRow{
					At:    until.UnixMicro(),
					Node:  name,
					State: "REMOVED",
					Class: tally.ClassGone,
				},
			)
		}
	}
	slices.SortStableFunc(
		rows,
		func(a, b tally.NodeStateRow) int { return cmp.Compare(a.At, b.At) },
	)
	return len(rows), putNodes(ctx, config, rows, until)
}

// nodeRows is how many rows of nodes go into one batch.
const nodeRows = 100_000

func putNodes(
	ctx context.Context,
	config Config,
	rows []tally.NodeStateRow,
	until time.Time,
) error {
	for len(rows) > 0 {
		seq := config.Writer.Position().Seq
		part := rows[:min(len(rows), nodeRows)]
		for i := range part {
			part[i].Seq = seq + 1 + uint64(i)
		}
		batch := &tally.Batch{
			First:      seq + 1,
			Last:       seq + uint64(len(part)),
			At:         spec.Instant(until.UnixNano()),
			NodeStates: part,
		}
		if err := config.Writer.Write(ctx, batch); err != nil {
			return err
		}
		rows = rows[len(part):]
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// oldestNeeded is from when events are needed: the oldest newest row of a node.
func oldestNeeded(known []tally.NodeStateRow, since time.Time) time.Time {
	for _, row := range known {
		if at := time.UnixMicro(row.At); row.Class != tally.ClassGone && at.Before(since) {
			since = at
		}
	}
	return since
}

// nodeHistory makes the rows of one node after an instant: its first one, each
// change, and one at each midnight UTC, behind which no reader looks.
func nodeHistory(
	like tally.NodeStateRow,
	list []outage,
	prev tally.NodeStateRow,
	seen bool,
	begin, until tally.Micros,
) []tally.NodeStateRow {
	const day = int64(24 * time.Hour / time.Microsecond)
	var rows []tally.NodeStateRow
	if covered := slices.ContainsFunc(list, func(o outage) bool { return o.to == 0 || o.to > until }); like.Class == tally.ClassDown &&
		!covered {
		// sinfo shows what slurmdbd was not told.
		from := until
		if seen && prev.Class == tally.ClassDown {
			from = prev.At
		}
		list = append(
			slices.Clone(list),
			outage{from: from, state: like.State, reason: like.Reason},
		)
	}
	state := func(at tally.Micros) tally.NodeStateRow {
		row := like
		row.At = at
		row.State = "UP"
		row.Class = tally.ClassUp
		row.Reason = ""
		row.By = ""
		for _, o := range list {
			if o.from <= at && (o.to == 0 || at < o.to) {
				row.State = o.state
				row.Class = tally.ClassDown
				row.Reason = o.reason
				row.By = o.by
			}
		}
		return row
	}
	times := map[tally.Micros]bool{}
	for _, o := range list {
		for _, at := range [...]tally.Micros{o.from, o.to} {
			if at > begin && at <= until {
				times[at] = true
			}
		}
	}
	for at := (begin/day + 1) * day; at <= until; at += day {
		times[at] = true
	}
	cur := prev
	add := func(row tally.NodeStateRow, restated bool) {
		row.Restated = restated
		rows = append(rows, row)
		cur = row
	}
	if !seen {
		add(state(begin), false)
	}
	for _, at := range slices.Sorted(maps.Keys(times)) {
		if row := state(at); at%day == 0 || !saysNothingNew(row, cur) {
			add(row, at%day == 0)
		}
	}
	if row := state(until); !saysNothingNew(row, cur) { // other hardware
		add(row, false)
	}
	return rows
}

// saysNothingNew tells that nothing is said anew.
func saysNothingNew(a, b tally.NodeStateRow) bool {
	sameSize := a.CPUs == b.CPUs && a.Mem == b.Mem && a.GPUs == b.GPUs
	return sameSize && a.State == b.State && a.Class == b.Class
}

// outOfService reads a state of sinfo or sacctmgr: what stands in the store for
// it, or "" for a node in service.
func outOfService(text string) string {
	state := strings.ToUpper(text)
	for _, power := range [...]string{"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"} {
		state = strings.ReplaceAll(state, power, "")
	}
	switch {
	case strings.Contains(state, "DOWN"):
		return "DOWN"
	case strings.Contains(state, "FAIL"):
		return "FAIL"
	case strings.Contains(state, "DRAIN"), strings.Contains(state, "DRNG"):
		return "DRAIN"
	case strings.HasPrefix(state, "UNKNOWN") && !strings.Contains(state, "NOT_RESPONDING"):
		return "UNKNOWN"
	case strings.HasSuffix(state, "*"), strings.Contains(state, "NOT_RESPONDING"):
		return "NOT_RESPONDING"
	}
	return ""
}

// nodeCapacities are the nodes as they are now.
func (s *Slurm) nodeCapacities(ctx context.Context) (map[string]tally.NodeStateRow, error) {
	out, err := s.runForOutput(
		s.commandFor(ctx, "sinfo", "-h", "-a", "-N", "-o", "%N|%c|%m|%R|%T|%G|%E"),
	)
	if err != nil {
		return nil, err
	}
	nodes := map[string]tally.NodeStateRow{}
	for line := range strings.Lines(string(out)) {
		fields := strings.SplitN(strings.TrimRight(line, "\r\n"), "|", 7)
		if len(fields) != 7 || fields[0] == "" {
			return nil, fmt.Errorf("sinfo: %q is not what was asked for", line)
		}
		row, there := nodes[fields[0]]
		if !there {
			row = tally.NodeStateRow{
				Node:  fields[0],
				State: "UP",
				Class: tally.ClassUp,
				GPUs:  parseGRES(fields[5]),
			}
			row.CPUs, err = strconv.ParseInt(strings.TrimSuffix(fields[1], "+"), 10, 64)
			if err == nil {
				row.Mem, err = strconv.ParseInt(strings.TrimSuffix(fields[2], "+"), 10, 64)
			}
			if err != nil {
				return nil, fmt.Errorf(
					"sinfo: %q has no whole numbers of CPUs and memory: %w",
					line,
					err,
				)
			}
			if state := outOfService(fields[4]); state != "" {
				row.State = state
				row.Class = tally.ClassDown
				row.Reason = fields[6]
			}
		}
		if !slices.Contains(row.Partitions, fields[3]) {
			row.Partitions = append(row.Partitions, fields[3])
		}
		nodes[fields[0]] = row
	}
	return nodes, nil
}

// nodeOutages are what slurmdbd recorded of nodes, by node, in order.
func (s *Slurm) nodeOutages(ctx context.Context, from, until time.Time) (map[string][]outage, error) {
	localTime := func(t time.Time) string { return t.In(time.Local).Format("2006-01-02T15:04:05") }
	args := []string{
		"-nP",
		"show",
		"event",
		"start=" + localTime(from),
		"end=" + localTime(until),
		"format=NodeName,TimeStart,TimeEnd,State,User,Reason",
	}
	if s.Cluster != "" {
		args = append(args, "clusters="+s.Cluster)
	}
	said, err := s.runForOutput(s.commandFor(ctx, "sacctmgr", args...))
	if err != nil {
		return nil, err
	}
	clock := clocks{loc: time.Local}
	out := map[string][]outage{}
	for line := range strings.Lines(string(said)) {
		fields := strings.SplitN(strings.TrimRight(line, "\r\n"), "|", 6)
		if len(fields) != 6 {
			return nil, fmt.Errorf("sacctmgr show event: %q has %d columns", line, len(fields))
		}
		state := outOfService(fields[3])
		if fields[0] == "" || state == "" { // of the cluster, or of no account here
			continue
		}
		found := outage{state: state, by: fields[4], reason: fields[5]}
		found.from, err = clock.parseInstant(fields[1])
		if err == nil {
			found.to, err = clock.parseInstant(fields[2])
		}
		if err != nil || found.from == 0 || found.to != 0 && found.to < found.from {
			return nil, fmt.Errorf("sacctmgr show event: the times of %q cannot be read", line)
		}
		out[fields[0]] = append(out[fields[0]], found)
	}
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b outage) int { return cmp.Compare(a.from, b.from) })
	}
	return out, nil
}
