package slurmapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// Host is what the API needs of the process that serves it.
type Host struct {
	Version string // of this release
	Cluster string
	// Call and Stream make a request of the services of this process, as whoever
	// is in the context. Their errors are *rpcstatus.Error.
	Call   func(ctx context.Context, method string, req, resp proto.Message) error
	Stream func(ctx context.Context, method string, req proto.Message) (tool.Receiver, error)
	// Body reads the body of a request, within the bounds of this process.
	Body func(w http.ResponseWriter, r *http.Request) ([]byte, error)
	// Convert makes any error one of the API, with its HTTP status.
	Convert func(err error) (*rpcstatus.Error, int)
	// Caller says who asks.
	Caller func(ctx context.Context) (user string, uid uint32)
	Now    func() time.Time
	// Changed is when the cluster changed last, in nanoseconds; 0 where this process does not know.
	Changed func() int64
	Log     *slog.Logger
}

// API is an http.Handler for the paths of the table.
type API struct {
	host   Host
	routes map[string]route // by method and path with * for the version
}

// New makes the API.
func New(host Host) *API {
	return &API{host: host, routes: routeTable()}
}

// request is one request and what is known of it.
type request struct {
	api     *API
	ctx     context.Context
	path    *schema.Path
	version schema.Version
	given   map[string]string // parameters of the path
	query   url.Values
	body    schema.Values
	user    string
	uid     uint32
	source  string // the address of whoever asks

	warnings []schema.Problem
	failed   error // the last error of a service
}

// problems are everything that is wrong with a request.
type problems []schema.Problem

// Error lists them.
func (p problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Path + ": " + problem.Text
	}
	return strings.Join(lines, "; ")
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(writer http.ResponseWriter, r *http.Request) {
	version, found, given, allowed := a.findRoute(r.Method, r.URL.Path)
	if found == nil {
		code := http.StatusNotFound
		err := rpcstatus.New(
			rpcstatus.Unimplemented,
			"there is nothing at %s; GET /openapi/v3 lists what there is",
			r.URL.Path,
		)
		if len(allowed) > 0 {
			writer.Header().Set("Allow", strings.Join(allowed, ", "))
			code = http.StatusMethodNotAllowed
			err = rpcstatus.New(
				rpcstatus.InvalidArgument,
				"%s %s: use %s",
				r.Method,
				r.URL.Path,
				strings.Join(allowed, " or "),
			)
		}
		a.Refuse(writer, r, code, err)
		return
	}
	q := &request{
		api:     a,
		ctx:     r.Context(),
		path:    found,
		version: version,
		given:   given,
		query:   r.URL.Query(),
	}
	q.user, q.uid = a.host.Caller(r.Context())
	q.source = r.RemoteAddr
	if q.source == "@" || q.source == "" {
		q.source = "unix:" // the socket of this host
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		q.source = host
	}
	out := newHeld(writer, r)
	err := q.serveInto(writer, r, out)
	if err == nil {
		err = out.finish()
	}
	switch {
	case err == nil:
	case out.sent && r.Context().Err() != nil: // the client has gone
	case out.sent:
		a.host.Log.Warn("an answer broke off", "path", r.URL.Path, "error", err)
	default:
		// Also where the context has ended: it does when a client sends its body too slowly, and
		// that client would take no answer for success.
		q.failWith(writer, r, err)
	}
}

// findRoute finds the row of the table for a path. allowed are the methods of the path
// when it has none of this name: those of job/submit, though job/{id} has others.
func (a *API) findRoute(
	method, path string,
) (version schema.Version, found *schema.Path, given map[string]string, allowed []string) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	if len(words) < 3 {
		return 0, nil, nil, nil
	}
	for _, v := range schema.Versions() {
		if v.String() != words[1] {
			continue
		}
		contract := schema.Of(v)
		nearest := len(words) // variables of the paths of allowed
		for i := range contract.Paths {
			p := &contract.Paths[i]
			values, ok := matchPath(p.Path, words)
			switch {
			case !ok:
			case p.Method != method && len(values) < nearest:
				nearest = len(values)
				allowed = []string{p.Method}
			case p.Method != method && len(values) == nearest:
				allowed = append(allowed, p.Method)
			case p.Method != method:
			case found == nil || len(values) < len(given): // jobs/state rather than job/{id}
				found = p
				given = values
			}
		}
		return v, found, given, allowed
	}
	return 0, nil, nil, nil
}

