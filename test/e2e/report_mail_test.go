package e2e

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// relay is a mail server that takes everything, or refuses it.
type relay struct {
	net.Listener
	mu      sync.Mutex
	refuses bool
	asked   int
	mails   []string
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &relay{Listener: l, refuses: true}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

func (r *relay) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	say := func(line string) { fmt.Fprintf(c, "%s\r\n", line) }
	say("220 relay")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " "); verb {
		case "MAIL":
			r.mu.Lock()
			r.asked++
			refuses := r.refuses
			r.mu.Unlock()
			if refuses {
				say("451 come again later")
				continue
			}
			say("250 ok")
		case "DATA":
			say("354 go on")
			var text strings.Builder
			for text.Len() == 0 || !strings.HasSuffix(text.String(), "\r\n.\r\n") {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				text.WriteString(line)
			}
			r.mu.Lock()
			r.mails = append(r.mails, text.String())
			r.mu.Unlock()
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (r *relay) state() (asked int, mails []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked, r.mails
}

func (r *relay) takes() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = false
}

// TestJobMailByServer: with reports.smtp and without MailProg, the mail server gets what jobs ask
// for, with the text about how well the run used what it held, and a bare recipient gets the
// sender's domain.
func TestJobMailByServer(t *testing.T) {
	c := start(t)
	c.must("down", "--dir", c.dir)
	post := newRelay(t)
	post.takes()
	conf := filepath.Join(c.dir, "muster.yaml")
	data, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	keys := "\nreports:\n  smtp: " + post.Addr().String() + "\n  from: muster@example.org\n"
	text := strings.Replace(string(data), "\nreports:\n", keys, 1)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.must("up", "--dir", c.dir)
	job := c.must("sbatch", "--parsable", "--gpus=1", "-J", "train", "--mail-type=END", "--mail-user=ann", "--wrap", "true")
	c.until("1", "sql", "-n", "SELECT count() FROM jobs")
	c.untilMail(post)
	_, mails := post.state()
	message, err := mail.ReadMessage(strings.NewReader(strings.TrimSuffix(mails[0], ".\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, message.Body))
	if err != nil {
		t.Fatal(err)
	}
	if to := message.Header.Get("To"); to != "ann@example.org" {
		t.Errorf("the mail goes to %s", to)
	}
	if subject := message.Header.Get("Subject"); !strings.HasPrefix(subject, "Slurm Job_id="+job+" Name=train Ended") {
		t.Errorf("subject %q", subject)
	}
	if want := "Job " + job + " train of"; !strings.HasPrefix(string(body), want) {
		t.Errorf("the text does not begin with %q:\n%s", want, body)
	}
}

// untilMail waits for the first mail.
func (c *cluster) untilMail(post *relay) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if _, mails := post.state(); len(mails) > 0 {
			return
		}
		if time.Since(began) > time.Minute {
			c.t.Fatal("no mail comes")
		}
	}
}

// TestReportsByMail: a report of reports.mail that was due while the cluster was
// down reaches the mail server once; a refusal is told, and a restart sends
// nothing again.
func TestReportsByMail(t *testing.T) {
	c := start(t)
	c.until("COMPLETED", "sacct", "-nPX", "-o", "state", "-j", c.must("sbatch", "--parsable", "--wrap", "true"))
	c.must("down", "--dir", c.dir, "--jobs")
	post := newRelay(t)
	conf := filepath.Join(c.dir, "muster.yaml")
	data, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	const line = "daily 00:00 site to ops@example.org"
	text := strings.Replace(string(data), "\nreports:\n", "\nreports:\n  smtp: "+post.Addr().String()+"\n  from: muster@example.org\n  mail: ["+line+"]\n", 1)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(c.dir, "state", "reports.json")
	before := func(when string) {
		t.Helper()
		if err := os.WriteFile(state, []byte(`{"`+line+`": "`+when+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); time.Sleep(100 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatal(what)
			}
		}
	}
	before("2026-01-01T00:00:00Z")
	c.must("up", "--dir", c.dir)
	wait("the relay is not asked", func() bool { asked, _ := post.state(); return asked > 0 })
	wait("the refusal is not told", func() bool {
		log, err := os.ReadFile(filepath.Join(c.dir, "run", "musterd.log"))
		return err == nil && strings.Contains(string(log), "come again later") &&
			strings.Contains(c.metrics(c.port+4), "muster_accounting_report_mail_failures_total{cluster=\"muster\"} 1")
	})
	post.takes()
	c.must("down", "--dir", c.dir, "--jobs")
	c.must("up", "--dir", c.dir) // it tries at once
	wait("no report is mailed", func() bool { _, mails := post.state(); return len(mails) == 1 })
	_, mails := post.state()
	for _, want := range []string{"From: muster@example.org\r\n", "To: ops@example.org\r\n", "Subject: The cluster", "Content-Type: text/html"} {
		if !strings.Contains(mails[0], want) {
			t.Errorf("the mail lacks %q:\n%s", want, mails[0])
		}
	}
	wait("it is not counted", func() bool {
		return strings.Contains(c.metrics(c.port+4), "muster_accounting_reports_mailed_total{cluster=\"muster\"} 1")
	})
	c.must("down", "--dir", c.dir, "--jobs")
	c.must("up", "--dir", c.dir)
	c.until("1", "sql", "-n", "SELECT count() FROM jobs") // accounting is up: what is due goes out within seconds
	time.Sleep(8 * time.Second)
	if _, mails := post.state(); len(mails) != 1 {
		t.Errorf("%d mails", len(mails))
	}
}
