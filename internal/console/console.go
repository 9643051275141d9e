// Package console serves the web console of a controller: pages about the
// queue, jobs, nodes and the state of the cluster, which update themselves.
//
// A page is a template filled with answers of the API. The console asks for
// them through the same limits and guards as every other client, as the user
// who is signed in, so that it shows him exactly what the commands would show,
// and does for him only what they would do. It reads no state of its own.
//
// console.go routes requests and writes answers, session.go knows who asks,
// live.go tells open pages that the cluster has changed, listing.go keeps lists
// that many pages ask for, past.go shows pages of the past, and each page has a file:
// page_now.go, page_queue.go, page_job.go, page_nodes.go, page_gpus.go, page_people.go,
// page_cluster.go, page_sql.go, page_reports.go, page_findings.go, page_suppose.go. job_again.go has scripts, job_output.go
// what jobs write, alerts.go alerts that
// fire, actions.go changes jobs and nodes.
//
// Nothing is built: the templates, the style sheet and the script are embedded
// as they are. Every page works without the script, except that it does not
// update itself. Decision 140 says why.
package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// API makes calls of the API for a caller. The answer must not be changed.
type API interface {
	Call(
		ctx context.Context,
		id identity.Identity,
		method string,
		req proto.Message,
	) (proto.Message, error)
}

// Config is what a Console needs.
type Config struct {
	API API
	// Stream makes a call that is answered by several messages, and hands each to send.
	Stream func(ctx context.Context, id identity.Identity, method string, req proto.Message, send func(proto.Message) error) error
	// Verify finds out for whom a token stands, or refuses it.
	Verify func(token string) (identity.Identity, error)
	// Door decides who may call which method. Calls meet it again; the console asks
	// it what to offer, and before it shares an answer.
	Door authz.Door
	// Private are the words of PrivateData that hold for the caller of a context.
	Private func(ctx context.Context) []string
	// Changed is the position of the published view, and a channel that closes
	// when there is a newer one.
	Changed func() (seq uint64, changed <-chan struct{})
	// Alerts is what Alertmanager last said; nil = none is configured. It does not
	// wait, and nobody changes its answer.
	Alerts func() Alerts
	// Login is the way in by the site's identity provider; nil = by tokens only.
	Login   Login
	Cluster string
	Version string
	Log     *slog.Logger
}

// Console serves the pages. Run must be called for them to update themselves.
type Console struct {
	cfg    Config
	mux    *http.ServeMux
	pages  map[string]*template.Template
	assets map[string]asset
	secret []byte // of the tokens that forms carry
	live   *live
	lists  *lists
	asking *turns // of questions in SQL
}

var _ http.Handler = (*Console)(nil)

//go:embed pages
var pageFiles embed.FS

//go:embed static
var staticFiles embed.FS

// asset is an embedded file with the name under which it may be cached for ever.
type asset struct {
	kind string
	data []byte
	hash string
}

// New makes a console. It fails only if an embedded file is broken.
func New(config Config) (*Console, error) {
	console := &Console{
		cfg:    config,
		mux:    http.NewServeMux(),
		pages:  map[string]*template.Template{},
		assets: map[string]asset{},
		secret: make([]byte, 32),
		live:   newLive(),
		lists:  newLists(),
		asking: newTurns(),
	}
	if _, err := rand.Read(console.secret); err != nil {
		return nil, err
	}
	if err := console.readAssets(); err != nil {
		return nil, err
	}
	if err := console.readPages(); err != nil {
		return nil, err
	}
	console.routes()
	return console, nil
}

func (c *Console) readAssets() error {
	return fs.WalkDir(staticFiles, "static", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := staticFiles.ReadFile(path)
		if err != nil {
			return err
		}
		kinds := map[string]string{
			"css": "text/css; charset=utf-8",
			"js":  "text/javascript; charset=utf-8",
			"svg": "image/svg+xml",
		}
		name := strings.TrimPrefix(path, "static/")
		sum := sha256.Sum256(data)
		c.assets[name] = asset{
			kind: kinds[name[strings.LastIndex(name, ".")+1:]],
			data: data,
			hash: hex.EncodeToString(sum[:6]),
		}
		return nil
	})
}

