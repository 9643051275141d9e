package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// auditTrail writes the audit trail while this controller leads. A nil one writes
// nothing.
type auditTrail struct {
	refusals  *audit.Refusals
	exporters []*audit.Exporter
	names     []string
}

// auditDir is where positions are kept, one file for each target.
func auditDir(stateDir string) string { return filepath.Join(stateDir, "audit") }

// auditDirOf makes that folder.
func auditDirOf(s *server) (string, error) {
	dir := auditDir(s.cfg.StateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("positions of the audit trail: %w", err)
	}
	return dir, nil
}

// openTrail makes the exporters that muster.yaml asks for; nil = none.
func openTrail(s *server) (*auditTrail, error) {
	cfg := &s.cfg.Audit
	if !cfg.On() {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	targets, err := auditTargets(s, host)
	if err != nil {
		return nil, err
	}
	dir, err := auditDirOf(s)
	if err != nil {
		return nil, err
	}
	origin := audit.Origin{Cluster: s.cluster.ClusterName, Controller: host}
	trail := &auditTrail{refusals: audit.NewRefusals(origin, time.Now)}
	which := audit.Changes
	if cfg.Events == "all" {
		which = audit.All
	}
	for _, target := range targets {
		exporter, err := audit.New(
			audit.Config{
				Name:   target.name,
				Target: target.to,
				Source: auditSource{s},
				Origin: origin,
				Which:  which,
				Position: filepath.Join(
					dir,
					target.name+".json",
				),
				Refusals: trail.refusals,
				Now:      time.Now,
				Log:      s.log,
			},
		)
		if err != nil {
			return nil, err
		}
		trail.exporters = append(trail.exporters, exporter)
		trail.names = append(trail.names, target.name)
	}
	return trail, nil
}

type auditTarget struct {
	name string
	to   audit.Target
}

// auditTargets are the places that muster.yaml names.
func auditTargets(s *server, host string) ([]auditTarget, error) {
	cfg := &s.cfg.Audit
	var out []auditTarget
	if cfg.File != "" {
		out = append(
			out,
			auditTarget{"file", audit.NewFile(cfg.File, int64(cfg.FileMaxSize), int(cfg.FileKeep))},
		)
	}
	if cfg.Syslog != "" {
		network, address, err := cfg.SyslogAddress()
		if err != nil {
			return nil, err
		}
		to, err := audit.NewSyslog(
			audit.SyslogConfig{Network: network, Address: address, Facility: cfg.SyslogFacility,
				CA: cfg.SyslogCA, Cert: cfg.SyslogCert, Key: cfg.SyslogKey, Host: host},
		)
		if err != nil {
			return nil, err
		}
		out = append(out, auditTarget{"syslog", to})
	}
	if cfg.Journald {
		out = append(out, auditTarget{"journald", audit.NewJournal(audit.JournalSocket)})
	}
	return out, nil
}

// spawnExporters runs the exporters.
func (t *auditTrail) spawnExporters(g *group) {
	if t == nil {
		return
	}
	for i, e := range t.exporters {
		g.spawnPart("audit trail to "+t.names[i], e.Run)
	}
}

// targetStatus is for metrics.
func (t *auditTrail) targetStatus() []collector.AuditTarget {
	if t == nil {
		return nil
	}
	out := make([]collector.AuditTarget, len(t.exporters))
	for i, e := range t.exporters {
		st := e.Status()
		out[i] = collector.AuditTarget{
			Name:     st.Target,
			Seq:      st.Seq,
			Seconds:  st.Seconds,
			Records:  st.Records,
			Failures: st.Failures,
			LeftOut:  st.LeftOut,
		}
	}
	return out
}

// auditSource is this controller's ledger as its own API tells it.
type auditSource struct{ s *server }

// Head implements audit.Source.
func (a auditSource) Head() uint64 { return a.s.ctl.View().State.Seq }

// Resume implements audit.Source.
func (a auditSource) Resume(pos audit.Position) (from uint64, gap string, err error) {
	st := a.s.ctl.View().State
	from, gap = resumeAt(st, pos)
	known, err := store.Past{Archive: a.s.archive.Disk, Codec: a.s.codec}.Known()
	if err != nil {
		return 0, "", err
	}
	if from < known {
		if pos != (audit.Position{}) {
			gap = fmt.Sprintf(
				"events %d to %d were dropped by ledger.retention before this target had taken them",
				from,
				known-1,
			)
		}
		from = known
	}
	return from, gap, nil
}

// resumeAt is the first event behind a position. Of a history that this ledger
// does not have, because it was restored from an older copy, it is the first event
// that cannot have been taken.
func resumeAt(st *state.State, pos audit.Position) (from uint64, gap string) {
	epochs := st.Epochs
	switch {
	case len(epochs) == 0:
		return min(pos.Seq, st.Seq) + 1, ""
	case pos == (audit.Position{}):
		return epochs[len(epochs)-1].Seq, ""
	case pos.Epoch == 0 && pos.Seq <= st.Seq, st.HasSeen(pos.Epoch, pos.Seq):
		return pos.Seq + 1, ""
	}
	from = epochs[0].Seq
	for i := range epochs {
		switch {
		case epochs[i].Value != pos.Epoch:
		case i+1 < len(epochs):
			from = epochs[i+1].Seq
		default:
			from = st.Seq + 1
		}
	}
	return from, fmt.Sprintf(
		"this ledger was restored from an older copy and does not hold event %d of epoch %016x, which this target has; records from event %d on follow",
		pos.Seq,
		pos.Epoch,
		from,
	)
}

// Follow implements audit.Source.
func (a auditSource) Follow(
	ctx context.Context,
	from uint64,
	take func(*apiv1.EventsReply) error,
) error {
	// It reads as an administrator. No user has a name with a space, so nobody else
	// uses up its turns.
	ctx = identity.With(
		ctx,
		identity.Identity{
			Kind: identity.Admin,
			UID:  identity.NoID,
			GID:  identity.NoID,
			User: "audit trail",
		},
	)
	svc := &daemon.ClusterService{C: a.s.ctl}
	return svc.Events(
		&apiv1.EventsRequest{FromSeq: from, Follow: true, Audit: true},
		&auditStream{ctx: ctx, take: take},
	)
}

// auditStream is an answer to a caller in this process.
type auditStream struct {
	grpc.ServerStream
	ctx  context.Context
	take func(*apiv1.EventsReply) error
}

// Context implements grpc.ServerStream.
func (a *auditStream) Context() context.Context { return a.ctx }

// Send implements the stream of Events.
func (a *auditStream) Send(m *apiv1.EventsReply) error { return a.take(m) }

// unaryInterceptor and stream report calls that were refused because of who asked, whether
// the table of methods refuses them or what serves them.
func (t *auditTrail) unaryInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		reply, err := next(ctx, req)
		if err != nil && t != nil {
			t.reportRefusal(ctx, identity.From(ctx), info.FullMethod, req, err)
		}
		return reply, err
	}
}