// matchPath compares a path with the pattern of the table; a slash at the end does not
// count.
func matchPath(pattern string, words []string) (map[string]string, bool) {
	var given map[string]string
	rest := strings.Trim(pattern, "/")
	for i, word := range words {
		part, more, _ := strings.Cut(rest, "/")
		rest = more
		name, variable := strings.CutPrefix(part, "{")
		switch {
		case part == "":
			return nil, false
		case variable && word != "":
			if given == nil {
				given = map[string]string{}
			}
			given[strings.TrimSuffix(name, "}")] = word
		case part != word:
			return nil, false
		}
		if i == len(words)-1 && rest != "" {
			return nil, false
		}
	}
	return given, true
}

// serveInto answers a request into out.
func (q *request) serveInto(writer http.ResponseWriter, r *http.Request, out *held) error {
	at := q.api.routes[q.path.Method+" "+q.path.Plain]
	if at.show == nil && at.do == nil {
		return rpcstatus.New(rpcstatus.Unimplemented, "%s %s: %s", q.path.Method, q.path.Path, at.refused)
	}
	if err := q.readQuery(at.params); err != nil {
		return err
	}
	if q.path.Request != nil {
		if err := q.readBody(writer, r); err != nil {
			return err
		}
	}
	if at.show != nil {
		args, err := at.show(q)
		if err != nil {
			return err
		}
		out.beginTag()
		return q.run(args, out)
	}
	members, err := at.do(q)
	if err != nil {
		return err
	}
	if at.reads {
		out.beginTag()
	}
	return tree.WriteJSON(out, q.path.Answer.Conform(append(members, q.makeEnvelope(nil)...)), true)
}

// readQuery checks the parameters of the query against the table. obeyed are those
// that the answer depends on.
func (q *request) readQuery(obeyed []string) error {
	var wrong problems
	for name, values := range q.query {
		param := q.path.Param(name)
		switch {
		case param == nil:
			q.addWarning("?"+name, "unknown parameter, ignored")
			continue
		case !slices.Contains(obeyed, name) && !slices.Contains(mootParams(), name) && q.hasFlag(name):
			q.addWarning("?"+name, "the answer does not depend on it, ignored")
			continue
		case name == "update_time":
			if text := q.wrongTime(values); text != "" {
				wrong = append(wrong, schema.Problem{Path: "?" + name, Text: text})
			}
			continue
		case param.Enum == nil:
			continue
		}
		for _, value := range values {
			for word := range strings.SplitSeq(value, ",") {
				if !slices.ContainsFunc(
					param.Enum,
					func(known string) bool { return strings.EqualFold(known, word) },
				) {
					wrong = append(wrong, schema.Problem{Path: "?" + name, Text: word +
						" is not known: expected one of " + strings.Join(param.Enum, ", ")})
				}
			}
		}
	}
	if wrong != nil {
		return wrong
	}
	return nil
}

// wrongTime says what is wrong with times of the query, which are seconds since 1970 or what the
// commands read.
func (q *request) wrongTime(values []string) string {
	moment := format.Moment{Now: q.api.host.Now().Unix(), Loc: time.Local, Past: true}
	for _, value := range values {
		if _, err := strconv.ParseUint(value, 10, 63); err == nil {
			continue
		}
		if _, err := format.ParseTime(value, moment); err != nil {
			return "expected seconds since 1970 or a time, got " + strconv.Quote(value)
		}
	}
	return ""
}

// readBody reads the body as the table says.
func (q *request) readBody(writer http.ResponseWriter, r *http.Request) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return spec.Refuse(spec.CodeQueryInvalid, "Content-Encoding "+coding+
			" is not supported: send the body as it is")
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		if name, _, err := mime.ParseMediaType(kind); err != nil || name != "application/json" {
			return spec.Refuse(spec.CodeQueryInvalid, "Content-Type "+kind+
				" is not supported: send application/json")
		}
	}
	text, err := q.api.host.Body(writer, r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return spec.Refuse(spec.CodeQueryInvalid, "the request has no body: send a JSON object, "+
			q.path.Request.Name)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var body any
	if err := decoder.Decode(&body); err != nil {
		return spec.Refuse(spec.CodeQueryInvalid, "the body is not JSON: "+jsonError(err, text))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return spec.Refuse(spec.CodeQueryInvalid, "the body has something behind its JSON object")
	}
	for _, path := range schema.DoubledFields(text) {
		q.addWarning(path, "the field is given twice, the last one counts")
	}
	reading := q.path.Request.Read(body)
	q.warnings = append(q.warnings, reading.Warnings...)
	if len(reading.Errors) > 0 {
		return problems(reading.Errors)
	}
	q.body = reading.Values
	return nil
}

// jsonError says where JSON is wrong.
func jsonError(err error, text []byte) string {
	var at *json.SyntaxError
	if !errors.As(err, &at) {
		return err.Error()
	}
	before := text[:min(int(at.Offset), len(text))]
	return err.Error() + " in line " + tool.Itoa(1+bytes.Count(before, []byte("\n")))
}

