package console

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// maxNodeEvents is how many events of a node its page shows: the newest ones.
const maxNodeEvents = 100

// nodeEventWindows are the spans that a reader can choose, the first without asking.
func nodeEventWindows() []eventWindow {
	return []eventWindow{
		{Name: "2 h", Word: "2hours", Span: 2 * time.Hour},
		{Name: "1 d", Word: "1day", Span: 24 * time.Hour},
		{Name: "7 d", Word: "7days", Span: 7 * 24 * time.Hour},
	}
}

type eventWindow struct {
	Name, Word, Link string
	Span             time.Duration
	Chosen           bool
}

// nodeEventsData is what happened on a node. It is a part of the node's page that is loaded
// after it: the ledger is read for it, as by muster events.
type nodeEventsData struct {
	Windows []eventWindow
	Rows    []nodeEvent
	More    int
	Command string
}

type nodeEvent struct {
	At              moment
	Kind, Facts, By string
	Job, Link, User string
}

// nodeEventsLink is the address of the part, as of the moment that the page shows.
func (v *visit) nodeEventsLink(node string, now int64) string {
	query := url.Values{}
	if word := v.URL.Query().Get("events"); word != "" {
		query.Set("window", word)
	}
	if v.past != nil {
		query.Set("until", time.Unix(0, now).UTC().Format(time.RFC3339))
	}
	link := "/node/" + url.PathEscape(node) + "/events"
	if len(query) > 0 {
		link += "?" + query.Encode()
	}
	return link
}

// nodeEventsPart shows what happened on a node, newest first.
func (c *Console) nodeEventsPart(v *visit) (answer, error) {
	name := v.PathValue("name")
	query := v.URL.Query()
	until := time.Now()
	past := query.Get("until")
	if past != "" {
		at, err := time.Parse(time.RFC3339, past)
		if err != nil {
			return answer{}, spec.Refuse(spec.CodeBadRequest, "until is a time as 2026-11-23T09:30:05Z")
		}
		until = at
	}
	windows := nodeEventWindows()
	chosen := 0
	for i := range windows {
		if windows[i].Word == query.Get("window") {
			chosen = i
		}
		link := url.Values{"events": {windows[i].Word}}
		if past != "" {
			link.Set("at", past)
		}
		windows[i].Link = "/node/" + url.PathEscape(name) + "?" + link.Encode()
	}
	windows[chosen].Chosen = true
	since := until.Add(-windows[chosen].Span)
	data := nodeEventsData{Windows: windows}
	data.Command = "muster events -w " + render.Clean(name) + " -S now-" + windows[chosen].Word
	if past != "" {
		const form = "2006-01-02T15:04:05"
		data.Command = fmt.Sprintf("muster events -w %s -S %s -E %s",
			render.Clean(name), since.Local().Format(form), until.Local().Format(form))
	}
	ctx, cancel := context.WithCancel(v.Context())
	defer cancel()
	// A second later than the moment: its own last event belongs to it.
	request := &apiv1.EventsRequest{
		Nodes: []string{name},
		Since: since.UnixNano(),
		Until: until.Add(time.Second).UnixNano(),
	}
	err := c.cfg.Stream(ctx, v.id, tool.MethodEvents, request, func(m proto.Message) error {
		reply, ok := m.(*apiv1.EventsReply)
		if !ok {
			return fmt.Errorf("BUG: %s answered with %T", tool.MethodEvents, m)
		}
		data.add(reply.GetEvents())
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	slices.Reverse(data.Rows) // the newest event first
	return answer{page: "node-events", bare: true, data: data}, nil
}

// add takes events in the order in which they happened, and forgets the oldest ones.
func (d *nodeEventsData) add(events []*apiv1.EventInfo) {
	clock := render.Clock{Loc: time.Local}
	for _, entry := range events {
		by := entry.GetActorKind()
		if entry.GetActor() != "" {
			by += ":" + entry.GetActor()
		}
		row := nodeEvent{
			At:    newMoment(entry.GetAt()),
			Kind:  render.Clean(entry.GetKind()),
			Facts: render.Clean(strings.TrimSpace(string(render.EventFields(clock, nil, entry)))),
			By:    render.Clean(by),
		}
		if entry.GetJobId() != 0 {
			row.Job = render.Clean(entry.GetJob())
			row.Link = fmt.Sprintf("/job/%d", entry.GetJobId())
			row.User = render.Clean(entry.GetUser())
		}
		d.Rows = append(d.Rows, row)
	}
	if over := len(d.Rows) - maxNodeEvents; over > 0 {
		d.More += over
		d.Rows = append([]nodeEvent(nil), d.Rows[over:]...)
	}
}
