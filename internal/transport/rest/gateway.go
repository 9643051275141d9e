package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// maxBody bounds a request, as the other protocols bound theirs.
const maxBody = 16 << 20

// Config is what a Gateway needs.
type Config struct {
	// Identify finds out who is asking, or refuses with a *rpcstatus.Error.
	Identify func(r *http.Request) (identity.Identity, error)
	// Refused hears of requests whose caller Identify refused; nil = nobody does.
	Refused func(r *http.Request, err error)
	Errors  rpcstatus.Table // how handlers' errors are classified
	Unary   []grpc.UnaryServerInterceptor
	Stream  []grpc.StreamServerInterceptor
	Table   *limit.Table // what each party may hold; nil = limit.Defaults
	Version string       // of the interface, for the description
	Log     *slog.Logger
}

// Gateway serves registered services. Register before it serves.
type Gateway struct {
	cfg     Config
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	methods map[string]*method // by path
	byName  map[string]*method // by full name
	mounts  []mount
}

var (
	_ grpc.ServiceRegistrar = (*Gateway)(nil)
	_ http.Handler          = (*Gateway)(nil)
)

// method is one method of a registered service; exactly one of unary and
// stream is set.
type method struct {
	desc   protoreflect.MethodDescriptor
	impl   any
	unary  grpc.MethodHandler
	stream *grpc.StreamDesc
	safe   bool // without side effects
}

// New makes a gateway without services.
func New(config Config) *Gateway {
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Table == nil {
		config.Table = limit.New(limit.Config{}, time.Now)
	}
	return &Gateway{
		cfg:     config,
		unary:   grpcx.ChainUnary(config.Unary),
		stream:  grpcx.ChainStream(config.Stream),
		methods: map[string]*method{},
		byName:  map[string]*method{},
	}
}

// RegisterService implements grpc.ServiceRegistrar. Methods that take a stream
// of requests are left out: HTTP has no form for them.
func (g *Gateway) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(desc.ServiceName),
	)
	sd, ok := d.(protoreflect.ServiceDescriptor)
	if err != nil || !ok {
		panic("BUG: rest: " + desc.ServiceName + " is no service of a linked .proto file")
	}
	short := string(sd.Name())
	add := func(name string, m method) {
		m.desc, m.impl = sd.Methods().ByName(protoreflect.Name(name)), impl
		if o, ok := m.desc.Options().(*descriptorpb.MethodOptions); ok {
			m.safe = o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
		}
		g.methods["/v1/"+short+"/"+name] = &m
		g.byName["/"+desc.ServiceName+"/"+name] = &m
	}
	for i := range desc.Methods {
		add(desc.Methods[i].MethodName, method{unary: desc.Methods[i].Handler})
	}
	for i := range desc.Streams {
		if !desc.Streams[i].ClientStreams {
			add(desc.Streams[i].StreamName, method{stream: &desc.Streams[i]})
		}
	}
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	out := &answer{w: writer, table: g.cfg.Errors}
	defer func() {
		if p := recover(); p != nil {
			g.cfg.Log.Error(
				"handler panicked",
				"path",
				request.URL.Path,
				"panic",
				p,
				"stack",
				string(debug.Stack()),
			)
			out.failAnswer(
				rpcstatus.New(rpcstatus.Internal, "internal error; the server's log has the details"),
			)
		}
	}()
	if m := g.findMount(request.URL.Path); m != nil {
		g.serveMounted(m, writer, request)
		return
	}
	if request.URL.Path == "/v1/openapi.json" && request.Method == http.MethodGet {
		writer.Header().Set("Content-Type", "application/json")
		_, _ = writer.Write(g.OpenAPI())
		return
	}
	m := g.methods[request.URL.Path]
	if m == nil {
		out.failAnswer(
			rpcstatus.New(
				rpcstatus.Unimplemented,
				"there is nothing at %s; GET /v1/openapi.json lists what there is",
				request.URL.Path,
			),
		)
		return
	}
	if err := m.allows(request); err != nil {
		writer.Header().Set("Allow", strings.Join(m.verbs(), ", "))
		out.code = http.StatusMethodNotAllowed
		out.failAnswer(err)
		return
	}
	id, err := g.identify(request)
	if err != nil {
		out.failAnswer(err)
		return
	}
	party := g.cfg.Table.PartyOf(id, nil)
	size, err := g.admit(party, request)
	if err != nil {
		writer.Header().Set("Retry-After", "1")
		out.failAnswer(err)
		return
	}
	defer g.cfg.Table.Give(party, size)
	decode := func(into any) error { return g.request(m, writer, request, into) }
	full := "/" + string(m.desc.Parent().FullName()) + "/" + string(m.desc.Name())
	ctx := identity.With(withAddress(request), id)
	if m.stream != nil {
		g.serveStream(ctx, m, full, decode, out)
		return
	}
	reply, err := m.unary(m.impl, ctx, decode, g.unary)
	if err != nil {
		out.failAnswer(err)
		return
	}
	out.message(reply, "application/json")
}

