package top

import (
	"cmp"
	"strings"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// Top is the row of `muster top`.
func Top() *tool.Command {
	return &tool.Command{
		Name: "top", Summary: "show the queue, nodes and GPUs on a full screen that updates itself", Usage: []string{"[OPTIONS] [FILTER...]"},
		About: `The screen follows the events of the cluster and is read again when something has happened, at most once in the interval. ? lists the keys: / filters, s sorts, Enter opens a job with the figures of its GPUs over time, w explains why it waits, c cancels it after a question. [ and ] go back and forward in time, t to a moment, n to the present. A filter is words, or keys such as user:alice, state:pending, reason:priority and is:held; docs/console.md lists them.`,
		Mixed: true,
		Options: []opt.Option{
			{
				Long:  "interval",
				Short: "i",
				Arg:   "<seconds>",
				Help:  "shortest time between two refreshes in seconds (default: 2)",
			},
			{Long: "me", Help: "begin with the jobs of this user"},
		},
		Env: []tool.Variable{{Name: "NO_COLOR", Help: "disable colours"}},
		Example: []tool.Example{
			{Line: "muster top", What: "watches the cluster"},
			{Line: "muster top --me state:pending", What: "watches your jobs that wait"},
		},
		Run: run,
	}
}

func run(call *tool.Call) error {
	every := int64(2)
	if text := call.Opts.Text("interval"); text != "" {
		n, ok := tool.PositiveNumber(text)
		if !ok {
			return call.Errorf("--interval=%s: expected a number of seconds", text)
		}
		every = n
	}
	if !call.Terminal(call.Stdout) || !call.Terminal(call.Stdin) {
		return call.Errorf("needs a terminal: squeue and sinfo print to files and pipes")
	}
	m := newModel(call.Env, call.UserName(call.UID))
	m.colour = call.Getenv("NO_COLOR") == ""
	m.bars, _ = render.BarLevels(call)
	m.mine, m.filter = call.Opts.On("me"), strings.Join(call.Operands, " ")
	s := &session{call: call, model: m, every: time.Duration(every) * time.Second}
	// What cannot be read at all is an error before the screen is taken.
	first := s.readLists(true)
	if first.err != nil {
		return first.err
	}
	s.take(first)
	_, err := tea.NewProgram(s, tea.WithAltScreen(), tea.WithContext(call.Ctx)).Run()
	s.events.close()
	return err
}

// session joins the model with the terminal, by way of bubbletea, and with the
// controller.
type session struct {
	call    *tool.Call
	model   *model
	every   time.Duration
	reading bool
	follower
	shown time.Time // when what is on the screen was read

	mu  sync.Mutex // one call at a time: a Call dials once
	seq uint64     // of the lists that are shown
	at  time.Time  // when they were read
}

// lists are what was read.
type lists struct {
	same   bool // nothing has happened since the last ones
	moment *apiv1.Moment
	jobs   *apiv1.ListJobsReply
	nodes  *apiv1.ListNodesReply
	name   string
	err    error
}

// told is a text to show.
type told struct {
	detail  *detail
	message string
	again   bool // the lists have changed
}

type tick struct{}

// Init implements tea.Model.
func (s *session) Init() tea.Cmd { return tea.Batch(s.wait(), s.followEvents()) }

func (s *session) wait() tea.Cmd {
	return tea.Tick(s.every, func(time.Time) tea.Msg { return tick{} })
}

// Update implements tea.Model.
func (s *session) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := message.(type) {
	case tea.WindowSizeMsg:
		s.model.width, s.model.height = max(msg.Width, 20), max(msg.Height, 6)
	case tea.KeyMsg:
		return s, s.press(msg)
	case tick:
		if s.model.paused || s.model.wanted != nil {
			return s, s.wait() // the past stays as it is
		}
		return s, tea.Batch(s.refreshLists(), s.wait())
	case moved:
		return s, s.hear(msg)
	case lists:
		s.take(msg)
		if s.model.wanted != s.model.moment && s.model.wanted != msg.moment {
			return s, s.startReading(false) // keys have asked for another moment meanwhile
		}
	case told:
		if msg.detail != nil {
			s.model.detail = msg.detail
		}
		s.model.message = msg.message
		if msg.again {
			return s, s.startReading(false)
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s *session) View() string { return s.model.drawScreen() }

// press takes a message of keys. Several keys that arrive together, as of a key that is held
// down, are one message with all of their runes. Pasted text is text, never keys.
func (s *session) press(message tea.KeyMsg) tea.Cmd {
	if message.Paste && !s.model.typing && !s.model.dating {
		return nil
	}
	if message.Type != tea.KeyRunes || message.Alt {
		return s.do(s.model.handleKey(message.String()))
	}
	var all []tea.Cmd
	for _, r := range message.Runes {
		all = append(all, s.do(s.model.handleKey(string(r))))
	}
	return tea.Batch(all...)
}

// do carries out what a key asked for.
func (s *session) do(e effect) tea.Cmd {
	switch {
	case e.quit:
		return tea.Quit
	case e.travel:
		s.model.message = "reading…"
		return s.startReading(true)
	case e.fetch:
		return s.startReading(true)
	case e.open != "":
		moment := s.model.moment
		return func() tea.Msg { return s.open(e.open, moment) }
	case e.why != "":
		moment := s.model.moment
		return func() tea.Msg { return s.why(e.why, moment) }
	case e.verb != "":
		return func() tea.Msg { return s.change(e) }
	}
	return nil
}

// startReading reads the lists unless that is being done. Anew does so even where nothing has
// happened, as does the way back from the past.
func (s *session) startReading(anew bool) tea.Cmd {
	if s.reading {
		return nil
	}
	s.reading = true
	moment := s.model.wanted
	anew = anew || s.model.moment != nil
	return func() tea.Msg {
		if moment != nil {
			return s.readPast(moment)
		}
		return s.readLists(anew)
	}
}

// readPast reads the lists of a moment.
func (s *session) readPast(moment *apiv1.Moment) lists {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := lists{moment: moment, name: s.model.cluster}
	out.jobs, out.nodes, out.err = s.fetchLists(moment)
	return out
}

// fetchLists asks for jobs and nodes; without a moment for those of now.
func (s *session) fetchLists(
	moment *apiv1.Moment,
) (*apiv1.ListJobsReply, *apiv1.ListNodesReply, error) {
	jobs := &apiv1.ListJobsReply{}
	request := &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: true}, Moment: moment}
	if err := fetch.Jobs(s.call, request, jobs); err != nil {
		return nil, nil, err
	}
	nodes := &apiv1.ListNodesReply{}
	err := s.call.RPC(tool.MethodListNodes, &apiv1.ListNodesRequest{Moment: moment}, nodes)
	return jobs, nodes, err
}