// readPages parses each page together with the frame around it and the parts
// that several pages have.
func (c *Console) readPages() error {
	frame := template.New("frame.html").Funcs(c.templateFunctions())
	frame, err := frame.ParseFS(pageFiles, "pages/frame.html", "pages/parts.html")
	if err != nil {
		return err
	}
	names, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return err
	}
	for _, path := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "pages/"), ".html")
		if name == "frame" || name == "parts" {
			continue
		}
		own, err := frame.Clone()
		if err != nil {
			return err
		}
		c.pages[name], err = own.ParseFS(pageFiles, path)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Console) routes() {
	c.mux.HandleFunc("GET /static/{name}", c.serveAsset)
	c.mux.HandleFunc("GET /sign-in", c.showSignIn)
	c.mux.HandleFunc("POST /sign-in", c.signIn)
	c.mux.HandleFunc("POST /sign-out", c.signOut)
	c.mux.HandleFunc("GET /sign-in/provider", c.beginLogin)
	c.mux.HandleFunc("GET /sign-in/return", c.finishLogin)
	c.mux.HandleFunc("GET /live", c.serveLive)
	c.mux.Handle("GET /{$}", c.overview(c.nowPage))
	c.mux.Handle("GET /queue", c.overview(c.queuePage))
	c.mux.Handle("GET /job/{id}", c.page(c.jobPage))
	c.mux.Handle("GET /job/{id}/past", c.page(c.pastPart))
	c.mux.Handle("GET /job/{id}/script", c.page(c.scriptPart))
	c.mux.Handle("GET /job/{id}/output", c.page(c.outputPart))
	c.mux.HandleFunc("GET /job/{id}/output/live", c.serveOutput)
	c.mux.Handle("POST /job/{id}/{verb}", c.page(c.changeJob))
	c.mux.Handle("GET /cluster", c.page(c.clusterPage))
	c.mux.Handle("GET /sql", c.page(c.sqlPage))
	c.mux.HandleFunc("GET /sql/export", c.exportSQL)
	c.mux.Handle("GET /what-if", c.page(c.supposePage))
	c.mux.Handle("GET /findings", c.page(c.findingsPage))
	c.mux.Handle("GET /reports", c.page(c.reportsPage))
	c.mux.HandleFunc("GET /reports/export", c.exportReport)
	c.mux.Handle("GET /people", c.page(c.peoplePage))
	c.mux.Handle("GET /people/budgets", c.page(c.budgetPart))
	c.mux.Handle("GET /nodes", c.overview(c.nodesPage))
	c.mux.Handle("GET /gpus", c.overview(c.gpusPage))
	c.mux.Handle("GET /node/{name}", c.page(c.nodePage))
	c.mux.Handle("GET /node/{name}/events", c.page(c.nodeEventsPart))
	c.mux.Handle("POST /node/{name}/{verb}", c.page(c.changeNode))
}

// policy is the Content-Security-Policy of every answer: no inline script or
// style, nothing from elsewhere, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// formTime is how long a form may take to arrive. A deadline of the server would
// end the streams of open pages too.
const formTime = 30 * time.Second

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	defer func() {
		if p := recover(); p != nil && !errors.Is(asError(p), http.ErrAbortHandler) {
			c.cfg.Log.Error(
				"console handler panicked",
				"path",
				request.URL.Path,
				"panic",
				p,
				"stack",
				string(debug.Stack()),
			)
			http.Error(
				writer,
				"internal error; the controller's log has the details",
				http.StatusInternalServerError,
			)
		}
	}()
	if request.Method == http.MethodPost {
		// Connections of tests have no deadlines.
		_ = http.NewResponseController(writer).SetReadDeadline(time.Now().Add(formTime))
	}
	header := writer.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	http.NewCrossOriginProtection().Handler(c.mux).ServeHTTP(writer, request)
}

func asError(p any) error {
	if err, ok := p.(error); ok {
		return err
	}
	return nil
}

func (c *Console) serveAsset(writer http.ResponseWriter, request *http.Request) {
	a, ok := c.assets[request.PathValue("name")]
	if !ok {
		http.NotFound(writer, request)
		return
	}
	writer.Header().Set("Content-Type", a.kind)
	if request.URL.RawQuery == a.hash {
		writer.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	writeCompressed(writer, request, http.StatusOK, a.data)
}

// visit is one request of somebody who is signed in.
type visit struct {
	*http.Request
	console *Console
	id      identity.Identity
	secret  string // what a form must carry
	fresh   bool   // it follows a change: lists that are a moment old will not do
	past    *past  // the moment that the page shows; nil = the present
}

// answer is what a page has to show.
type answer struct {
	page   string // the template
	title  string
	data   any
	status int
	bare   bool   // a part of a page, without the frame
	to     string // set: the reader is sent there
}

// frame is what the templates see.
type frame struct {
	Title   string
	Page    string
	Cluster string
	Version string
	User    string
	Role    string
	Secret  string
	Now     time.Time
	Live    bool     // the page reads itself again when the cluster has changed
	Bar     *pastBar // nil where a page is only about the present
	Data    any
}

// page serves what f answers to those who are signed in.
func (c *Console) page(f func(v *visit) (answer, error)) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		v, err := c.identifyVisitor(request)
		if err != nil {
			c.sendToSignIn(writer, request)
			return
		}
		if request.Method == http.MethodPost && !v.formIsOurs(writer) {
			err = errForm
		}
		var out answer
		if err == nil {
			out.to, err = v.findPast()
		}
		switch {
		case err != nil || out.to != "":
		case v.past != nil && request.Method == http.MethodPost:
			err = errWriteInPast
		default:
			out, err = f(v)
		}
		if err != nil {
			out = failure(err)
		}
		if out.to != "" {
			http.Redirect(writer, request, out.to, http.StatusSeeOther)
			return
		}
		c.writeAnswer(writer, v, out)
	})
}

// problem is what the page about an error shows.
type problem struct {
	Text string
	Back string
}

