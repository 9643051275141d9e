package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// cluster is a service that remembers what it was asked.
type cluster struct {
	service.UnimplementedClusterServer
	list   *apiv1.ListJobsRequest
	submit *apiv1.SubmitRequest
	who    identity.Identity
}

func (c *cluster) ListJobs(ctx context.Context, req *apiv1.ListJobsRequest) (*apiv1.ListJobsReply, error) {
	c.list, c.who = req, identity.From(ctx)
	return &apiv1.ListJobsReply{Jobs: []*apiv1.JobInfo{{JobId: 7}}}, nil
}

func (c *cluster) Submit(_ context.Context, req *apiv1.SubmitRequest) (*apiv1.SubmitReply, error) {
	c.submit = req
	if req.GetSpec().GetName() == "refused" {
		return nil, spec.Refuse(spec.CodeInvalidPartition, "there is no partition x")
	}
	if req.GetSpec().GetName() == "panic" {
		panic("planted")
	}
	return &apiv1.SubmitReply{JobId: 8}, nil
}

func (c *cluster) WatchJob(req *apiv1.WatchJobRequest, s service.Cluster_WatchJobServer) error {
	for i := range 3 {
		if err := s.Send(&apiv1.JobInfo{JobId: req.GetJobId(), Attempt: uint32(i)}); err != nil {
			return err
		}
	}
	return spec.Refuse(spec.CodeStopping, "")
}

func serve(t *testing.T, who func(*http.Request) (identity.Identity, error)) (*cluster, *httptest.Server, *rest.Gateway) {
	t.Helper()
	c, g := newGateway(who)
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	return c, srv, g
}

func newGateway(who func(*http.Request) (identity.Identity, error)) (*cluster, *rest.Gateway) {
	guard := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if identity.From(ctx).Kind == identity.Anonymous {
			return nil, spec.Refuse(spec.CodeAccessDenied, "")
		}
		return next(ctx, req)
	}
	g := rest.New(rest.Config{Identify: who, Errors: rpcstatus.Numbers(), Unary: []grpc.UnaryServerInterceptor{guard}, Version: "1"})
	c := &cluster{}
	service.RegisterClusterServer(g, c)
	return c, g
}

func ada(*http.Request) (identity.Identity, error) {
	return identity.Identity{Kind: identity.LocalUser, UID: 1000, User: "ada"}, nil
}

func do(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Body.Close()
	text, err := io.ReadAll(rep.Body)
	if err != nil {
		t.Fatal(err)
	}
	return rep.StatusCode, string(text)
}

func TestQueryAndBodySayTheSame(t *testing.T) {
	c, srv, _ := serve(t, ada)
	code, text := do(t, "GET", srv.URL+"/v1/Cluster/ListJobs?filter.users=ada&filter.users=bob&filter.all_states=true", "")
	if code != 200 || text != "{\"jobs\":[{\"job_id\":7}]}\n" {
		t.Errorf("%d %s", code, text)
	}
	byQuery := protojson.Format(c.list)
	if c.who.User != "ada" {
		t.Errorf("asked by %v", c.who)
	}
	if code, text = do(t, "POST", srv.URL+"/v1/Cluster/ListJobs", `{"filter":{"users":["ada","bob"],"all_states":true}}`); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if byBody := protojson.Format(c.list); byBody != byQuery || !strings.Contains(byBody, "bob") {
		t.Errorf("the query gave %s, the body %s", byQuery, byBody)
	}
}

