package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster/alerts"
)

// post is a mail server without encryption that wants a login, as a site's
// own relay may be.
type post struct {
	t      *testing.T
	listen net.Listener
	mu     sync.Mutex
	got    []letter
}

// letter is one mail with its envelope.
type letter struct {
	from string
	to   []string
	text string
}

const (
	mailUser     = "muster"
	mailPassword = "p\u00e4ss wort"
)

func newPost(t *testing.T) *post {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &post{t: t, listen: l}
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, one := range p.got {
			t.Logf("mail from %s to %v:\n%s", one.from, one.to, one.text)
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// serve speaks SMTP (RFC 5321) with AUTH PLAIN (RFC 4616).
func (p *post) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	say := func(line string) { fmt.Fprintf(c, "%s\r\n", line) }
	say("220 relay ready")
	var l letter
	known := false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		switch verb := strings.ToUpper(strings.SplitN(line, " ", 2)[0]); {
		case verb == "EHLO":
			say("250-relay\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN")
		case strings.HasPrefix(strings.ToUpper(line), "AUTH PLAIN "):
			data, err := base64.StdEncoding.DecodeString(line[len("AUTH PLAIN "):])
			if known = err == nil && string(data) == "\x00"+mailUser+"\x00"+mailPassword; known {
				say("235 welcome")
			} else {
				say("535 wrong password")
			}
		case !known && verb != "QUIT":
			say("530 log in first")
		case strings.HasPrefix(strings.ToUpper(line), "MAIL FROM:"):
			l = letter{from: line[10:]}
			say("250 ok")
		case strings.HasPrefix(strings.ToUpper(line), "RCPT TO:"):
			l.to = append(l.to, line[8:])
			say("250 ok")
		case verb == "DATA":
			say("354 go on")
			for {
				text, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if text == ".\r\n" {
					break
				}
				l.text += text
			}
			p.mu.Lock()
			p.got = append(p.got, l)
			p.mu.Unlock()
			say("250 taken")
		case verb == "QUIT":
			say("221 bye")
			return
		default:
			say("502 no such command")
		}
	}
}

// has tells whether a mail came to all of the people with all of the words.
func (p *post) has(to []string, words ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.got, func(l letter) bool {
		for _, w := range words {
			if !strings.Contains(strings.ReplaceAll(l.text, "=\r\n", ""), w) { // quoted-printable folds lines
				return false
			}
		}
		for _, one := range to {
			if !slices.ContainsFunc(l.to, func(a string) bool { return strings.Contains(a, one) }) {
				return false
			}
		}
		return true
	})
}

// hook takes a generic webhook's notifications, which must carry the token.
func newHook(t *testing.T) (url string, came func(status, alert string) bool) {
	var mu sync.Mutex
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m struct {
			Version, Status string
			Alerts          []struct{ Labels, Annotations map[string]string }
		}
		if err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil || r.Header.Get("Authorization") != "Bearer hook-token-of-the-site" {
			t.Errorf("a notification with %q: %v", r.Header.Get("Authorization"), err)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range m.Alerts {
			got = append(got, m.Status+" "+a.Labels["alertname"])
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func(status, alert string) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(got, status+" "+alert)
	}
}

// TestMailAndWebhook sends through a real Alertmanager to a mail server and to
// a webhook: what fires, what is over, and what is sent by hand.
func TestMailAndWebhook(t *testing.T) {
	need(t)
	tool := tools(t, "prometheus-alertmanager")
	w := &watched{cluster: &cluster{t: t, dir: shortDir(t), port: freePorts(t)}}
	mails := newPost(t)
	url, came := newHook(t)
	w.alertmanager = w.at(0)
	w.write("password", mailPassword)
	w.write("token", "hook-token-of-the-site")
	settings := func(more string) string {
		return fmt.Sprintf("email: {to: 'ops@example.org, Night Shift <night@example.org>', from: Muster <muster@example.org>, smtp: %q, username: %s, password_file: password%s}\n"+
			"webhook: {url: %s, bearer_token_file: token}\nalertmanager_url: %s\ngroup_wait: 1s\ngroup_interval: 1s\n", mails.listen.Addr(), mailUser, more, url, w.alertmanager)
	}
	w.write("alerts.yaml", settings(", require_tls: false"))
	both := []string{"<ops@example.org>", "<night@example.org>"}

	// By hand, while Alertmanager is not there: the message says so.
	out, errs, code := w.run("alerts", "test", "--config", w.file("alerts.yaml"), "--receiver", "email")
	t.Logf("without Alertmanager: exit %d, %s%s", code, out, errs)
	if code == 0 || !strings.Contains(out+errs, w.alertmanager) {
		t.Errorf("an Alertmanager that is not there: exit %d, %s%s", code, out, errs)
	}
	w.must("alerts", "generate", "--config", w.file("alerts.yaml"), "--out", w.file("alerting"))
	w.daemon(tool["prometheus-alertmanager"], "--config.file="+w.file("alerting/"+alerts.AlertmanagerFile), "--storage.path="+w.file("am"), "--web.listen-address="+w.alertmanager[7:], "--cluster.listen-address=")
	w.eventually("Alertmanager is ready", func() bool {
		resp, err := http.Get(w.alertmanager + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	for _, name := range []string{"email", "webhook"} {
		w.must("alerts", "test", "--config", w.file("alerts.yaml"), "--receiver", name)
	}
	w.eventually("the test notification by mail", func() bool { return mails.has(both, "Subject: INFO Test notification to email") })

	// What a rule fires, with a value that nobody should have given.
	const evil = "node \"1\" <b>\U0001F600"
	fire := func(ends time.Time) {
		list := []map[string]any{{"labels": map[string]string{"alertname": "MusterNodeDrainedLong", "severity": "warning", "cluster": "lab", "node": evil, "audience": "operators"},
			"annotations": map[string]string{"summary": "node " + evil + " is out of service", "description": "For 3 days:\nfan", "dashboard": "https://g/d/muster-node", "runbook_url": "https://r/MusterNodeDrainedLong.md"},
			"startsAt":    time.Now().Add(-time.Minute).Format(time.RFC3339), "endsAt": ends.Format(time.RFC3339)}}
		data, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(w.alertmanager+"/api/v2/alerts", "application/json", strings.NewReader(string(data)))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("Alertmanager does not accept alerts: %v %v", resp, err)
		}
		resp.Body.Close()
	}
	fire(time.Now().Add(time.Hour))
	w.eventually("the alert by mail", func() bool { return mails.has(both, "From: ", "fan", "MusterNodeDrainedLong.md") })
	w.eventually("the alert at the webhook", func() bool { return came("firing", "MusterNodeDrainedLong") })
	fire(time.Now().Add(-time.Second))
	w.eventually("the end by mail", func() bool { return mails.has(both, "(resolved)") })
	w.eventually("the end at the webhook", func() bool { return came("resolved", "MusterNodeDrainedLong") })

	// A server that encrypts nothing gets nothing unless that was said.
	w.write("strict.yaml", settings(""))
	if out, errs, code := w.run("alerts", "test", "--config", w.file("strict.yaml"), "--receiver", "email", "--direct"); code == 0 || !strings.Contains(out+errs, "STARTTLS") {
		t.Errorf("mail without encryption: exit %d, %s%s", code, out, errs)
	}
	if err := os.Remove(filepath.Join(w.dir, "password")); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := w.run("alerts", "check", "--config", w.file("alerts.yaml")); code == 0 || !strings.Contains(out+errs, "password is not there") {
		t.Errorf("without the password's file: exit %d, %s%s", code, out, errs)
	}
}
