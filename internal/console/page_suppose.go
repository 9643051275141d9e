package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/suppose"
	"github.com/musterhpc/muster/cli/tool"
)

// What a page of suppositions takes and shows.
const (
	maxSupposeText = 4 << 10
	maxSupposeRows = 200
)

// supposeData is what the page of suppositions shows.
type supposeData struct {
	Lines    string // the commands, as typed
	Wrong    string
	Notes    []string
	Answered bool
	Rows     []supposedLine
	More     int
	Summary  []string // sentences
	Command  string   // the line that asks the same in a shell
	Examples []supposeExample
}

// supposeExample is the form of a question.
type supposeExample struct{ About, Line string }

// supposedLine is a job whose outlook differs.
type supposedLine struct {
	ID, Link, Name, User, Partition string
	Before, After                   outlookCell
	Change, Class, Nodes            string
}

// outlookCell is what becomes of a job: a point in time, or words.
type outlookCell struct {
	At   *moment
	Text string
}

// supposeLink is the address of the page with a question.
func supposeLink(lines string) string {
	return "/what-if?" + url.Values{"c": {lines}}.Encode()
}

// supposeExamples are questions to begin with.
func supposeExamples() []supposeExample {
	return []supposeExample{
		{"Four more nodes like one that there is", "add 4 nodes like node1"},
		{"A node is drained", "scontrol update nodename=node1 state=drain reason=service"},
		{"Each user gets at most 8 GPUs", "sacctmgr modify qos normal set maxtrespu=gres/gpu=8"},
		{"A job goes to the front", "scontrol top 1234"},
	}
}

// supposePage shows what the commands in the address would do. It changes nothing, so
// that its address is a link to the question.
func (c *Console) supposePage(v *visit) (answer, error) {
	data := supposeData{
		Lines:    strings.TrimSpace(v.URL.Query().Get("c")),
		Examples: supposeExamples(),
	}
	out := answer{page: "what-if", title: "What if"}
	if data.Lines == "" {
		out.data = data
		return out, nil
	}
	reply, err := c.askSuppose(v, data.Lines)
	if err != nil {
		explained := tool.ExplainError(err)
		data.Wrong = render.Clean(joinDetail(explained.Detail, explained.Text))
		out.status = http.StatusBadRequest
	} else {
		data.answer(reply)
	}
	data.Command = "muster suppose"
	for line := range strings.Lines(data.Lines) {
		if line = strings.TrimSpace(line); line != "" {
			data.Command += " " + shellQuoted(line)
		}
	}
	out.data = data
	return out, nil
}

// joinDetail is a refusal in one line: what it is about, and why.
func joinDetail(detail, text string) string {
	if detail == "" || detail == text {
		return text
	}
	return detail + ": " + text
}

// askSuppose reads the commands and asks as the visitor.
func (c *Console) askSuppose(v *visit, lines string) (*apiv1.SupposeReply, error) {
	if v.past != nil {
		return nil, errors.New("what would be is asked of the present")
	}
	if len(lines) > maxSupposeText {
		return nil, fmt.Errorf("the commands are longer than %d bytes", maxSupposeText)
	}
	done, err := c.asking.take(v.id.Key())
	if err != nil {
		return nil, err
	}
	defer done()
	env := v.commandEnv()
	request := &apiv1.SupposeRequest{}
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		changes, err := suppose.CollectTyped(v.Context(), env, line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		request.Changes = append(request.Changes, changes...)
	}
	reply, err := callAPI[*apiv1.SupposeReply](v, tool.MethodSuppose, request)
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(reply), nil
}

// answer fills in what the page shows of a reply.
func (d *supposeData) answer(reply *apiv1.SupposeReply) {
	d.Answered = true
	for _, note := range reply.GetNotes() {
		d.Notes = append(d.Notes, render.Clean(note))
	}
	jobs := reply.GetJobs()
	suppose.Sort(jobs)
	d.More = max(0, len(jobs)-maxSupposeRows)
	for _, job := range jobs[:min(len(jobs), maxSupposeRows)] {
		d.Rows = append(d.Rows, newSupposedLine(job))
	}
	d.Summary = strings.Split(suppose.Summary(reply), "\n")
}

func newSupposedLine(job *apiv1.SupposedJob) supposedLine {
	line := supposedLine{
		ID:        job.GetJob(),
		Name:      render.Clean(job.GetName()),
		User:      render.Clean(job.GetUser()),
		Partition: render.Clean(job.GetPartition()),
		Before:    newOutlookCell(job.GetBefore()),
		After:     newOutlookCell(job.GetAfter()),
		Change:    suppose.Difference(job),
		Class:     "bad",
		Nodes:     job.GetAfter().GetNodes(),
	}
	if job.GetBefore().GetStanding() != apiv1.Outlook_ABSENT {
		line.Link = fmt.Sprintf("/job/%d", job.GetJobId())
	}
	delay, known := suppose.Delay(job)
	gains := job.GetBefore().GetStanding() == apiv1.Outlook_WAITING
	switch {
	case known && delay < 0, gains:
		line.Class = "ok"
	case job.GetBefore().GetStanding() == apiv1.Outlook_ABSENT:
		line.Class = ""
	}
	return line
}

func newOutlookCell(outlook *apiv1.Outlook) outlookCell {
	if outlook.GetStanding() == apiv1.Outlook_PLANNED {
		at := newMoment(outlook.GetStart())
		return outlookCell{At: &at}
	}
	return outlookCell{Text: suppose.Standing(render.Clock{}, outlook)}
}

// commandEnv is what a command sees of the world when it runs for a visitor: nothing
// of this process's own.
func (v *visit) commandEnv() *tool.Env {
	conn := tool.Within{Do: v.call, Follow: v.follow}
	return &tool.Env{
		Stdin:    strings.NewReader(""),
		Stdout:   io.Discard,
		Stderr:   io.Discard,
		Dir:      "/",
		UID:      v.id.UID,
		Version:  v.console.cfg.Version,
		Loc:      time.Local,
		Now:      time.Now,
		Dial:     func(context.Context) (tool.Conn, error) { return conn, nil },
		Terminal: func(any) bool { return false },
		Pause:    tool.Pause,
		UserName: tool.UserName,
		UserID:   tool.LookupUID,
		FullName: tool.FullName,
		Umask:    func() uint32 { return 0o22 },
	}
}

// call makes one call of the API as the visitor.
func (v *visit) call(ctx context.Context, method string, request, resp proto.Message) error {
	got, err := v.console.cfg.API.Call(ctx, v.id, method, request)
	if err != nil {
		return err
	}
	proto.Merge(resp, got)
	return nil
}

// follow makes a call that is answered by several messages, and reads them all at once.
func (v *visit) follow(
	ctx context.Context,
	method string,
	request proto.Message,
) (tool.Receiver, error) {
	read := &readStream{}
	keep := func(m proto.Message) error {
		read.messages = append(read.messages, proto.Clone(m))
		return nil
	}
	return read, v.console.cfg.Stream(ctx, v.id, method, request, keep)
}

// readStream gives messages that were read before.
type readStream struct{ messages []proto.Message }

// Recv implements tool.Receiver.
func (r *readStream) Recv(resp proto.Message) error {
	if len(r.messages) == 0 {
		return io.EOF
	}
	proto.Merge(resp, r.messages[0])
	r.messages = r.messages[1:]
	return nil
}

// Close implements tool.Receiver.
func (*readStream) Close() {}
