package main

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/feed"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/usertoken"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// browser is a reader of the console of a server: he keeps cookies and follows
// links, as a browser does.
type browser struct {
	t    *testing.T
	http *http.Client
	at   string
}

// consoleServer is a console over a real controller, and what makes browsers of
// signed-in users.
type consoleServer struct {
	t    *testing.T
	s    *server
	jobs *daemon.ClusterService
	at   string
}

func newConsoleServer(t *testing.T, conf ...string) *consoleServer {
	t.Helper()
	return newConsoleServerOf(t, conffile.Web{}, conf...)
}

// newConsoleServerOf is one with settings of the console.
func newConsoleServerOf(t *testing.T, web conffile.Web, conf ...string) *consoleServer {
	t.Helper()
	return newConsoleServerWith(t, func(s *server, _ string) { s.cfg.Web = web }, conf...)
}

// newConsoleServerWith is one that is prepared before its console is made; at is where that will
// be.
func newConsoleServerWith(t *testing.T, prepare func(s *server, at string), conf ...string) *consoleServer {
	t.Helper()
	s, stop := openServer(t, t.TempDir(), conf...)
	t.Cleanup(stop)
	s.calls = &collector.Calls{}
	s.limits = limit.New(limit.Config{}, time.Now)
	served := httptest.NewUnstartedServer(nil)
	prepare(s, "http://"+served.Listener.Addr().String())
	s.cfg.Listen.Web = conffile.Addr("127.0.0.1:1")
	source, err := pki.LoadSource(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		t.Fatal(err)
	}
	gateway := s.newGateway(source)
	c := &consoleServer{t: t, s: s, jobs: daemon.NewClusterService(s.ctl)}
	service.RegisterClusterServer(gateway, c.jobs)
	service.RegisterAccountingServer(gateway, feed.Absent{})
	pages, err := s.openConsole(source, gateway)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pages.Run(ctx) }()
	served.Config.Handler = pages
	served.Start()
	c.at = served.URL
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		served.Close()
	})
	return c
}

