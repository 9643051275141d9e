package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// Every page about the state of the cluster can show a moment of the past, which
// its address names: at=2026-11-23T09:30:05Z, or at=#1234 for the state right
// after an event. Its requests are then about that moment, as those of muster at
// are, and what only the present knows is left out: services, accounting, load.
// Nothing can be changed from such a page, it does not update itself, and its
// links lead to pages of the same moment.

// past is the moment of the past that a page shows.
type past struct {
	moment *apiv1.Moment
	word   string // as the address has it
	now    int64  // the instant for which the page is; 0 = only the controller knows
}

// The parameters of an address that choose the moment. A form sends what somebody
// typed with his time zone, or the place of the slider; the answer leads to the
// address that has nothing but paramAt, in UTC.
const (
	paramAt   = "at"
	paramPos  = "pos"  // seconds since 1970
	paramZone = "zone" // of the browser, for what was typed
	paramSpan = "span" // how much time the slider covers
)

// pastForm is the layout of a moment in an address.
const pastForm = "2006-01-02T15:04:05Z"

// errWriteInPast refuses a form that was made for a moment of the past.
var errWriteInPast = spec.Refuse(spec.CodeBadRequest, "the past cannot be changed: go back to now")

// errOnlyNow says that a page is about the present alone.
var errOnlyNow = spec.Refuse(spec.CodeBadRequest, "this page is known only as of now")

// findPast reads which moment the address names. to is set where the reader
// should be sent to the address of the moment that he typed.
func (v *visit) findPast() (to string, err error) {
	query := v.URL.Query()
	word := strings.TrimSpace(query.Get(paramAt))
	if position := query.Get(paramPos); position != "" {
		seconds, err := strconv.ParseInt(position, 10, 64)
		if err != nil {
			return "", spec.Refuse(spec.CodeInvalidTime, "the place of the slider is not a number")
		}
		return v.linkAt(seconds), nil
	}
	if word == "" {
		if query.Has(paramAt) || query.Has(paramZone) {
			return v.linkWithout(), nil
		}
		return "", nil
	}
	if number, ok := strings.CutPrefix(word, "#"); ok {
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil || seq == 0 {
			return "", spec.Refuse(spec.CodeInvalidTime, "expected #N, the number of an event")
		}
		v.past = &past{moment: &apiv1.Moment{Seq: seq}, word: word}
		return "", nil
	}
	if at, err := time.Parse(pastForm, word); err == nil && !query.Has(paramZone) {
		v.past = &past{
			moment: &apiv1.Moment{At: max(at.UnixNano(), 1)},
			word:   word,
			now:    at.UnixNano(),
		}
		return "", nil
	}
	sec, err := v.parseTyped(word, query.Get(paramZone))
	if err != nil {
		return "", err
	}
	return v.linkAt(sec), nil
}

// parseTyped reads a time as sacct does, in the zone of the reader's browser.
func (v *visit) parseTyped(word, zone string) (int64, error) {
	if at, err := time.Parse(time.RFC3339, word); err == nil {
		return at.Unix(), nil
	}
	loc := time.Local
	if zone != "" {
		named, err := time.LoadLocation(zone)
		if err != nil {
			return 0, spec.Refuse(
				spec.CodeInvalidTime,
				"the time zone of the browser is not known to the controller: "+
					"write the time with its zone, as in 2026-11-23T09:30:00Z",
			)
		}
		loc = named
	}
	seconds, err := format.ParseTime(
		word, format.Moment{Now: time.Now().Unix(), Loc: loc, Past: true},
	)
	if err != nil {
		return 0, spec.Refuse(spec.CodeInvalidTime, tool.BadTimeText(word))
	}
	return seconds, nil
}

// linkAt is the same page at another moment, or of now if that is not over.
func (v *visit) linkAt(seconds int64) string {
	if seconds >= time.Now().Unix() {
		return v.linkWithout()
	}
	query := v.ownQuery()
	query.Set(paramAt, time.Unix(max(seconds, 1), 0).UTC().Format(pastForm))
	if span := v.URL.Query().Get(paramSpan); span != "" {
		query.Set(paramSpan, span)
	}
	return v.URL.EscapedPath() + "?" + query.Encode()
}

// linkWithout is the same page of now.
func (v *visit) linkWithout() string {
	if q := v.ownQuery(); len(q) > 0 {
		return v.URL.EscapedPath() + "?" + q.Encode()
	}
	return v.URL.EscapedPath()
}

// ownQuery is what the address chooses beside the moment.
func (v *visit) ownQuery() url.Values {
	query := v.URL.Query()
	for _, key := range [...]string{paramAt, paramPos, paramZone, paramSpan, "did"} {
		query.Del(key)
	}
	return query
}

// place makes a request one about the moment that the page shows. A method that
// knows only the present is refused.
func (p *past) place(request proto.Message) (proto.Message, error) {
	field := request.ProtoReflect().Descriptor().Fields().ByName("moment")
	if field == nil {
		return nil, errOnlyNow
	}
	out := proto.Clone(request)
	out.ProtoReflect().Set(field, protoreflect.ValueOfMessage(p.moment.ProtoReflect()))
	return out, nil
}

// learn takes the instant of a moment from an answer about it.
func (p *past) learn(reply proto.Message) {
	if told, ok := reply.(interface{ GetNow() int64 }); ok && p.now == 0 {
		p.now = told.GetNow()
	}
}