// oldest is how old lists may become where nothing happens: times go on.
const oldest = 10 * time.Second

// readLists asks first whether anything has happened, unless they are read anew: an idle
// cluster costs a ping.
func (s *session) readLists(anew bool) lists {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ping apiv1.PingReply
	if err := s.call.RPC(tool.MethodPing, &apiv1.PingRequest{}, &ping); err != nil {
		if fetch.ControllerGone(err) {
			s.call.Conn, s.call.Past = nil, nil // dial again
		}
		return lists{err: err}
	}
	if !anew && ping.GetSeq() == s.seq && time.Since(s.at) < oldest {
		return lists{same: true}
	}
	out := lists{name: ping.GetCluster()}
	out.jobs, out.nodes, out.err = s.fetchLists(nil)
	if out.err == nil {
		s.seq, s.at = out.jobs.GetSeq(), time.Now()
	}
	return out
}

// take shows what was read.
func (s *session) take(l lists) {
	s.reading = false
	if l.err != nil && l.moment != nil {
		// The screen stays at the moment that it shows.
		if s.model.wanted == l.moment {
			s.model.wanted = s.model.moment
		}
		s.model.message = refusal(l.err).message
		return
	}
	if l.err != nil {
		s.model.fault = tool.ExplainError(l.err).Text
		s.behind = true
		return
	}
	s.model.fault = ""
	if l.moment != nil || s.model.moment != nil {
		s.model.message = ""
	}
	s.shown = time.Now()
	if !l.same {
		s.model.jobs = l.jobs
		s.model.nodes = l.nodes
		s.model.cluster = l.name
		s.model.moment = l.moment
	}
}

// refusal is an error as a message.
func refusal(err error) told {
	r := tool.ExplainError(err)
	return told{message: cmp.Or(r.Detail, r.Text)}
}

func (s *session) why(id string, moment *apiv1.Moment) told {
	s.mu.Lock()
	defer s.mu.Unlock()
	var reply apiv1.WhyReply
	if err := s.call.RPC(tool.MethodWhy, &apiv1.WhyRequest{Job: id, Moment: moment}, &reply); err != nil {
		return refusal(err)
	}
	return told{detail: s.model.whyText(id, &reply)}
}

// open reads one job. That accounting does not answer takes the charts away and
// nothing else.
func (s *session) open(id string, moment *apiv1.Moment) told {
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs apiv1.ListJobsReply
	if err := s.call.RPC(tool.MethodListJobs, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: []string{id}, AllStates: true}, Detail: true, Moment: moment}, &jobs); err != nil {
		return refusal(err)
	}
	if len(jobs.GetJobs()) == 0 {
		return told{message: "the controller does not know job " + id + " any more"}
	}
	job := jobs.GetJobs()[0]
	history, out := &apiv1.GpuHistoryReply{}, told{}
	if moment == nil && job.GetStart() != 0 && spec.JobState(job.GetState()) != spec.Pending &&
		render.GPUs(job) > 0 {
		if err := s.call.RPC(tool.MethodAcctGPUHistory, &apiv1.GpuHistoryQuery{Job: id, Points: s.model.chartPoints()}, history); err != nil {
			out = refusal(err)
			out.message = "no figures of its GPUs: " + out.message
		}
	}
	out.detail = s.model.jobText(id, job, jobs.GetNow(), history)
	return out
}

// change cancels, holds or releases a job.
func (s *session) change(e effect) told {
	s.mu.Lock()
	defer s.mu.Unlock()
	var results apiv1.JobResults
	var err error
	verbs := map[string]apiv1.ControlJobsRequest_Verb{
		"hold":    apiv1.ControlJobsRequest_HOLD,
		"release": apiv1.ControlJobsRequest_RELEASE,
	}
	if e.verb == "cancel" {
		err = s.call.RPC(
			tool.MethodCancel,
			&apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{e.target}}},
			&results,
		)
	} else {
		err = s.call.RPC(tool.MethodControlJobs, &apiv1.ControlJobsRequest{Verb: verbs[e.verb], Jobs: []string{e.target}}, &results)
	}
	if err != nil {
		return refusal(err)
	}
	for _, result := range results.GetResults() {
		if refused := result.GetError(); refused != nil {
			return told{message: strings.TrimSpace(refused.GetText() + " " + refused.GetDetail())}
		}
	}
	return told{message: "done: " + commandOf(e), again: true}
}