func TestErrors(t *testing.T) {
	_, srv, _ := serve(t, ada)
	for _, x := range []struct {
		method, path, body string
		code               int
		text               string
	}{
		{"POST", "/v1/Cluster/Submit", `{"spec":{"name":"refused"}}`, 404, `"slurm":"Invalid partition name specified"`},
		{"POST", "/v1/Cluster/Submit", `{"spec":{"name":"panic"}}`, 500, "internal error"},
		{"POST", "/v1/Cluster/Submit", `{"spec":`, 400, "is not a SubmitRequest"},
		{"POST", "/v1/Cluster/Submit", `{"nonsense":1}`, 400, "nonsense"},
		{"GET", "/v1/Cluster/Submit", "", 405, "use POST"},
		{"DELETE", "/v1/Cluster/ListJobs", "", 405, "use GET or POST"},
		{"GET", "/v1/Cluster/ListJobs?filtr=1&filter=2&filter.all_states=maybe", "", 400, "filter: \\\"filter\\\" is a message"},
		{"GET", "/v1/Cluster/ListJobs?filtr=1", "", 400, "has no field"},
		{"GET", "/v1/Nonsense", "", 404, "openapi.json"},
		{"POST", "/v1/Cluster/Cancel", "{}", 404, "Unimplemented"},
	} {
		code, text := do(t, x.method, srv.URL+x.path, x.body)
		if code != x.code || !strings.Contains(text, x.text) || !json.Valid([]byte(text)) {
			t.Errorf("%s %s: %d %s; expected %d and %s", x.method, x.path, code, text, x.code, x.text)
		}
	}
	_, nameless, _ := serve(t, func(*http.Request) (identity.Identity, error) { return identity.Nameless(), nil })
	if code, text := do(t, "GET", nameless.URL+"/v1/Cluster/ListJobs", ""); code != 403 {
		t.Errorf("the interceptor was passed by: %d %s", code, text)
	}
	_, stranger, _ := serve(t, func(*http.Request) (identity.Identity, error) {
		return identity.Nameless(), rpcstatus.New(rpcstatus.Unauthenticated, "who are you?")
	})
	if code, text := do(t, "GET", stranger.URL+"/v1/Cluster/ListJobs", ""); code != 401 {
		t.Errorf("a stranger: %d %s", code, text)
	}
}

func TestStreamIsLines(t *testing.T) {
	_, srv, _ := serve(t, ada)
	code, text := do(t, "GET", srv.URL+"/v1/Cluster/WatchJob?job_id=5", "")
	var lines []string
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		lines = append(lines, s.Text())
	}
	if code != 200 || len(lines) != 4 || lines[2] != `{"job_id":5,"attempt":2}` || !strings.Contains(lines[3], `"error"`) {
		t.Errorf("%d %q", code, lines)
	}
}

// TestOpenAPI holds the description to what is served: every path, no
// reference to a schema that is missing, and the same bytes each time.
func TestOpenAPI(t *testing.T) {
	_, srv, g := serve(t, ada)
	_, text := do(t, "GET", srv.URL+"/v1/openapi.json", "")
	if again := string(g.OpenAPI()); again != text {
		t.Error("two descriptions differ")
	}
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Paths) < 15 || doc.Paths["/v1/Cluster/ListJobs"]["get"] == nil || doc.Paths["/v1/Cluster/Submit"]["get"] != nil ||
		doc.Paths["/v1/Cluster/Submit"]["post"] == nil {
		t.Errorf("paths: %v", doc.Paths)
	}
	const prefix = `"$ref": "#/components/schemas/`
	refs := 0
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(line, prefix); ok {
			name, _, _ := strings.Cut(rest, `"`)
			if doc.Components.Schemas[name] == nil {
				t.Errorf("schema %s is missing", name)
			}
			refs++
		}
	}
	if refs < 50 {
		t.Errorf("only %d references", refs)
	}
}

// FuzzGateway: a request of any method, path, query and body is answered with a code that HTTP
// has, and in JSON; a service's own panic is the only cause of an internal error.
func FuzzGateway(f *testing.F) {
	f.Add("POST", "/v1/Cluster/ListJobs", `{"filter":{"allStates":true}}`)
	f.Add("POST", "/v1/Cluster/Submit", `{"spec":{"name":"a","size":{"tasks":1e3}},"script":{"data":"IyE="}}`)
	f.Add("GET", "/v1/Cluster/ListJobs?filter.users=ada&detail=true", "")
	f.Add("GET", "/v1/Cluster/WatchJob?job_id=3", "")
	f.Add("DELETE", "/v1/../Cluster//Ping", "[")
	_, gateway := newGateway(ada)
	f.Fuzz(func(t *testing.T, method, target, body string) {
		address, err := url.ParseRequestURI(target)
		if err != nil {
			return // http.Server refuses it
		}
		request := httptest.NewRequest(http.MethodPost, "http://x/", strings.NewReader(body))
		request.Method = method
		request.URL = address
		answer := httptest.NewRecorder()
		gateway.ServeHTTP(answer, request)
		if answer.Code < 200 || answer.Code > 599 {
			t.Fatalf("%s %s: code %d", method, target, answer.Code)
		}
		if answer.Code == http.StatusInternalServerError && !strings.Contains(body+target, "panic") {
			t.Fatalf("%s %s %q: %s", method, target, body, answer.Body)
		}
	})
}