func (t *auditTrail) streamInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		err := next(srv, stream)
		if err != nil && t != nil {
			ctx := stream.Context()
			t.reportRefusal(ctx, identity.From(ctx), info.FullMethod, nil, err)
		}
		return err
	}
}

// notAdmitted reports a call whose caller was not believed.
func (t *auditTrail) notAdmitted(
	ctx context.Context,
	channel identity.Identity,
	method string,
	err error,
) {
	if t != nil {
		t.reportRefusal(ctx, channel, method, nil, err)
	}
}

// notIdentified reports a request over HTTP without a good token or certificate.
func (t *auditTrail) notIdentified(r *http.Request, err error) {
	if t == nil {
		return
	}
	who := identity.Nameless()
	if peer, ok := r.Context().Value(peerKey{}).(identity.Identity); ok {
		who = peer
	}
	f := refusalBy(who)
	if host, port, ok := strings.Cut(r.RemoteAddr, "]:"); ok {
		f.Address = strings.TrimPrefix(host, "[")
		f.Port, _ = strconv.Atoi(port) // it stands in for what is not known
	} else if host, port, ok := strings.Cut(r.RemoteAddr, ":"); ok {
		f.Address = host
		f.Port, _ = strconv.Atoi(port)
	}
	t.refuse(f, r.Method+" "+r.URL.Path, err)
}

// reportRefusal reports an error that says that the caller may not.
func (t *auditTrail) reportRefusal(
	ctx context.Context,
	who identity.Identity,
	method string,
	req any,
	err error,
) {
	switch status.Convert(err, status.Numbers()).Wire {
	case status.PermissionDenied, status.Unauthenticated:
	default:
		return
	}
	f := refusalBy(who)
	if at := identity.AddressOf(ctx); at != nil {
		f.Address, f.Port = at.IP.String(), at.Port
	}
	if m, ok := req.(proto.Message); ok {
		f.Fields = askedFor(m)
	}
	t.refuse(f, path.Base(path.Dir(method))+"/"+path.Base(method), err)
}

func (t *auditTrail) refuse(f audit.Refusal, method string, err error) {
	f.Method = strings.TrimPrefix(method, "muster.v1.")
	f.Reason = err.Error()
	f.Unknown = status.Convert(err, status.Numbers()).Wire == status.Unauthenticated
	t.refusals.Report(f)
}

// refusalBy says who was refused.
func refusalBy(who identity.Identity) audit.Refusal {
	f := audit.Refusal{Actor: who.Kind.String(), Node: who.Node}
	if who.IsUser() || who.Kind == identity.Admin {
		f.User = authz.UserName(who)
	}
	if who.UID != identity.NoID {
		f.UID = strconv.FormatUint(uint64(who.UID), 10)
	}
	return f
}

// askedNames are the fields of requests that say what a call was about. Others may
// hold scripts, environments and secrets.
var askedNames = map[protoreflect.Name]bool{
	"account":     true,
	"accounts":    true,
	"job":         true,
	"job_id":      true,
	"jobs":        true,
	"name":        true,
	"names":       true,
	"node":        true,
	"nodes":       true,
	"partition":   true,
	"partitions":  true,
	"reservation": true,
	"state":       true,
	"user":        true,
	"users":       true,
	"verb":        true,
	"filter":      true,
}

// askedFor are the facts of a request that may be written down.
func askedFor(m proto.Message) map[string]any {
	out := map[string]any{}
	var read func(m protoreflect.Message)
	read = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch name := f.Name(); {
			case !askedNames[name]:
			case f.IsMap():
			case f.Kind() == protoreflect.MessageKind:
				if !f.IsList() {
					read(v.Message())
				}
			case f.Kind() == protoreflect.EnumKind && !f.IsList():
				if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
					out[string(name)] = strings.ToLower(string(value.Name()))
				}
			case f.IsList():
				out[string(name)] = joinValues(v.List())
			default:
				out[string(name)] = v.Interface()
			}
			return true
		})
	}
	read(m.ProtoReflect())
	return out
}

// joinValues are the values of a list, as far as a record has room.
func joinValues(list protoreflect.List) string {
	const room = 512
	var b strings.Builder
	for i := range list.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if b.Len() > room {
			b.WriteString("…")
			break
		}
		b.WriteString(list.Get(i).String())
	}
	return b.String()
}