// identify finds out who asks, and tells of those whom it refuses.
func (g *Gateway) identify(request *http.Request) (identity.Identity, error) {
	id, err := g.cfg.Identify(request)
	if err != nil && g.cfg.Refused != nil {
		g.cfg.Refused(request, err)
	}
	return id, err
}

// withAddress is a request's context with the address it came from; on a socket of
// this host there is none.
func withAddress(request *http.Request) context.Context {
	at, err := netip.ParseAddrPort(request.RemoteAddr)
	if err != nil {
		return request.Context()
	}
	return identity.WithAddress(request.Context(), net.TCPAddrFromAddrPort(at))
}

// serveMounted hands a request to another API, once it is known who asks.
func (g *Gateway) serveMounted(m *mount, writer http.ResponseWriter, request *http.Request) {
	if m.open {
		m.api.ServeHTTP(writer, request)
		return
	}
	id, err := g.identify(request)
	if err != nil {
		g.failMounted(m, writer, request, err)
		return
	}
	party := g.cfg.Table.PartyOf(id, nil)
	size, err := g.admit(party, request)
	if err != nil {
		writer.Header().Set("Retry-After", "1")
		g.failMounted(m, writer, request, err)
		return
	}
	defer g.cfg.Table.Give(party, size)
	m.api.ServeHTTP(writer, request.WithContext(identity.With(withAddress(request), id)))
}

func (m *method) verbs() []string {
	if m.safe {
		return []string{http.MethodGet, http.MethodPost}
	}
	return []string{http.MethodPost}
}

func (m *method) allows(request *http.Request) error {
	if !slices.Contains(m.verbs(), request.Method) {
		return rpcstatus.New(
			rpcstatus.InvalidArgument,
			"%s %s: use %s",
			request.Method,
			request.URL.Path,
			strings.Join(m.verbs(), " or "),
		)
	}
	return nil
}

// admit refuses a request before its body is read: when the caller has made too
// many, or has sent too much that is not handled yet. size is what is counted,
// which for a body of unknown size is the largest that is read.
func (g *Gateway) admit(party limit.Party, request *http.Request) (size int64, err error) {
	if !g.cfg.Table.Call(party) {
		return 0, spec.Refuse(spec.CodeBackoff, "")
	}
	size = request.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody
	}
	if !g.cfg.Table.Take(party, size) {
		return 0, spec.Refuse(
			spec.CodeBackoff,
			fmt.Sprintf(
				"no room for a request of %d bytes beside those that are not handled yet",
				size,
			),
		)
	}
	return size, nil
}

// bodyTime is how long a client may take to send a body.
const bodyTime = 30 * time.Second

// readBody reads a body within its time and its size.
func (g *Gateway) readBody(writer http.ResponseWriter, request *http.Request) ([]byte, error) {
	// Not every connection has deadlines: those of tests have none.
	control := http.NewResponseController(writer)
	bounded := control.SetReadDeadline(time.Now().Add(bodyTime)) == nil
	body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, maxBody))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		g.cfg.Table.Refuse(limit.Body)
		return nil, rpcstatus.New(
			rpcstatus.DeadlineExceeded,
			"the body of the request did not come within %s",
			bodyTime,
		)
	case err != nil:
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return nil, rpcstatus.New(
				rpcstatus.InvalidArgument,
				"the body is larger than %d MiB: send several requests",
				maxBody>>20,
			)
		}
		return nil, rpcstatus.New(rpcstatus.InvalidArgument, "the request's body: %v", err)
	case bounded:
		// The answer may take longer than the request.
		if err := control.SetReadDeadline(time.Time{}); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// request reads the query or the body into a message.
