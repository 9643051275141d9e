// Package trail is the audit trail of a controller: what its ledger and its doors give to the
// exporters of internal/audit, while it leads, and how far they have come, for the next
// leader.
package trail

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// Trail writes the audit trail while this controller leads. A nil one writes
// nothing.
type Trail struct {
	options   Options
	refusals  *audit.Refusals
	exporters []*audit.Exporter
	names     []string
}

// Options say what the trail is of.
type Options struct {
	Config     *conffile.Config
	Cluster    string // the name
	Controller *daemon.Controller
	Archive    *archive.Archive
	Codec      *event.Codec
	Log        *slog.Logger
	// PeerOf is who the kernel says is at the other side of a request; nil = not known.
	PeerOf func(r *http.Request) *identity.Identity
}

// dirOf is where positions are kept, one file for each target.
func dirOf(stateDir string) string { return filepath.Join(stateDir, "audit") }

// makeDir makes that folder.
func makeDir(stateDir string) (string, error) {
	dir := dirOf(stateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("positions of the audit trail: %w", err)
	}
	return dir, nil
}

// Open makes the exporters that muster.yaml asks for; nil = none.
func Open(options Options) (*Trail, error) {
	config := &options.Config.Audit
	if !config.On() {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	targets, err := targetsOf(config, host)
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(options.Config.StateDir)
	if err != nil {
		return nil, err
	}
	origin := audit.Origin{Cluster: options.Cluster, Controller: host}
	trail := &Trail{options: options, refusals: audit.NewRefusals(origin, time.Now)}
	which := audit.Changes
	if config.Events == "all" {
		which = audit.All
	}
	for _, target := range targets {
		exporter, err := audit.New(
			audit.Config{
				Name:   target.name,
				Target: target.to,
				Source: Ledger{options},
				Origin: origin,
				Which:  which,
				Position: filepath.Join(
					dir,
					target.name+".json",
				),
				Refusals: trail.refusals,
				Now:      time.Now,
				Log:      options.Log,
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

type target struct {
	name string
	to   audit.Target
}

// targetsOf are the places that muster.yaml names.
func targetsOf(config *conffile.Audit, host string) ([]target, error) {
	var targets []target
	if config.File != "" {
		targets = append(
			targets,
			target{
				"file", audit.NewFile(config.File, int64(config.FileMaxSize), int(config.FileKeep)),
			},
		)
	}
	if config.Syslog != "" {
		network, address, err := config.SyslogAddress()
		if err != nil {
			return nil, err
		}
		to, err := audit.NewSyslog(
			audit.SyslogConfig{Network: network, Address: address, Facility: config.SyslogFacility,
				CA: config.SyslogCA, Cert: config.SyslogCert, Key: config.SyslogKey, Host: host},
		)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target{"syslog", to})
	}
	if config.Journald {
		targets = append(targets, target{"journald", audit.NewJournal(audit.JournalSocket)})
	}
	return targets, nil
}

// EachExporter gives what writes to a target, which runs until its context ends.
func (t *Trail) EachExporter(spawn func(name string, run func(context.Context) error)) {
	if t == nil {
		return
	}
	for i, exporter := range t.exporters {
		spawn("audit trail to "+t.names[i], exporter.Run)
	}
}

// Statuses tell how far each target is.
func (t *Trail) Statuses() []audit.Status {
	if t == nil {
		return nil
	}
	statuses := make([]audit.Status, len(t.exporters))
	for i, exporter := range t.exporters {
		statuses[i] = exporter.Status()
	}
	return statuses
}

// Ledger is this controller's ledger as its own API tells it.
type Ledger struct{ Options }

// Head implements audit.Source.
func (a Ledger) Head() uint64 { return a.Controller.View().State.Seq }

// Now is the position behind the newest event.
func (a Ledger) Now() audit.Position {
	cluster := a.Controller.View().State
	position := audit.Position{Seq: cluster.Seq}
	if len(cluster.Epochs) > 0 {
		position.Epoch = cluster.Epochs[len(cluster.Epochs)-1].Value
	}
	return position
}

// Resume implements audit.Source.
func (a Ledger) Resume(position audit.Position) (from uint64, gap string, err error) {
	cluster := a.Controller.View().State
	from, gap = resumeAt(cluster, position)
	known, err := store.Past{Archive: a.Archive, Codec: a.Codec}.Known()
	if err != nil {
		return 0, "", err
	}
	if from < known {
		if position != (audit.Position{}) {
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
func resumeAt(cluster *state.State, position audit.Position) (from uint64, gap string) {
	epochs := cluster.Epochs
	switch {
	case len(epochs) == 0:
		return min(position.Seq, cluster.Seq) + 1, ""
	case position == (audit.Position{}):
		return epochs[len(epochs)-1].Seq, ""
	case position.Epoch == 0 && position.Seq <= cluster.Seq,
		cluster.HasSeen(position.Epoch, position.Seq):
		return position.Seq + 1, ""
	}
	from = epochs[0].Seq
	for i := range epochs {
		switch {
		case epochs[i].Value != position.Epoch:
		case i+1 < len(epochs):
			from = epochs[i+1].Seq
		default:
			from = cluster.Seq + 1
		}
	}
	return from, fmt.Sprintf(
		"this ledger was restored from an older copy and does not hold event %d of epoch %016x, which this target has; records from event %d on follow",
		position.Seq,
		position.Epoch,
		from,
	)
}

// Follow implements audit.Source.
func (a Ledger) Follow(
	ctx context.Context,
	from uint64,
	take func(*apiv1.EventsReply) error,
) error {
	return a.follow(ctx, "audit trail", &apiv1.EventsRequest{FromSeq: from, Follow: true, Audit: true}, take)
}

// FollowLives hands on what happens from an event on, and before it what belongs to
// the jobs that the controller knew then, from their submission on. It waits for take.
func (a Ledger) FollowLives(
	ctx context.Context,
	from uint64,
	take func(*apiv1.EventsReply) error,
) error {
	cluster, err := store.Past{Archive: a.Archive, Codec: a.Codec}.Snapshot(from - 1)
	if err != nil {
		return err
	}
	request := &apiv1.EventsRequest{Since: max(int64(beginOfLives(cluster)), 1), Follow: true}
	return a.follow(ctx, "traces of jobs", request, take)
}

// beginOfLives is when the first of the jobs that a state knows was submitted, or the
// time of the state.
func beginOfLives(cluster *state.State) spec.Instant {
	since := cluster.At
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		since = min(since, job.Submitted)
		return true
	})
	return since
}

// follow reads events as an administrator. No user has a name with a space, so nobody
// else uses up its turns.
func (a Ledger) follow(
	ctx context.Context,
	as string,
	request *apiv1.EventsRequest,
	take func(*apiv1.EventsReply) error,
) error {
	ctx = identity.With(
		ctx,
		identity.Identity{Kind: identity.Admin, UID: identity.NoID, GID: identity.NoID, User: as},
	)
	svc := daemon.NewClusterService(a.Controller)
	return svc.Events(request, &stream{ctx: ctx, take: take})
}

// stream is an answer to a caller in this process.
type stream struct {
	grpc.ServerStream
	ctx  context.Context
	take func(*apiv1.EventsReply) error
}

// Context implements grpc.ServerStream.
func (a *stream) Context() context.Context { return a.ctx }

// Send implements the stream of Events.
func (a *stream) Send(message *apiv1.EventsReply) error { return a.take(message) }

// UnaryInterceptor reports calls that were refused because of who asked, whether
// the table of methods refuses them or what serves them.
func (t *Trail) UnaryInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		reply, err := next(ctx, req)
		if err != nil && t != nil {
			t.reportRefusal(ctx, identity.From(ctx), info.FullMethod, req, err)
		}
		return reply, err
	}
}

// StreamInterceptor is UnaryInterceptor for calls with streams.
func (t *Trail) StreamInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		err := next(srv, stream)
		if err != nil && t != nil {
			ctx := stream.Context()
			t.reportRefusal(ctx, identity.From(ctx), info.FullMethod, nil, err)
		}
		return err
	}
}

// NotAdmitted reports a call whose caller was not believed.
func (t *Trail) NotAdmitted(
	ctx context.Context,
	channel identity.Identity,
	method string,
	err error,
) {
	if t != nil {
		t.reportRefusal(ctx, channel, method, nil, err)
	}
}

// NotIdentified reports a request over HTTP without a good token or certificate.
func (t *Trail) NotIdentified(request *http.Request, err error) {
	if t == nil {
		return
	}
	who := identity.Nameless()
	if peer := t.options.PeerOf(request); peer != nil {
		who = *peer
	}
	refusal := refusalBy(who)
	if host, port, ok := strings.Cut(request.RemoteAddr, "]:"); ok {
		refusal.Address = strings.TrimPrefix(host, "[")
		refusal.Port, _ = strconv.Atoi(port) // it stands in for what is not known
	} else if host, port, ok := strings.Cut(request.RemoteAddr, ":"); ok {
		refusal.Address = host
		refusal.Port, _ = strconv.Atoi(port)
	}
	t.refuse(refusal, request.Method+" "+request.URL.Path, err)
}

// reportRefusal reports an error that says that the caller may not.
func (t *Trail) reportRefusal(
	ctx context.Context,
	who identity.Identity,
	method string,
	request any,
	err error,
) {
	switch rpcstatus.Convert(err, rpcstatus.Numbers()).Wire {
	case rpcstatus.PermissionDenied, rpcstatus.Unauthenticated:
	default:
		return
	}
	refusal := refusalBy(who)
	if at := identity.AddressOf(ctx); at != nil {
		refusal.Address, refusal.Port = at.IP.String(), at.Port
	}
	if m, ok := request.(proto.Message); ok {
		refusal.Fields = askedFor(m)
	}
	t.refuse(refusal, path.Base(path.Dir(method))+"/"+path.Base(method), err)
}

func (t *Trail) refuse(refusal audit.Refusal, method string, err error) {
	refusal.Method = strings.TrimPrefix(method, "muster.v1.")
	refusal.Reason = err.Error()
	refusal.Unknown = rpcstatus.Convert(err, rpcstatus.Numbers()).Wire == rpcstatus.Unauthenticated
	t.refusals.Report(refusal)
}

// Refused reports a call that the site's script refused.
func (t *Trail) Refused(ctx context.Context, call string, err error) {
	if t == nil {
		return
	}
	refusal := refusalBy(identity.From(ctx))
	if at := identity.AddressOf(ctx); at != nil {
		refusal.Address, refusal.Port = at.IP.String(), at.Port
	}
	t.refuse(refusal, call, err)
}

// refusalBy says who was refused.
func refusalBy(who identity.Identity) audit.Refusal {
	refusal := audit.Refusal{Actor: who.Kind.String(), Node: who.Node}
	if who.IsUser() || who.Kind == identity.Admin {
		refusal.User = authz.UserName(who)
	}
	if who.UID != identity.NoID {
		refusal.UID = strconv.FormatUint(uint64(who.UID), 10)
	}
	return refusal
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
	var text strings.Builder
	for i := range list.Len() {
		if i > 0 {
			text.WriteByte(',')
		}
		if text.Len() > room {
			text.WriteString("…")
			break
		}
		text.WriteString(list.Get(i).String())
	}
	return text.String()
}