func (q *request) addWarning(path, text string) {
	q.warnings = append(q.warnings, schema.Problem{Path: path, Text: text})
}

// queryParam is a parameter of the query, empty without one.
func (q *request) queryParam(name string) string { return strings.Join(q.query[name], ",") }

// hasFlag tells that a parameter of the query says yes.
func (q *request) hasFlag(name string) bool {
	values, given := q.query[name]
	return given && !slices.ContainsFunc(values, func(v string) bool { return tool.IsNo("", v) })
}

// run runs a command whose document is the answer.
func (q *request) run(args []string, out io.Writer) error {
	make := documentCommands()[args[0]]
	var said bytes.Buffer
	env := q.commandEnv(args)
	env.Stdout = out
	env.Stderr = &said
	env.API.Warnings = func() []string {
		var lines []string
		for _, problem := range q.warnings {
			lines = append(lines, problem.Path+": "+problem.Text)
		}
		for line := range strings.Lines(said.String()) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	words := append([]string{"--json=" + q.version.String()}, args[1:]...)
	err := tool.Execute(q.ctx, env, make(), words)
	if err != nil && q.failed != nil {
		return q.failed // as the service said it, before the command put it into words
	}
	return err
}

// commandEnv is what a command sees of the world when it runs for a request:
// nothing of this process's own.
func (q *request) commandEnv(args []string) *tool.Env {
	services := tool.Within{Do: q.callService, Follow: q.followService}
	return &tool.Env{
		Args: args, Stdin: bytes.NewReader(nil), Stdout: io.Discard, Stderr: io.Discard, Dir: "/", Host: q.source, UID: q.uid, Version: q.api.host.Version,
		Loc: time.Local, Now: q.api.host.Now, Dial: func(context.Context) (tool.Conn, error) { return services, nil },
		Terminal: func(any) bool { return false }, Pause: tool.Pause, UserName: tool.UserName, UserID: tool.LookupUID, FullName: tool.FullName,
		Rlimits: nil, Umask: func() uint32 { return 0o22 },
		API: &tool.API{
			Plugin:   pluginOf(q.path.Tag),
			Path:     q.path.Path,
			User:     q.user,
			Cluster:  q.api.host.Cluster,
			Changed:  q.api.host.Changed(),
			Warnings: func() []string { return nil },
		},
	}
}

// callService asks a service, and keeps its error as it is.
func (q *request) callService(ctx context.Context, method string, req, resp proto.Message) error {
	err := q.api.host.Call(ctx, method, req, resp)
	if err != nil {
		q.failed = err
	}
	return err
}

// callRPC is call for the paths that change something.
func (q *request) callRPC(method string, req, resp proto.Message) error {
	return q.callService(q.ctx, method, req, resp)
}

// followService makes a call that is answered by several messages, and keeps its errors.
func (q *request) followService(
	ctx context.Context,
	method string,
	req proto.Message,
) (tool.Receiver, error) {
	received, err := q.api.host.Stream(ctx, method, req)
	if err != nil {
		q.failed = err
		return nil, err
	}
	return receiver{Receiver: received, q: q}, nil
}

// receiver keeps the error with which a stream ended.
type receiver struct {
	tool.Receiver
	q *request
}

// Recv implements tool.Receiver.
func (r receiver) Recv(resp proto.Message) error {
	err := r.Receiver.Recv(resp)
	if err != nil && !errors.Is(err, io.EOF) {
		r.q.failed = err
	}
	return err
}

// errorEntry is an error as the API writes it.
func errorEntry(source, description string, number int32, text string) tree.Object {
	return tree.Object{
		{Key: "description", Value: description},
		{Key: "error_number", Value: number},
		{Key: "error", Value: text},
		{Key: "source", Value: source},
	}
}

// makeEnvelope is what every answer has beside what was asked for.
func (q *request) makeEnvelope(wrong tree.List) tree.Object {
	return q.api.envelope(
		asked{tag: q.path.Tag, version: q.version, source: q.source, user: q.user},
		q.warnings,
		wrong,
	)
}

// pluginOf is what serves a part of Slurm's API.
func pluginOf(tag string) string {
	switch tag {
	case "slurm":
		return "slurmctld"
	case "slurmdb":
		return "slurmdbd"
	}
	return tag
}

// asked is what an answer says of its request.
type asked struct {
	tag     string
	version schema.Version
	source  string
	user    string
}

func (a *API) envelope(by asked, warnings []schema.Problem, wrong tree.List) tree.Object {
	list := tree.List{}
	for _, problem := range warnings {
		list = append(
			list,
			tree.Object{
				{Key: "description", Value: problem.Text}, {Key: "source", Value: problem.Path},
			},
		)
	}
	return tree.Object{
		{Key: "meta", Value: tree.Object{
			{Key: "plugin", Value: tree.Object{{Key: "type", Value: "openapi/" +
				pluginOf(
					by.tag,
				)}, {Key: "name", Value: "Muster " + pluginOf(by.tag)}, {Key: "data_parser", Value: "data_parser/" +
				by.version.String()},
				{Key: "accounting_storage", Value: "accounting_storage/muster"}}},
			{
				Key: "client",
				Value: tree.Object{
					{Key: "source", Value: by.source},
					{Key: "user", Value: by.user},
					{Key: "group", Value: ""},
				},
			},
			{Key: "command", Value: tree.List{}},
			{Key: "slurm", Value: tree.Object{
				{
					Key: "version",
					Value: tree.Object{
						{Key: "major", Value: "25"},
						{Key: "micro", Value: "0"},
						{Key: "minor", Value: "11"},
					},
				},
				{
					Key:   "release",
					Value: tool.SlurmVersion,
				}, {Key: "cluster", Value: a.host.Cluster}}}}},
		{Key: "errors", Value: wrong}, {Key: "warnings", Value: list},
	}
}

// failWith answers with an error.
func (q *request) failWith(writer http.ResponseWriter, r *http.Request, err error) {
	var wrong problems
	if errors.As(err, &wrong) {
		list := tree.List{}
		for _, problem := range wrong {
			list = append(
				list,
				errorEntry(
					problem.Path,
					problem.Text,
					int32(spec.CodeParseFailure),
					spec.CodeParseFailure.String(),
				),
			)
		}
		q.answerError(writer, http.StatusBadRequest, list)
		return
	}
	e, code := q.api.host.Convert(commandError(err))
	if code == http.StatusTooManyRequests {
		writer.Header().Set("Retry-After", "1")
	}
	q.answerError(writer, code, tree.List{entryOf(r.URL.Path, e)})
}

// entryOf is an error of the services, or of what carries requests to them.
func entryOf(source string, e *rpcstatus.Error) tree.Object {
	number := e.Number
	if number == 0 {
		number = int32(classNumber(e.Wire))
	}
	text := e.SlurmText()
	if text == "" && number != 0 {
		text = spec.Code(number).String()
	}
	return errorEntry(source, e.Error(), number, text)
}

// classNumber is the number of errors that have only a class.
func classNumber(class rpcstatus.Code) spec.Code {
	switch class {
	case rpcstatus.InvalidArgument, rpcstatus.OutOfRange, rpcstatus.Unimplemented:
		return spec.CodeQueryInvalid
	case rpcstatus.Unauthenticated:
		return spec.CodeAuthFailure
	case rpcstatus.PermissionDenied:
		return spec.CodeAccessDenied
	case rpcstatus.NotFound:
		return spec.CodeNothingFound
	case rpcstatus.Unavailable:
		return spec.CodeUnreachable
	case rpcstatus.DeadlineExceeded:
		return spec.CodeSocketTimeout
	case rpcstatus.ResourceExhausted:
		return spec.CodeBackoff
	default:
		return 0
	}
}

// commandError gives the error of a command a number where it has none.
func commandError(err error) error {
	var (
		failed  *tool.ExitError
		usage   *opt.UsageError
		refused *opt.RefusedError
	)
	switch {
	case errors.As(err, &failed) && failed.Kind != 0:
		return spec.Refuse(failed.Kind, failed.Error())
	case errors.As(err, &failed), errors.As(err, &usage), errors.As(err, &refused):
		return spec.Refuse(spec.CodeQueryInvalid, err.Error())
	}
	return err
}

func (q *request) answerError(writer http.ResponseWriter, code int, list tree.List) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	if err := tree.WriteJSON(
		writer, q.path.Answer.Conform(q.makeEnvelope(list)), true,
	); err != nil {
		q.api.host.Log.Debug("an error could not be sent", "path", q.path.Path, "error", err)
	}
}

// Refuse answers a request that did not come as far as a path of the table: the
// caller is not known or made too many requests, or there is no such path.
func (a *API) Refuse(writer http.ResponseWriter, r *http.Request, code int, e *rpcstatus.Error) {
	by := asked{version: schema.Default, source: r.RemoteAddr}
	by.tag, _, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	shape := schema.Of(by.version).Type("openapi_resp")
	if version, found, _, _ := a.findRoute(r.Method, r.URL.Path); found != nil {
		by.version = version
		shape = found.Answer
	}
	doc := shape.Conform(a.envelope(by, nil, tree.List{entryOf(r.URL.Path, e)}))
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	if err := tree.WriteJSON(writer, doc, true); err != nil {
		a.host.Log.Debug("an error could not be sent", "path", r.URL.Path, "error", err)
	}
}