// token is what scontrol token would give a user.
func (c *consoleServer) token(uid uint32) string {
	c.t.Helper()
	text, err := c.s.tokens.Issue(usertoken.Bearer{ID: "walk", User: strconv.Itoa(int(uid)), UID: uid, GID: uid}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// anonymous is a browser of somebody who is not signed in.
func (c *consoleServer) anonymous() *browser {
	c.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return &browser{t: c.t, http: &http.Client{Jar: jar}, at: c.at}
}

// revoke ends a token, as root does by muster tokens revoke.
func (c *consoleServer) revoke(id string) {
	c.t.Helper()
	ctx := identity.With(c.t.Context(), identity.Identity{Kind: identity.LocalUser, User: "root"})
	if _, err := c.jobs.RevokeUserTokens(ctx, &apiv1.RevokeUserTokensRequest{Ids: []string{id}}); err != nil {
		c.t.Fatal(err)
	}
}

// browser signs a user in.
func (c *consoleServer) browser(uid uint32) *browser {
	c.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	b := &browser{t: c.t, http: &http.Client{Jar: jar}, at: c.at}
	code, body := b.post("/sign-in", url.Values{"token": {c.token(uid)}, "next": {"/queue"}})
	if code != http.StatusOK || !strings.Contains(body, "<h1>Queue</h1>") {
		c.t.Fatalf("uid %d is not signed in: %d %s", uid, code, body)
	}
	return b
}

func (b *browser) get(path string) (int, string) {
	b.t.Helper()
	answer, err := b.http.Get(b.at + path)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.read(answer)
}

// getLive is what an open page gets when it reads itself again.
func (b *browser) getLive(path string) string {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodGet, b.at+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("X-Console", "live")
	req.Header.Set("Accept-Encoding", "gzip")
	answer, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	z, err := gzip.NewReader(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	page, err := io.ReadAll(z)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(page)
}

func (b *browser) post(path string, form url.Values) (int, string) {
	b.t.Helper()
	answer, err := b.http.PostForm(b.at+path, form)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.read(answer)
}

func (b *browser) read(answer *http.Response) (int, string) {
	b.t.Helper()
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// submit submits a job of a user.
func (c *consoleServer) submit(uid int, name string) uint32 {
	c.t.Helper()
	reply, err := c.jobs.Submit(as(c.t, strconv.Itoa(uid), uint32(uid)), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: name, WorkDir: "/tmp", TimeLimit: int64(time.Hour), MinNodes: 1, Tasks: 1},
		Script: &apiv1.Blob{Data: []byte("#!/bin/sh\ntrue\n")}})
	if err != nil {
		c.t.Fatal(err)
	}
	return reply.GetJobId()
}

var tags = regexp.MustCompile(`<[^>]*>`)

// TestConsoleNeedsToken: without a token there is nothing but the page that asks
// for one, and a wrong token is refused.
func TestConsoleNeedsToken(t *testing.T) {
	c := newConsoleServer(t)
	b := &browser{t: t, http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, at: c.at}
	if code, _ := b.get("/queue"); code != http.StatusSeeOther {
		t.Errorf("the queue is shown without a token: %d", code)
	}
	if code, _ := b.get("/live"); code != http.StatusUnauthorized {
		t.Errorf("events are sent without a token: %d", code)
	}
	code, body := b.post("/sign-in", url.Values{"token": {"nonsense"}, "next": {"/"}})
	if code != http.StatusForbidden || !strings.Contains(body, "the token is not valid") {
		t.Errorf("a wrong token: %d %s", code, body)
	}
	for _, next := range []string{"//evil.example/", "https://evil.example/", `/\evil.example`} {
		answer, err := b.http.PostForm(b.at+"/sign-in", url.Values{"token": {c.token(walkUser)}, "next": {next}})
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if to := answer.Header.Get("Location"); to != "/" {
			t.Errorf("next=%s leads to %s", next, to)
		}
		if cookie := answer.Cookies()[0]; !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode {
			t.Errorf("the cookie is %v", cookie)
		}
	}
}

// TestSignOutEndsTheToken: who copied the cookie of somebody who has signed out is not let in, by
// the console or by REST. A token that the ledger cannot end is said to hold.
func TestSignOutEndsTheToken(t *testing.T) {
	c := newConsoleServer(t)
	reply, err := c.jobs.CreateUserToken(as(t, "4001", 4001), &apiv1.CreateUserTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	token := reply.GetToken()
	owner := c.anonymous()
	owner.post("/sign-in", url.Values{"token": {token}, "next": {"/queue"}})
	thief := c.anonymous()
	at, err := url.Parse(c.at)
	if err != nil {
		t.Fatal(err)
	}
	thief.http.Jar.SetCookies(at, owner.http.Jar.Cookies(at))
	if _, page := thief.get("/queue"); !strings.Contains(page, "<h1>Queue</h1>") {
		t.Fatal("the copied cookie does not work while its owner is signed in: this test shows nothing")
	}
	if code, page := owner.post("/sign-out", nil); code != http.StatusOK || strings.Contains(page, "valid until") {
		t.Errorf("signing out: %d %s", code, page)
	}
	if _, page := thief.get("/queue"); !strings.Contains(page, "<h1>Sign in to ") {
		t.Errorf("the copied cookie works after its owner has signed out:\n%s", page)
	}
	if code, page := thief.post("/sign-in", url.Values{"token": {token}, "next": {"/"}}); code != http.StatusForbidden || !strings.Contains(page, "has been revoked") {
		t.Errorf("the token works after its owner has signed out: %d %s", code, page)
	}
	// Signing out twice ends nothing else.
	if code, page := owner.post("/sign-out", nil); code != http.StatusOK || !strings.Contains(page, "<h1>Sign in to ") {
		t.Errorf("signing out again: %d %s", code, page)
	}
	unlisted := c.browser(4002)
	if _, page := unlisted.post("/sign-out", nil); !strings.Contains(page, "the token is valid until") {
		t.Errorf("a token that is not in the ledger: %s", page)
	}
}

// TestConsoleHidesWhatIsPrivate: everyone sees in the console what squeue would
// show him, also when another has just looked.
func TestConsoleHidesWhatIsPrivate(t *testing.T) {
	c := newConsoleServer(t, "PrivateData=jobs,nodes")
	for uid, name := range map[int]string{4001: "alices", 4002: "bobs"} {
		c.submit(uid, name)
	}
	for _, reader := range []struct {
		uid          uint32
		alices, bobs bool
	}{{0, true, true}, {4001, true, false}, {4002, false, true}, {0, true, true}, {4003, false, false}} {
		_, body := c.browser(reader.uid).get("/queue")
		if strings.Contains(body, ">alices<") != reader.alices || strings.Contains(body, ">bobs<") != reader.bobs {
			t.Errorf("uid %d sees the wrong jobs: %s", reader.uid, tags.ReplaceAllString(body, ""))
		}
	}
}

// TestConsoleShowsNamesAsText: what users name cannot become markup.
func TestConsoleShowsNamesAsText(t *testing.T) {
	c := newConsoleServer(t)
	hostile := []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "\u202egnihtemos", strings.Repeat("x", 1000), "tab\tand\x1b[31mred"}
	for _, name := range hostile {
		c.submit(walkUser, name)
	}
	_, body := c.browser(walkUser).get("/queue")
	for _, bad := range []string{"<script>alert", "<img src=x", "\x1b"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	text := tags.ReplaceAllString(body, "")
	for _, want := range []string{"&lt;script&gt;alert(1)&lt;/script&gt;", "\u202egnihtemos", strings.Repeat("x", 1000), "tab·and·[31mred"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestConsoleTellsOfChanges: an open page is told when the ledger has grown.
// It learns the position of the ledger and nothing else, whoever has changed what: what he may
// see of that a visitor finds out by reading his page.
func TestConsoleTellsOfChanges(t *testing.T) {
	c := newConsoleServer(t, "PrivateData=jobs,nodes")
	b := c.browser(walkUser)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.at+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := b.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	next := func() string {
		t.Helper()
		piece := make([]byte, 256)
		n, err := stream.Body.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		return string(piece[:n])
	}
	first := next()
	position := regexp.MustCompile(`^data: [0-9]+\n\n$`)
	for _, uid := range []int{walkUser, walkUser + 1} {
		c.submit(uid, "news")
		told := next()
		if told == first || !position.MatchString(told) {
			t.Errorf("after a submission of %d: %q, before: %q", uid, told, first)
		}
		first = told
	}
}

var formSecret = regexp.MustCompile(`name="secret" value="([0-9a-f]+)"`)

// secret is what the forms of a page carry.
func (b *browser) secret(path string) string {
	b.t.Helper()
	_, body := b.get(path)
	if found := formSecret.FindStringSubmatch(body); found != nil {
		return found[1]
	}
	return ""
}

// TestConsoleActions: every change once by one who may make it and once by one
// who may not, who is not offered it and is refused when he asks all the same.
func TestConsoleActions(t *testing.T) {
	c := newConsoleServer(t)
	const owner, stranger = 4001, 4002
	mine := "/job/" + strconv.Itoa(int(c.submit(owner, "mine")))
	his := "/job/" + strconv.Itoa(int(c.submit(stranger, "his")))
	browsers := map[string]*browser{"owner": c.browser(owner), "stranger": c.browser(stranger), "root": c.browser(0)}
	for _, step := range []struct {
		who, path, verb string
		on              string // a page of his own from which a form's secret comes
		may             bool
		shows           string // what the page then says
	}{
		{"stranger", mine, "hold", his, false, ""},
		{"owner", mine, "hold", mine, true, "JobHeldUser"},
		{"stranger", mine, "release", his, false, ""},
		{"owner", mine, "release", mine, true, "The job is released."},
		{"stranger", mine, "requeue", his, false, ""},
		{"stranger", mine, "cancel", his, false, ""},
		{"owner", mine, "cancel", mine, true, "cancelled"},
		{"root", his, "hold", his, true, "JobHeldAdmin"},
		{"stranger", his, "release", his, false, ""},
		{"root", his, "cancel", his, true, "cancelled"},
		{"stranger", "/node/node1", "drain", "", false, ""},
		{"root", "/node/node1", "drain", "/node/node1", true, "a new fan"},
		{"stranger", "/node/node1", "resume", "", false, ""},
		{"root", "/node/node1", "resume", "/node/node1", true, "The node takes jobs again."},
		{"root", "/node/node1", "reboot", "/node/node1", false, ""},
		{"owner", mine, "suspend", "", false, ""},
	} {
		b := browsers[step.who]
		secret := ""
		if step.on != "" {
			secret = b.secret(step.on)
		}
		if secret == "" { // his pages offer nothing any more: what another form had
			secret = b.secret("/job/" + strconv.Itoa(int(c.submit(map[string]int{"owner": owner, "stranger": stranger, "root": owner}[step.who], "other"))))
		}
		if _, body := b.get(step.path); !step.may && strings.Contains(body, step.path+"/"+step.verb+`"`) && step.path != his {
			t.Errorf("%s is offered to %s %s", step.who, step.verb, step.path)
		}
		code, body := b.post(step.path+"/"+step.verb, url.Values{"secret": {secret}, "reason": {"a new fan"}})
		if (code == http.StatusOK) != step.may || !strings.Contains(body, step.shows) {
			t.Errorf("%s %ss %s: %d %s", step.who, step.verb, step.path, code, tags.ReplaceAllString(body, ""))
		}
	}
}

// TestConsoleFormsAreOurs: a form that another site made changes nothing,
// though the browser sends the cookie with it.
func TestConsoleFormsAreOurs(t *testing.T) {
	c := newConsoleServer(t)
	job := "/job/" + strconv.Itoa(int(c.submit(4001, "mine")))
	b, other := c.browser(4001), c.browser(4002)
	c.submit(4002, "his")
	for name, secret := range map[string]string{"none": "", "wrong": strings.Repeat("0", 64), "another user's": other.secret("/job/2")} {
		if code, _ := b.post(job+"/hold", url.Values{"secret": {secret}}); code != http.StatusForbidden {
			t.Errorf("a form with %s secret is taken: %d", name, code)
		}
	}
	request, err := http.NewRequest(http.MethodPost, b.at+job+"/hold", strings.NewReader(url.Values{"secret": {b.secret(job)}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	answer, err := b.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site is taken: %d", answer.StatusCode)
	}
	if _, body := b.get(job); strings.Contains(body, "JobHeldUser") {
		t.Error("the job is held")
	}
}

// TestConsoleHidesJobsOfOthers: the page of a job that is private says no more
// than that of a job that never was.
func TestConsoleHidesJobsOfOthers(t *testing.T) {
	c := newConsoleServer(t, "PrivateData=jobs")
	hidden := c.submit(4001, "secret-plans")
	b := c.browser(4002)
	_, one := b.get("/job/" + strconv.Itoa(int(hidden)))
	_, none := b.get("/job/999999")
	plain := func(body, id string) string {
		body = regexp.MustCompile(`<footer>.*</footer>`).ReplaceAllString(body, "")
		return strings.ReplaceAll(body, id, "N")
	}
	if a, b := plain(one, strconv.Itoa(int(hidden))), plain(none, "999999"); strings.Contains(one, "secret-plans") || tags.ReplaceAllString(a, "") != tags.ReplaceAllString(b, "") {
		t.Errorf("the page of a hidden job differs from that of none:\n%s\n%s", one, none)
	}
}