func (g *Gateway) request(
	m *method, writer http.ResponseWriter, request *http.Request, into any,
) error {
	message, ok := into.(proto.Message)
	if !ok {
		return rpcstatus.New(rpcstatus.Internal, "%T is not a protobuf message", into)
	}
	if request.Method == http.MethodGet {
		return fromQuery(request.URL.Query(), message)
	}
	if ct := request.Header.Get("Content-Type"); ct != "" {
		if kind, _, err := mime.ParseMediaType(ct); err != nil || kind != "application/json" {
			return rpcstatus.New(rpcstatus.InvalidArgument, "Content-Type %q: send application/json", ct)
		}
	}
	body, err := g.readBody(writer, request)
	if err != nil {
		return err
	}
	if err := g.checkValues(body); err != nil {
		return err
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		return nil // a request without fields
	}
	if err := protojson.Unmarshal(body, message); err != nil {
		return rpcstatus.New(
			rpcstatus.InvalidArgument,
			"the request is not a %s: %v",
			message.ProtoReflect().Descriptor().Name(),
			err,
		)
	}
	return nil
}

func (g *Gateway) serveStream(
	ctx context.Context,
	m *method,
	full string,
	decode func(any) error,
	out *answer,
) {
	s := &stream{ctx: ctx, decode: decode, out: out}
	var err error
	if g.stream == nil {
		err = m.stream.Handler(m.impl, s)
	} else {
		err = g.stream(m.impl, s, &grpc.StreamServerInfo{FullMethod: full, IsServerStream: true}, m.stream.Handler)
	}
	if err != nil && ctx.Err() == nil {
		out.failAnswer(err)
	}
	out.writeHeader("application/x-ndjson")
}

// stream is the grpc.ServerStream of a call over HTTP.
type stream struct {
	ctx    context.Context
	decode func(any) error
	out    *answer
	read   bool
}

var _ grpc.ServerStream = (*stream)(nil)

func (s *stream) Context() context.Context { return s.ctx }

// Outlive implements Outliving.
func (s *stream) Outlive(ctx context.Context) grpc.ServerStream {
	longer := *s
	longer.ctx = ctx
	return &longer
}

func (s *stream) RecvMsg(into any) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	return s.decode(into)
}

func (s *stream) SendMsg(m any) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	return s.out.message(m, "application/x-ndjson")
}

var errNoHeaders = errors.New("answers over HTTP carry no gRPC headers")

func (s *stream) SetHeader(metadata.MD) error  { return errNoHeaders }
func (s *stream) SendHeader(metadata.MD) error { return errNoHeaders }
func (s *stream) SetTrailer(metadata.MD)       {}

// answer writes messages, or one error.
type answer struct {
	w     http.ResponseWriter
	table rpcstatus.Table
	code  int // of the HTTP status, where the error's class does not say it
	began bool
}

func (a *answer) writeHeader(kind string) {
	if !a.began {
		a.began = true
		a.w.Header().Set("Content-Type", kind)
	}
}

// message writes one message as a line.
func (a *answer) message(value any, kind string) error {
	m, ok := value.(proto.Message)
	if !ok {
		return fmt.Errorf("BUG: %T is not a protobuf message", value)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return rpcstatus.New(rpcstatus.Internal, "the answer cannot be encoded: %v", err)
	}
	var line bytes.Buffer // the runtime varies its spaces on purpose: programs get the same bytes each time
	if err := json.Compact(&line, text); err != nil {
		return rpcstatus.New(rpcstatus.Internal, "the answer cannot be encoded: %v", err)
	}
	line.WriteByte('\n')
	a.writeHeader(kind)
	if _, err := a.w.Write(line.Bytes()); err != nil {
		return err
	}
	if f, ok := a.w.(http.Flusher); ok && kind != "application/json" {
		f.Flush()
	}
	return nil
}

// maxValues bounds the values of a request. A script or an environment is one
// value, whatever its size; decoding costs by the number of values.
const maxValues = 100_000

// checkValues refuses a body that would cost too much to decode.
func (g *Gateway) checkValues(body []byte) error {
	if values := countValues(body); values > maxValues {
		g.cfg.Table.Refuse(limit.Complexity)
		return rpcstatus.New(
			rpcstatus.InvalidArgument, // not ResourceExhausted, which says to try the same again
			"the request has %d values, more than %d: send several",
			values,
			maxValues,
		)
	}
	return nil
}

// countValues is an upper bound of the values in JSON: each stands behind a comma
// or opens an object or a list.
func countValues(body []byte) int {
	values, quoted := 1, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			values++
		}
	}
	return values
}
