package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// What a job writes is shown to its owner as it comes. The part of the page has the
// end of the file, and the script goes on from there with server-sent events; each
// second the job's node is asked for what has been added. It is text, whatever
// the job writes.

const (
	outputEvery  = time.Second // between two questions to the node
	firstOutput  = 16 << 10    // bytes of the end that a page begins with
	maxFollowing = 12 * time.Hour
)

// outputData is what the page of a job's output shows.
type outputData struct {
	ID, Path, Node string
	Text           string
	Cut            bool   // the file is longer than Text
	Problem        string // why nothing can be read
	Err            bool   // the error output is shown
	Other          string // link to the other file; empty: both are one
	Next           string // where the events come from; empty: the job has ended
	Self           string // where this part is
}

// mayReadOutput tells whether a visitor is offered the output of a job. The
// controller decides it again.
func (v *visit) mayReadOutput(job *apiv1.JobInfo) bool {
	return v.past == nil && !job.GetSpec().GetShell() && job.GetStart() > 0 &&
		spec.JobState(job.GetState()) != spec.Pending &&
		v.id.Kind != identity.Anonymous && v.id.UID == job.GetUserId() &&
		v.console.cfg.Door.Admit(v.id, tool.MethodReadOutput) == nil
}

// outputLink is the address of a job's output.
func outputLink(id, what string, wantErr bool, from int64) string {
	link := "/job/" + id + "/output" + what
	var query []string
	if wantErr {
		query = append(query, "err=1")
	}
	if from >= 0 {
		query = append(query, "from="+strconv.FormatInt(from, 10))
	}
	if len(query) == 0 {
		return link
	}
	return link + "?" + strings.Join(query, "&")
}

// outputPart is the end of what a job has written.
func (c *Console) outputPart(v *visit) (answer, error) {
	id := v.PathValue("id")
	if !tool.ValidTarget(id) {
		return answer{}, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	wantErr := v.URL.Query().Get("err") != ""
	data := outputData{ID: id, Err: wantErr, Self: outputLink(id, "", wantErr, -1)}
	reply, err := callAPI[*apiv1.ReadOutputReply](
		v,
		tool.MethodReadOutput,
		&apiv1.ReadOutputRequest{Job: id, Err: wantErr, From: -1, Most: firstOutput},
	)
	if err != nil {
		data.Problem = refusalText(err)
		if tool.ExplainError(err).Code == spec.CodeNothingFound {
			data.Next = outputLink(id, "/live", wantErr, 0) // the file may come
		}
	} else {
		data.Path, data.Node = render.Clean(reply.GetPath()), render.Clean(reply.GetNode())
		whole := wholeRunes(reply)
		data.Text = outputText(whole)
		data.Cut = reply.GetFrom() > 0
		if data.Cut {
			_, rest, found := strings.Cut(data.Text, "\n")
			if found {
				data.Text = rest // the first line is a part of one
			}
		}
		if !reply.GetOver() {
			next := reply.GetFrom() + int64(len(whole))
			data.Next = outputLink(id, "/live", wantErr, next)
		}
	}
	if v.writesErrors(id) {
		data.Other = outputLink(id, "", !wantErr, -1)
	}
	return answer{
		page:  "job-output",
		title: "Output of job " + id,
		bare:  v.Header.Get("X-Console") != "",
		data:  data,
	}, nil
}

// refusalText is why something was refused, in words for the person who asked.
func refusalText(err error) string {
	why := tool.ExplainError(err)
	return render.Clean(cmp.Or(why.Detail, why.Text))
}

// outputText is what a job wrote as text. A carriage return, with which programs
// write a line again, begins a new one here.
func outputText(data []byte) string {
	return shown(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)))
}

// wholeRunes leaves out the beginning of a character whose end is not written yet,
// or comes with the next answer.
func wholeRunes(reply *apiv1.ReadOutputReply) []byte {
	data := reply.GetData()
	atEnd := reply.GetFrom()+int64(len(data)) >= reply.GetSize()
	if atEnd && reply.GetOver() {
		return data
	}
	for back := 1; back < utf8.UTFMax && back <= len(data); back++ {
		first := data[len(data)-back]
		if utf8.RuneStart(first) {
			if first >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-back:]) {
				return data[:len(data)-back]
			}
			return data
		}
	}
	return data
}

// writesErrors tells whether a job has a file of its own for errors.
func (v *visit) writesErrors(id string) bool {
	reply, err := callAPI[*apiv1.ListJobsReply](
		v,
		tool.MethodListJobs,
		&apiv1.ListJobsRequest{
			Filter: &apiv1.JobFilter{Jobs: []string{id}, AllStates: true},
			Detail: true,
		},
	)
	return err == nil && len(reply.GetJobs()) > 0 && reply.GetJobs()[0].GetSpec().GetStderr() != ""
}