var errForm = &spec.Error{
	Kind:   spec.CodeAccessDenied,
	Detail: "the form was made before the controller started, or by another page: go back, reload and try again",
}

// failure is the page about an error. What refuses says so in words for the
// person who asked.
func failure(err error) answer {
	code := http.StatusInternalServerError
	var refused *spec.Error
	var state *rpcstatus.Error
	text := err.Error()
	switch {
	case errors.As(err, &refused) && refused.Kind == spec.CodeInvalidJobID,
		errors.As(err, &refused) && refused.Kind == spec.CodeInvalidNodeName:
		code = http.StatusNotFound
	case isUnknownMoment(err):
		code = http.StatusBadRequest
	case errors.As(err, &refused) && refused.Kind == spec.CodeBackoff:
		code = http.StatusTooManyRequests
	case errors.As(err, &refused):
		code = http.StatusForbidden
	case errors.As(err, &state) && state.Wire == rpcstatus.Unavailable:
		code = http.StatusServiceUnavailable
	}
	return answer{page: "problem", title: "Not possible", data: problem{Text: text}, status: code}
}

func (c *Console) writeAnswer(writer http.ResponseWriter, v *visit, out answer) {
	name := "frame.html"
	if out.bare {
		name = "bare"
	}
	var buffer bytes.Buffer
	if err := c.pages[out.page].ExecuteTemplate(&buffer, name, c.newFrame(v, out)); err != nil {
		c.cfg.Log.Error("console page failed", "page", out.page, "error", err)
		http.Error(
			writer,
			"internal error; the controller's log has the details",
			http.StatusInternalServerError,
		)
		return
	}
	page := buffer.Bytes()
	if v.past != nil {
		page = v.past.keepMoment(page)
	}
	writer.Header().Set("Content-Type", "text/html; charset=utf-8")
	writer.Header().Set("Cache-Control", "no-store")
	code := out.status
	if code == 0 {
		code = http.StatusOK
	}
	writeCompressed(writer, v.Request, code, page)
}

func (c *Console) newFrame(v *visit, out answer) frame {
	data := frame{
		Title:   out.title,
		Page:    out.page,
		Cluster: c.cfg.Cluster,
		Version: c.cfg.Version,
		Now:     time.Now(),
		Data:    out.data,
	}
	if v.id.Kind != identity.Anonymous {
		data.User, data.Secret = userName(v.id), v.secret
		if !out.bare {
			data.Bar = v.barOf(out.page)
		}
	}
	// A question is asked once, and the past does not change.
	asked := slices.Contains([]string{"sql", "reports", "what-if", "findings"}, out.page)
	data.Live = data.Secret != "" && v.past == nil && !asked
	if v.past != nil && v.past.now != 0 {
		data.Now = time.Unix(0, v.past.now)
	}
	return data
}

// overview serves a page that has nothing of the visitor's own in it, so that
// open pages share it.
func (c *Console) overview(f func(v *visit) (answer, error)) http.Handler {
	whole := c.page(f)
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		v, err := c.identifyVisitor(request)
		if err != nil || request.Header.Get("X-Console") == "" ||
			request.URL.Query().Has(paramAt) ||
			!strings.Contains(request.Header.Get("Accept-Encoding"), "gzip") {
			whole.ServeHTTP(writer, request)
			return
		}
		page, err := c.sharedPage(v, f)
		if err != nil {
			c.writeAnswer(writer, v, failure(err))
			return
		}
		writer.Header().Set("Content-Type", "text/html; charset=utf-8")
		writer.Header().Set("Cache-Control", "no-store")
		writer.Header().Set("Content-Encoding", "gzip")
		_, _ = writer.Write(page)
	})
}

// minCompressed is the size below which compressing costs more than it saves.
const minCompressed = 1 << 10

// writeCompressed writes a body, compressed where the client takes that.
func writeCompressed(writer http.ResponseWriter, request *http.Request, code int, body []byte) {
	writer.Header().Add("Vary", "Accept-Encoding")
	if len(body) < minCompressed ||
		!strings.Contains(request.Header.Get("Accept-Encoding"), "gzip") {
		writer.WriteHeader(code)
		_, _ = writer.Write(body)
		return
	}
	writer.Header().Set("Content-Encoding", "gzip")
	writer.WriteHeader(code)
	z, err := gzip.NewWriterLevel(writer, gzip.BestSpeed)
	if err != nil {
		return
	}
	if _, err := z.Write(body); err == nil {
		_ = z.Close()
	}
}

// callAPI makes a call of the API as the visitor.
func callAPI[R proto.Message](v *visit, method string, request proto.Message) (reply R, err error) {
	var asked proto.Message = request
	if v.past != nil {
		asked, err = v.past.place(request)
		if err != nil {
			return reply, err
		}
	}
	message, err := v.console.cfg.API.Call(v.Context(), v.id, method, asked)
	if err != nil {
		return reply, err
	}
	if v.past != nil {
		v.past.learn(message)
	}
	reply, ok := message.(R)
	if !ok {
		return reply, fmt.Errorf("BUG: %s answered with %T", method, message)
	}
	return reply, nil
}
