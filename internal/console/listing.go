package console

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// Lists of all jobs and all nodes are what most pages begin with, and open pages
// read themselves again at the same moment. Those who may see the same share
// what was made for the first of them. What is shared is never older than what
// open pages have been told of: live tells them at most once a second, so that two
// hundred pages of a busy cluster ask for one list a second. Lists of the past are
// not kept: there are as many as moments.

// maxAge is how long something is shared where nothing happens.
const maxAge = 5 * time.Second

// maxLists bounds the lists that are kept.
const maxLists = 256

type lists struct {
	mu   sync.Mutex
	kept map[string]*list
}

// list is an answer that is shared. The first who asks for it makes it, and
// holds mu while it does.
type list struct {
	mu   sync.Mutex
	made time.Time
	seq  uint64 // it holds everything up to this event
	jobs *apiv1.ListJobsReply
	node *apiv1.ListNodesReply
	page []byte // compressed
}

// current tells whether a list will do for a visitor.
func (l *list) current(v *visit) bool {
	told, _, _ := v.console.live.currentPosition()
	return !l.made.IsZero() && !v.fresh && l.seq >= told && time.Since(l.made) < maxAge
}

// begin notes from when on a list holds everything, before it is made.
func (l *list) begin(v *visit) {
	l.seq, _ = v.console.cfg.Changed()
	l.made = time.Now()
}

func newLists() *lists { return &lists{kept: map[string]*list{}} }

// find is the list of a key; old ones go.
func (l *lists) find(key string) *list {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.kept[key]; one != nil {
		return one
	}
	if len(l.kept) >= maxLists {
		clear(l.kept)
	}
	one := &list{}
	l.kept[key] = one
	return one
}

// sharedKey is the key under which a visitor's list of what may be private is
// kept: his own where it is private from him.
func (v *visit) sharedKey(what, word string) string {
	if slices.Contains(v.console.cfg.Private(identity.With(v.Context(), v.id)), word) {
		return what + " of " + v.id.Key()
	}
	return what
}

// listJobs lists the jobs that the visitor may see: those that are not over, or all
// that the controller still remembers.
func (v *visit) listJobs(all bool) (*apiv1.ListJobsReply, error) {
	request := &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: all}}
	if v.past != nil || v.console.cfg.Door.Admit(v.id, tool.MethodListJobs) != nil {
		return callAPI[*apiv1.ListJobsReply](
			v,
			tool.MethodListJobs,
			request,
		) // who may not is told why
	}
	what := "jobs"
	if all {
		what = "all jobs"
	}
	one := v.console.lists.find(v.sharedKey(what, "jobs"))
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.current(v) {
		return one.jobs, nil
	}
	one.begin(v)
	reply, err := callAPI[*apiv1.ListJobsReply](v, tool.MethodListJobs, request)
	if err != nil {
		one.made = time.Time{}
		return nil, err
	}
	one.jobs = reply
	return reply, nil
}

// listNodes lists the nodes that the visitor may see.
func (v *visit) listNodes() (*apiv1.ListNodesReply, error) {
	if v.past != nil || v.console.cfg.Door.Admit(v.id, tool.MethodListNodes) != nil {
		return callAPI[*apiv1.ListNodesReply](v, tool.MethodListNodes, &apiv1.ListNodesRequest{})
	}
	one := v.console.lists.find(v.sharedKey("nodes", "nodes"))
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.current(v) {
		return one.node, nil
	}
	one.begin(v)
	reply, err := callAPI[*apiv1.ListNodesReply](v, tool.MethodListNodes, &apiv1.ListNodesRequest{})
	if err != nil {
		one.made = time.Time{}
		return nil, err
	}
	one.node = reply
	return reply, nil
}

// sharedPage is what an open page gets when it reads itself again: the page
// without its frame, which is the same for all who have the same role, may see
// the same and did not ask for what is their own.
func (c *Console) sharedPage(v *visit, f func(v *visit) (answer, error)) ([]byte, error) {
	key := v.URL.RequestURI() + " as " + c.cfg.Door.Role(v.id).String() + ", " +
		v.sharedKey("jobs", "jobs") + ", " + v.sharedKey("nodes", "nodes")
	if strings.Contains(v.URL.Query().Get("q"), mine) {
		key += " of " + v.id.Key()
	}
	key += v.alertsKey()
	one := c.lists.find(key)
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.current(v) {
		return one.page, nil
	}
	one.begin(v)
	one.page = nil
	out, err := f(v)
	if err == nil {
		one.page, err = c.renderLive(v, out)
	}
	if err != nil {
		one.made = time.Time{}
	}
	return one.page, err
}

// renderLive writes a page without its frame, compressed.
func (c *Console) renderLive(v *visit, out answer) ([]byte, error) {
	var text, packed bytes.Buffer
	if err := c.pages[out.page].ExecuteTemplate(&text, "live", c.newFrame(v, out)); err != nil {
		return nil, err
	}
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text.Bytes()); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