// outputEvent is what the script gets with each event.
type outputEvent struct {
	Text  string `json:"text,omitempty"`
	Next  int64  `json:"next"`            // where the file goes on
	Again bool   `json:"again,omitempty"` // the file was truncated: what is shown is no more
	Over  bool   `json:"over,omitempty"`  // there will be no more
	Wait  string `json:"wait,omitempty"`  // why nothing comes
}

// serveOutput sends what a job writes, from a place of its file on, as
// server-sent events. The stream ends with the job, with the visitor's token, and
// when the page is closed; it counts among the open pages of the visitor.
func (c *Console) serveOutput(writer http.ResponseWriter, request *http.Request) {
	v, err := c.identifyVisitor(request)
	if err != nil {
		http.Error(writer, "sign in first", http.StatusUnauthorized)
		return
	}
	id := v.PathValue("id")
	from, err := strconv.ParseInt(v.URL.Query().Get("from"), 10, 64)
	if !tool.ValidTarget(id) || err != nil || from < 0 {
		http.Error(writer, "expected a job, and from=, a place in its file", http.StatusBadRequest)
		return
	}
	key := v.id.Key()
	if !c.live.enter(key) {
		http.Error(
			writer,
			fmt.Sprintf("you have %d pages open already", maxStreams),
			http.StatusTooManyRequests,
		)
		return
	}
	defer c.live.leave(key)
	writer.Header().Set("Content-Type", "text/event-stream")
	writer.Header().Set("Cache-Control", "no-store")
	writer.Header().Set("X-Accel-Buffering", "no")
	// A browser that connects again says how far it has come.
	if last, err := strconv.ParseInt(request.Header.Get("Last-Event-Id"), 10, 64); err == nil &&
		last >= 0 {
		from = last
	}
	c.followOutput(writer, v, &apiv1.ReadOutputRequest{
		Job:  id,
		Err:  v.URL.Query().Get("err") != "",
		From: from,
	})
}

// followOutput asks the node each second and hands on what is new.
func (c *Console) followOutput(
	writer http.ResponseWriter, v *visit, request *apiv1.ReadOutputRequest,
) {
	control := http.NewResponseController(writer)
	send := func(event outputEvent) bool {
		event.Next = request.From
		data, err := json.Marshal(event)
		if err != nil {
			return false
		}
		_, err = fmt.Fprintf(writer, "id: %d\ndata: %s\n\n", request.From, data)
		return err == nil && control.Flush() == nil
	}
	ticker := time.NewTicker(outputEvery)
	defer ticker.Stop()
	until := time.Now().Add(maxFollowing)
	heard, waiting := time.Now(), ""
	for time.Now().Before(until) {
		if _, _, ended := c.live.currentPosition(); ended {
			return
		}
		if _, err := c.identifyVisitor(v.Request); err != nil {
			return
		}
		event, more, final := c.nextOutput(v, request)
		quiet := event.Text == "" && !event.Again && !event.Over && event.Wait == waiting
		switch {
		case quiet && time.Since(heard) < beat:
		case quiet:
			if _, err := fmt.Fprint(writer, ": open\n\n"); err != nil || control.Flush() != nil {
				return
			}
			heard = time.Now()
		default:
			if !send(event) {
				return
			}
			heard = time.Now()
		}
		waiting = event.Wait
		if final {
			return
		}
		if more {
			continue
		}
		select {
		case <-ticker.C:
		case <-v.Context().Done():
			return
		}
	}
}

// nextOutput asks once and moves the request on. more tells that the file goes on
// behind the answer, and final that nothing else will come.
func (c *Console) nextOutput(
	v *visit,
	request *apiv1.ReadOutputRequest,
) (event outputEvent, more, final bool) {
	reply, err := callAPI[*apiv1.ReadOutputReply](v, tool.MethodReadOutput, request)
	if err != nil {
		event.Wait = refusalText(err)
		switch tool.ExplainError(err).Code {
		case spec.CodeAccessDenied, spec.CodeInvalidJobID, spec.CodeNoScript:
			event.Over = true
		}
		return event, false, event.Over
	}
	if request.From > reply.GetSize() {
		request.From = 0
		return outputEvent{Again: true}, true, false
	}
	whole := wholeRunes(reply)
	event.Text = outputText(whole)
	request.From = reply.GetFrom() + int64(len(whole))
	more = request.From < reply.GetSize() && len(whole) > 0
	event.Over = !more && reply.GetOver()
	return event, more, event.Over
}