// hasPast tells which pages can show a moment.
func hasPast(page string) bool {
	return slices.Contains(
		[]string{"now", "queue", "job", "nodes", "node", "people", "cluster", "gpus", "problem"},
		page,
	)
}

// pastBar is what a page has to choose and change the moment.
type pastBar struct {
	Path    string
	Keep    []param // of the address, which forms must carry on
	Active  bool
	Word    string
	At      moment
	Seconds int64
	Ago     string
	Present string // link to the same page of now
	From    int64  // of the slider, seconds since 1970
	To      int64
	Step    int64
	FromAt  moment
	Spans   []tab
	Steps   []tab
}

type param struct{ Name, Value string }

// spans are how much time the slider can cover; 0 = all that is known.
var spans = [...]struct {
	name    string
	seconds int64
}{{"hour", 3600}, {"day", 86400}, {"week", 7 * 86400}, {"month", 31 * 86400}, {"all", 0}}

// steps are the links to moments before and after.
var steps = [...]struct {
	name    string
	seconds int64
}{{"−1 day", -86400}, {"−1 h", -3600}, {"−5 min", -300}, {"−10 s", -10}, {"+10 s", 10}, {"+5 min", 300}, {"+1 h", 3600}, {"+1 day", 86400}}

// slots is how many places the slider has for a key to move it by one.
const slots = 360

// barOf is the bar of a page.
func (v *visit) barOf(page string) *pastBar {
	if v.console == nil || v.Method != http.MethodGet || !hasPast(page) {
		return nil
	}
	bar := &pastBar{Path: v.URL.Path, Present: v.linkWithout()}
	for name, values := range v.ownQuery() {
		for _, value := range values {
			bar.Keep = append(bar.Keep, param{name, value})
		}
	}
	slices.SortFunc(bar.Keep, func(a, b param) int { return cmp.Compare(a.Name, b.Name) })
	if v.past == nil {
		return bar
	}
	bar.Active = true
	bar.Word = v.past.word
	if v.past.now == 0 {
		return bar // refused: there is no time to show
	}
	now := time.Now().Unix()
	bar.Seconds = v.past.now / tool.Second
	bar.At = newMoment(v.past.now)
	bar.Ago = render.Span((now - bar.Seconds) * tool.Second)
	first := v.fillSlider(bar, now)
	for _, s := range steps {
		if at := bar.Seconds + s.seconds; at > first && at < now {
			bar.Steps = append(bar.Steps, tab{Name: s.name, Link: v.linkAt(at)})
		}
	}
	return bar
}

// fillSlider sets what the slider covers: what the reader chose, or else the
// least that has the moment in it. It ends now. first is the first second that is
// known.
func (v *visit) fillSlider(bar *pastBar, now int64) (first int64) {
	first = v.pastFrom() / tool.Second
	if first == 0 || first > bar.Seconds {
		first = min(now-spans[3].seconds, bar.Seconds)
	}
	chosen := v.URL.Query().Get(paramSpan)
	for _, s := range spans {
		from := now - s.seconds
		if s.seconds == 0 || from < first {
			from = first
		}
		if chosen == "" && from <= bar.Seconds {
			chosen = s.name
		}
		q := v.URL.Query()
		q.Set(paramSpan, s.name)
		bar.Spans = append(bar.Spans, tab{Name: s.name, Link: v.URL.EscapedPath() + "?" +
			q.Encode(), Chosen: s.name == chosen})
		if s.name == chosen {
			bar.From = min(from, bar.Seconds)
		}
	}
	if bar.From == 0 {
		bar.From = first // a word that is no span
	}
	bar.To = now
	bar.Step = max((bar.To-bar.From)/slots, 1)
	bar.FromAt = newMoment(bar.From * tool.Second)
	return first
}

// pastFrom is the first moment that is known; 0 = the controller does not say.
func (v *visit) pastFrom() int64 {
	message, err := v.console.cfg.API.Call(v.Context(), v.id, tool.MethodDiag, &apiv1.DiagRequest{})
	if err != nil {
		return 0
	}
	diag, ok := message.(*apiv1.DiagReply)
	if !ok {
		return 0
	}
	return diag.GetPastFrom()
}

// ownLinks finds links to pages of the console. A template writes a quotation mark
// of a name as &#34;, so that only attributes match.
var ownLinks = regexp.MustCompile(`(data-present )?(href|data-src)="(/[^"]*)"`)

// showsPast tells a path that can show a moment.
func showsPast(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	switch path {
	case "/", "/queue", "/nodes", "/gpus", "/people", "/cluster":
		return true
	}
	return strings.HasPrefix(path, "/job/") || strings.HasPrefix(path, "/node/")
}

// keepMoment makes the links within a page of the past lead to the same moment.
// The link to now, and those that choose a moment, stay as they are.
func (p *past) keepMoment(page []byte) []byte {
	word := paramAt + "=" + url.QueryEscape(p.word)
	return ownLinks.ReplaceAllFunc(page, func(link []byte) []byte {
		parts := ownLinks.FindSubmatch(link)
		address := string(parts[3])
		if len(parts[1]) > 0 || !showsPast(address) || strings.Contains(address, paramAt+"=") {
			return link
		}
		joint := "?"
		if strings.Contains(address, "?") {
			joint = "&amp;"
		}
		return []byte(string(parts[2]) + `="` + address + joint + word + `"`)
	})
}

// isUnknownMoment tells that a moment is not known, or that what was typed is none.
func isUnknownMoment(err error) bool {
	var refused *spec.Error
	return errors.As(err, &refused) && refused.Kind == spec.CodeInvalidTime
}
