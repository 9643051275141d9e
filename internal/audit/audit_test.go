package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/audit/ecs"
)

var lab = Origin{Cluster: "lab", Controller: "ctl1"}

func held(seq uint64) *apiv1.EventInfo {
	return &apiv1.EventInfo{Seq: seq, At: 1_700_000_000_000_000_000 + int64(seq), Kind: "JobHeld", ActorKind: "user", Actor: "alice", Host: "login1",
		Command: "hold", Job: "36_7", JobId: 40, User: "bob", Account: "ml", Nodes: []string{"n1", "n2"},
		Fields: []*apiv1.EventField{{Name: "by", Value: &apiv1.EventField_Text{Text: "user"}}, {Name: "grace", Value: &apiv1.EventField_Span{Span: 1_500_000_000}}}}
}

// TestRecordIsECS: who, from where, what, about what and what came of it stand where
// ECS has them, and the identifier is the same each time.
func TestRecordIsECS(t *testing.T) {
	line, err := lab.FromEvent(held(12)).Line()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"@timestamp":"2023-11-14T22:13:20.000000012Z","message":"JobHeld job 36_7 by user alice on login1 (hold)","ecs":{"version":"8.17.0"},` +
		`"event":{"id":"12-17979cfe362a000c-36_7","kind":"event","category":["process"],"type":["change"],"action":"job-held","outcome":"success","code":"JobHeld","sequence":12,` +
		`"module":"muster","dataset":"muster.audit","provider":"musterd"},"user":{"name":"alice"},"source":{"address":"login1"},"observer":{"name":"ctl1"},` +
		`"orchestrator":{"type":"muster","cluster":{"name":"lab"},"resource":{"type":"job","id":"36_7"}},` +
		`"muster":{"actor":"user","command":"hold","job":"36_7","job_user":"bob","account":"ml","nodes":"n[1-2]","fields":{"by":"user","grace":1.5}}}`
	if line != want {
		t.Errorf("the record is\n%s\nwant\n%s", line, want)
	}
	if a, b := lab.FromEvent(held(12)).Event.ID, lab.FromEvent(held(13)).Event.ID; a == b || a != lab.FromEvent(held(12)).Event.ID {
		t.Errorf("identifiers %s and %s", a, b)
	}
}

// TestLongRecordIsCut: a line is never longer than receivers take, stays JSON, and
// says that it was cut.
func TestLongRecordIsCut(t *testing.T) {
	e := held(1)
	for i := range 400 {
		e.Fields = append(e.Fields, &apiv1.EventField{Name: fmt.Sprint("f", i), Value: &apiv1.EventField_Text{Text: strings.Repeat("ü", 300)}})
	}
	for range 2 {
		line, err := lab.FromEvent(e).Line()
		var r Record
		if err != nil || len(line) > ecs.MaxLine || json.Unmarshal([]byte(line), &r) != nil || !r.Muster.Truncated || r.User.Name != "alice" {
			t.Errorf("%d bytes, %v: %.200s", len(line), err, line)
		}
		e.Fields = e.Fields[:20]
	}
}

// TestWhatIsOfTheTrail: what people ask for and what changes rights is, the
// bookkeeping of the scheduler is not.
func TestWhatIsOfTheTrail(t *testing.T) {
	for _, c := range []struct {
		kind, actor string
		want        bool
	}{
		{"JobHeld", "user", true}, {"JobEligible", "user", true}, {"JobStarted", "system", true}, {"JobEnded", "node", true},
		{"ReasonsChanged", "system", false}, {"UsageAged", "system", false}, {"JobPurged", "system", false}, {"NodeStateSet", "system", true},
		{"CertificateRevoked", "system", true}, {"ConfigAdopted", "system", true}, {"NewerThanThis", "system", true},
	} {
		e := &apiv1.EventInfo{Kind: c.kind, ActorKind: c.actor}
		if Changes.Wants(e) != c.want || !All.Wants(e) {
			t.Errorf("%s of %s: %t", c.kind, c.actor, !c.want)
		}
	}
}

// TestFileRotates: at its size the file becomes the first of the older ones, of
// which so many stay; a torn line is cut off, and a file that was moved away is
// made anew.
func TestFileRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.json")
	f := NewFile(path, 40, 2)
	defer f.Close()
	write := func(lines ...string) {
		t.Helper()
		if err := f.Write(t.Context(), lines); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		data, _ := os.ReadFile(name) // one that is missing is empty
		return string(data)
	}
	for i := range 7 {
		write(fmt.Sprintf("line %d of twenty bytes", i))
	}
	if got := []string{read(path), read(path + ".1"), read(path + ".2"), read(path + ".3")}; got[0] != "line 6 of twenty bytes\n" ||
		got[1] != "line 4 of twenty bytes\nline 5 of twenty bytes\n" || got[2] != "line 2 of twenty bytes\nline 3 of twenty bytes\n" || got[3] != "" {
		t.Errorf("the files are %q", got)
	}
	if err := errors.Join(f.Close(), os.WriteFile(path, []byte("whole\ntor"), 0o640)); err != nil {
		t.Fatal(err)
	}
	write("next")
	if got := read(path); got != "whole\nnext\n" {
		t.Errorf("behind a torn line: %q", got)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	write("anew")
	if got := read(path); got != "anew\n" {
		t.Errorf("after the file was moved away: %q", got)
	}
}

// ledger is a source in memory.
type ledger struct {
	mu     sync.Mutex
	events []*apiv1.EventInfo
	grown  chan struct{}
	first  uint64
	gap    string
}

func newLedger(n uint64) *ledger {
	l := &ledger{grown: make(chan struct{})}
	l.grow(n)
	return l
}

func (l *ledger) grow(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		l.events = append(l.events, held(uint64(len(l.events)+1)))
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *ledger) Head() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.events))
}

func (l *ledger) Resume(p Position) (uint64, string, error) { return max(p.Seq+1, l.first), l.gap, nil }

func (l *ledger) Follow(ctx context.Context, from uint64, take func(*apiv1.EventsReply) error) error {
	for {
		l.mu.Lock()
		rest, grown := l.events[from-1:], l.grown
		l.mu.Unlock()
		if len(rest) > 3 {
			rest = rest[:3]
		}
		if len(rest) > 0 {
			from += uint64(len(rest))
			if err := take(&apiv1.EventsReply{Events: rest, Seq: from - 1, Epoch: 9}); err != nil {
				return err
			}
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil
		}
	}
}

// seqs are the events of lines, and the actions of records that are not about one.
func seqs(t *testing.T, lines []string) (out []uint64, actions []string) {
	t.Helper()
	for _, line := range lines {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Event.Sequence > 0 {
			out = append(out, r.Event.Sequence)
		} else {
			actions = append(actions, r.Event.Action)
		}
	}
	return out, actions
}

// receiver is a target whose memory a test can look into.
type receiver struct {
	mu     sync.Mutex
	lines  []string
	away   bool
	wrote  chan struct{}
	settle time.Duration
}

func (r *receiver) Write(_ context.Context, lines []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.wrote <- struct{}{}:
	default:
	}
	if r.away {
		return errors.New("away")
	}
	r.lines = append(r.lines, lines...)
	return nil
}

func (r *receiver) set(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *receiver) Settles() time.Duration { return r.settle }
func (r *receiver) Close() error           { return nil }

// exporting runs an exporter until stop is called.
func exporting(t *testing.T, cfg Config) (e *Exporter, stop func()) {
	t.Helper()
	cfg.Name, cfg.Origin, cfg.Log = "test", lab, slog.New(slog.DiscardHandler)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Pause = func(ctx context.Context, _ time.Duration) { pause(ctx, time.Millisecond) }
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return e, stop
}

// until waits for something that another goroutine brings about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		if t.Context().Err() != nil {
			t.Fatal(what)
		}
		time.Sleep(time.Millisecond) //muster:sleep what it waits for is written by other goroutines and processes
	}
}

// TestDeliveredAtLeastOnce: a target that is away misses nothing, nor does one whose
// exporter ends meanwhile; a second life continues behind what was taken.
func TestDeliveredAtLeastOnce(t *testing.T) {
	position := filepath.Join(t.TempDir(), "test.json")
	l, to := newLedger(5), &receiver{wrote: make(chan struct{}, 1)}
	e, stop := exporting(t, Config{Target: to, Source: l, Position: position})
	until(t, "the first events", func() bool { return len(to.got()) == 5 })
	to.set(true)
	l.grow(4)
	until(t, "a failure", func() bool { return e.Status().Failures > 1 })
	if st := e.Status(); st.Seq != 5 {
		t.Errorf("while the target is away: %+v", st)
	}
	stop()
	if pos, err := ReadPosition(position); err != nil || pos != (Position{9, 5}) {
		t.Errorf("the position is %+v, %v", pos, err)
	}
	l.grow(2)
	to.set(false)
	_, stop = exporting(t, Config{Target: to, Source: l, Position: position})
	until(t, "the rest", func() bool { return len(to.got()) >= 11 })
	stop()
	if got, _ := seqs(t, to.got()); !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
		t.Errorf("delivered %d", got)
	}
}

// TestUnsettledComesAgain: what a target could still lose when it went away is sent
// again, and is not behind the position.
func TestUnsettledComesAgain(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1_700_000_000, 0)
	forward := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	l, to := newLedger(3), &receiver{wrote: make(chan struct{}, 1), settle: 10 * time.Second}
	e, _ := exporting(t, Config{Target: to, Source: l, Position: filepath.Join(t.TempDir(), "test.json"), Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	until(t, "the first events", func() bool { return e.Status().Seq == 3 })
	forward(11 * time.Second)
	l.grow(2)
	until(t, "the next events", func() bool { return e.Status().Seq == 5 })
	to.set(true)
	l.grow(1)
	until(t, "a failure", func() bool { return e.Status().Failures > 0 })
	to.set(false)
	until(t, "all events", func() bool { return e.Status().Seq == 6 })
	if got, _ := seqs(t, to.got()); !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 4, 5, 6}) {
		t.Errorf("delivered %d", got)
	}
}

// TestGapIsTold: where the ledger has lost what a target lacks, a record says so.
func TestGapIsTold(t *testing.T) {
	l, to := newLedger(6), &receiver{wrote: make(chan struct{}, 1)}
	l.first, l.gap = 4, "events 1 to 3 were dropped"
	exporting(t, Config{Target: to, Source: l, Position: filepath.Join(t.TempDir(), "test.json")})
	until(t, "the events", func() bool { return len(to.got()) == 4 })
	if got, actions := seqs(t, to.got()); !slices.Equal(got, []uint64{4, 5, 6}) || !slices.Equal(actions, []string{"audit-gap"}) {
		t.Errorf("delivered %d %s", got, actions)
	}
}

// TestRefusalsAreBounded: one party that floods is cut to its burst, others are
// still heard, and what is left out is counted in a record.
func TestRefusalsAreBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	refusals := NewRefusals(lab, func() time.Time { return now })
	in := refusals.attachInbox()
	for range 3 * partyBurst {
		refusals.Report(Refusal{User: "mallory", UID: "66", Node: "login1", Address: "192.0.2.7", Port: 5555, Actor: "user", Method: "Cluster/Cancel", Reason: "may not",
			Fields: map[string]any{"jobs": "12"}})
	}
	refusals.Report(Refusal{Unknown: true, Address: "192.0.2.8", Method: "POST /v1/Cluster/Submit", Reason: "bad token"})
	lines := in.addWaiting()
	if len(lines) != partyBurst+1 || in.newlyLeftOut() != 2*partyBurst || in.newlyLeftOut() != 0 || in.leftOut() != 2*partyBurst {
		t.Errorf("%d lines, %d left out", len(lines), in.leftOut())
	}
	var first, last Record
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &first), json.Unmarshal([]byte(lines[len(lines)-1]), &last)); err != nil {
		t.Fatal(err)
	}
	if first.Event.Outcome != "failure" || first.Event.Action != "authorization-refused" || first.User.Name != "mallory" || first.Source.IP != "192.0.2.7" ||
		first.Muster.Command != "Cluster/Cancel" || first.Muster.Fields["jobs"] != "12" {
		t.Errorf("a refusal is %s", lines[0])
	}
	if last.Event.Action != "authentication-refused" || last.User != nil || last.Source.Address != "192.0.2.8" {
		t.Errorf("a bad token is %s", lines[len(lines)-1])
	}
	for i := range maxParties + inboxRoom {
		refusals.Report(Refusal{Address: strconv.Itoa(i)})
	}
	if len(refusals.parties) > maxParties || len(in.addWaiting()) > allBurst {
		t.Errorf("%d parties are remembered", len(refusals.parties))
	}
}

// TestRefusalsAreWritten: they reach the target, also after it was away, with the
// number of those that are missing.
func TestRefusalsAreWritten(t *testing.T) {
	refusals := NewRefusals(lab, time.Now)
	to := &receiver{wrote: make(chan struct{}, 1), away: true}
	_, stop := exporting(t, Config{Target: to, Source: newLedger(0), Position: filepath.Join(t.TempDir(), "test.json"), Refusals: refusals})
	for range partyBurst + 3 {
		refusals.Report(Refusal{User: "mallory"})
	}
	<-to.wrote
	to.set(false)
	until(t, "the refusals", func() bool { return len(to.got()) >= partyBurst })
	stop()
	_, actions := seqs(t, to.got())
	want := append(slices.Repeat([]string{"authorization-refused"}, partyBurst), "refusals-left-out")
	if !slices.Equal(actions, want) || !strings.Contains(to.got()[partyBurst], `"left_out":3`) {
		t.Errorf("written: %s", to.got())
	}
}

// TestSyslogMessages: over every network the messages are of RFC 5424, framed by
// length on a stream, with the line as it is.
func TestSyslogMessages(t *testing.T) {
	dir := t.TempDir()
	for _, network := range []string{"unixgram", "unix", "udp", "tcp"} {
		var read func() string
		address := filepath.Join(dir, network)
		if network == "unixgram" || network == "udp" {
			if network == "udp" {
				address = "127.0.0.1:0"
			}
			pc, err := (&net.ListenConfig{}).ListenPacket(t.Context(), network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer pc.Close()
			address = pc.LocalAddr().String()
			read = func() string {
				buf := make([]byte, 1<<16)
				n, _, err := pc.ReadFrom(buf)
				if err != nil {
					t.Error(err)
				}
				return string(buf[:n])
			}
		} else {
			if network == "tcp" {
				address = "127.0.0.1:0"
			}
			l, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			address = l.Addr().String()
			var from *bufio.Reader
			read = func() string {
				if from == nil {
					c, err := l.Accept()
					if err != nil {
						t.Fatal(err)
					}
					from = bufio.NewReader(c)
				}
				size, err := from.ReadString(' ')
				n, numberErr := strconv.Atoi(strings.TrimSpace(size))
				buf := make([]byte, n)
				_, readErr := io.ReadFull(from, buf)
				if err := errors.Join(err, numberErr, readErr); err != nil {
					t.Fatal(err)
				}
				return string(buf)
			}
		}
		named := network
		if network == "unix" {
			named = "unixgram" // what a socket takes is found out
		}
		s, err := NewSyslog(SyslogConfig{Network: named, Address: address, Facility: "authpriv", Host: "ctl 1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), []string{`{"a":"ü"}`, `{"b":2}`}); err != nil {
			t.Fatalf("%s: %v", network, err)
		}
		for _, line := range []string{`{"a":"ü"}`, `{"b":2}`} {
			m := read()
			words := strings.SplitN(m, " ", 8)
			if len(words) != 8 || words[0] != "<85>1" || words[2] != "ctl1" || words[3] != "muster" || words[5] != "audit" || words[6] != "-" || words[7] != line {
				t.Errorf("%s: %q", network, m)
			}
			if _, err := time.Parse(time.RFC3339Nano, words[1]); err != nil {
				t.Errorf("%s: %v", network, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", network, err)
		}
	}
}

// TestJournalEntry: fields are one a line, whatever is in the record.
func TestJournalEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	pc, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	j := NewJournal(path)
	defer j.Close()
	r := lab.FromEvent(held(3))
	r.Message = "two\nlines"
	line, err := r.Line()
	if err == nil {
		err = j.Write(t.Context(), []string{line})
	}
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	n, _, err := pc.ReadFrom(buf)
	text := string(buf[:n])
	if err != nil || !strings.HasPrefix(text, "MESSAGE=two lines\nPRIORITY=5\n") || !strings.HasSuffix(text, "\nMUSTER_AUDIT="+line+"\n") || strings.Count(text, "\n") != 8 {
		t.Errorf("%v: %q", err, text)
	}
}
