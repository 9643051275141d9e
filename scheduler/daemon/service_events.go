package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Bounds of those who read events, and of one message to them.
const (
	maxEventReaders     = 64 // of a controller
	maxEventReadersUser = 8  // of one user
	maxEventsAtOnce     = 1000
	eventBytesAtOnce    = 256 << 10
	// tellProgressAfter is how many events are looked at before a reader is told how
	// far that is, although no event was for him.
	tellProgressAfter = 4096
	// patientReader is how long a message may wait for its reader until the state
	// that is kept for him is reduced to what he needs of it.
	patientReader = spec.Second
)

// eventReaders counts those who read events. What each of them holds in the
// controller is bounded, so their number bounds all of it.
type eventReaders struct {
	mu     sync.Mutex
	all    int
	byUser map[string]int
	// One reader at a time decodes and writes events, so that all of them together
	// take no more than one core from the writer and the passes.
	turn chan struct{}
}

func newEventReaders() *eventReaders {
	return &eventReaders{byUser: map[string]int{}, turn: make(chan struct{}, 1)}
}

// workInTurn does a piece of a reader's work when it is his turn. He must not wait for
// his caller in it.
func (r *eventReaders) workInTurn(ctx context.Context, do func() error) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	defer runtime.Gosched() // whatever else is ready goes first
	return do()
}

// enterReader counts a reader in, or refuses.
func (r *eventReaders) enterReader(user string) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.byUser[user] >= maxEventReadersUser:
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"%s reads events %d times at once, which is the limit: end one of them",
				user,
				maxEventReadersUser,
			),
		)
	case r.all >= maxEventReaders:
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"events are read %d times at once, which is the limit of a controller: try again later",
				maxEventReaders,
			),
		)
	}
	r.all++
	r.byUser[user]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all--
		r.byUser[user]--
		if r.byUser[user] == 0 {
			delete(r.byUser, user)
		}
	}, nil
}

// Events tells what has happened, from the archive and never faster than the
// caller takes it, so that nobody else waits for a slow one.
func (s *eventCalls) Events(
	req *apiv1.EventsRequest,
	stream service.Cluster_EventsServer,
) error {
	caller, _, err := s.knownCaller(stream.Context())
	if err != nil {
		return err
	}
	filter, err := newEventFilter(req)
	if err != nil {
		return err
	}
	if req.GetAudit() && !s.isOperator(caller) {
		return spec.Refuse(
			spec.CodeAccessDenied,
			"the audit trail is for operators; muster events shows what you may see",
		)
	}
	leave, err := s.C.readers.enterReader(caller.User)
	if err != nil {
		return err
	}
	defer leave()
	teller := &eventTeller{
		s:      s.authority,
		who:    caller,
		filter: filter,
		stream: stream,
		until:  spec.Instant(req.GetUntil()),
		audit:  req.GetAudit(),
	}
	if err := teller.findBeginning(req); err != nil {
		return err
	}
	return teller.tellEvents(stream.Context(), req.GetFollow())
}

// eventTeller tells one caller the events from a place in the ledger on.
type eventTeller struct {
	s      *authority
	who    Caller
	filter *eventFilter
	stream service.Cluster_EventsServer
	until  spec.Instant // 0 = no end
	audit  bool         // hosts are told

	from   uint64 // the first event to be told
	seq    uint64 // the last one that was read
	told   uint64 // up to which the caller knows how far this is
	jobs   *eventJobs
	reader PastReader
	ready  []*apiv1.EventsReply // full messages, to be sent
	out    *apiv1.EventsReply   // the one that is being filled
	size   int                  // of its events
	over   bool                 // an event behind the end was read
}

// findBeginning finds the place from which on events are told, and whose the jobs are
// there.
func (t *eventTeller) findBeginning(req *apiv1.EventsRequest) error {
	controller := t.s.C
	known, err := controller.knownRange()
	if err != nil {
		return err
	}
	switch from := req.GetFromSeq(); {
	case from != 0:
		if from < known.first || from > known.last+1 {
			return spec.Refuse(
				spec.CodeBadRequest,
				fmt.Sprintf(
					"event %d is not known: the history has events %d to %d",
					from,
					known.first,
					known.last,
				),
			)
		}
		if err := t.checkEpoch(req.GetEpoch(), from-1); err != nil {
			return err
		}
		t.from = from
	case req.GetSince() != 0:
		t.from, err = controller.firstSince(known, spec.Instant(req.GetSince()))
		if err != nil {
			return err
		}
	default:
		t.from = known.last + 1
	}
	t.told = t.from - 1
	if cluster := controller.View().State; cluster.Seq == t.from-1 {
		t.jobs, t.seq = newEventJobs(cluster), cluster.Seq
		return nil
	}
	return t.beginPast()
}

// checkEpoch refuses a position of a history that this ledger has not got: it was
// restored from an older copy since.
func (t *eventTeller) checkEpoch(epoch, seq uint64) error {
	if epoch == 0 || t.s.C.View().State.HasSeen(epoch, seq) {
		return nil
	}
	return spec.Refuse(
		spec.CodeBadRequest,
		fmt.Sprintf(
			"this ledger was restored from an older copy and does not hold event %d that was read before; start again without a position",
			seq,
		),
	)
}

// beginPast starts from the snapshot before the place. The events between are
// read for the jobs in them, and not told.
func (t *eventTeller) beginPast() error {
	return t.s.C.readers.workInTurn(t.stream.Context(), func() error {
		state, err := t.s.C.deps.Past.Snapshot(t.from - 1)
		if err != nil {
			return err
		}
		t.jobs, t.seq = newEventJobs(state), state.Seq
		t.jobs.releaseState()
		return nil
	})
}

// tellEvents reads on to the last published event, and with follow from there.
func (t *eventTeller) tellEvents(ctx context.Context, follow bool) error {
	t.out = &apiv1.EventsReply{}
	placed := false // the caller knows from where on he is told
	for {
		view, changed := t.s.C.Changed()
		// More is not read than is published: then the state of the view is the one
		// at the place to which this has come.
		for t.seq < view.State.Seq && !t.over {
			if err := t.s.C.readers.workInTurn(ctx, t.readBatch); err != nil {
				return err
			}
			if err := t.sendReady(ctx); err != nil {
				return err
			}
			if t.s.C.isStopping() {
				return spec.Refuse(spec.CodeStopping, "")
			}
		}
		if !t.over {
			t.jobs.rebaseOn(view.State)
		}
		if len(t.out.Events) > 0 || !follow || !placed || t.seq >= t.told+tellProgressAfter {
			t.endMessage(t.seq)
			t.ready[len(t.ready)-1].CaughtUp = !t.over
			if err := t.sendReady(ctx); err != nil {
				return err
			}
			placed = true
		}
		if !follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		case <-t.s.C.stopping:
			return spec.Refuse(spec.CodeStopping, "")
		}
	}
}

// readBatch takes one batch in.
func (t *eventTeller) readBatch() error {
	if t.reader == nil {
		var err error
		t.reader, err = t.s.C.deps.Past.Read(t.seq + 1)
		if err != nil {
			return err
		}
	}
	batch, err := t.reader.Next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the archive ends before event %d, which is in the ledger", t.seq+1)
	}
	if err != nil {
		return err
	}
	see := t.s.eventSight(t.who)
	for i := range batch {
		envelope := &batch[i]
		if envelope.Seq <= t.seq {
			continue // of a batch in whose middle this began
		}
		t.over = t.until != 0 && envelope.At >= t.until
		if t.over {
			return nil
		}
		t.seq = envelope.Seq
		t.jobs.noteEvent(envelope.Event)
		if envelope.Seq >= t.from {
			t.take(envelope, &see)
		}
		t.jobs.forgetEnded(envelope.Event)
	}
	if t.seq >= max(t.told, t.from)+tellProgressAfter {
		t.endMessage(t.seq)
	}
	return nil
}

// take adds what the caller may see of an event, and wants to.
func (t *eventTeller) take(envelope *event.Envelope, see *eventSight) {
	topic := wire.TopicOf(envelope.Event.Kind())
	if !see.topic[topic] || !t.filter.takesKind(envelope.Event.Kind()) {
		return
	}
	name := func(uid spec.JobUID) string {
		job, ok := t.jobs.findJob(uid)
		if !ok || !see.job(job.owner, job.account) {
			return ""
		}
		return job.displayName()
	}
	for _, part := range wire.EventParts(envelope.Event, name) {
		var job *eventJob
		if topic == wire.TopicJob {
			j, ok := t.jobs.findJob(part.Job)
			if !ok || !see.job(j.owner, j.account) {
				continue
			}
			job = &j
		}
		if part.Reservation != "" && see.ownReservations &&
			!slices.Contains(t.jobs.usersOf(part.Reservation), t.who.User) {
			continue
		}
		if !t.filter.passesEvent(envelope, &part, job) {
			continue
		}
		info := eventInfo(envelope, &part, job)
		if t.audit {
			info.Host = envelope.Actor.Host
		}
		t.out.Events = append(t.out.Events, info)
		t.size += proto.Size(info)
		if t.size >= eventBytesAtOnce || len(t.out.Events) >= maxEventsAtOnce {
			// Another part of this event may follow: it has not been told whole.
			t.endMessage(envelope.Seq - 1)
		}
	}
}

// endMessage ends the message that is being filled. Up to seq everything has been told
// with it.
func (t *eventTeller) endMessage(seq uint64) {
	state := t.s.C.View().State
	message := t.out
	message.Seq = seq
	message.Epoch = state.EpochAt(seq)
	message.HeadSeq = state.Seq
	t.ready = append(t.ready, message)
	t.out = &apiv1.EventsReply{}
	t.size = 0
	t.told = seq
}

// sendReady hands on what is complete.
func (t *eventTeller) sendReady(ctx context.Context) error {
	for len(t.ready) > 0 {
		message := t.ready[0]
		t.ready = t.ready[1:]
		if err := t.sendMessage(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

// sendMessage waits for the caller to take a message. One who takes his time does not keep
// an old state in memory meanwhile.
func (t *eventTeller) sendMessage(ctx context.Context, message *apiv1.EventsReply) error {
	sent := make(chan error, 1)
	go func() { sent <- t.stream.Send(message) }()
	slow, stop := t.s.C.deps.Clock.After(patientReader)
	defer stop()
	select {
	case err := <-sent:
		return err
	case <-slow:
	case <-ctx.Done():
	}
	t.jobs.releaseState()
	return <-sent
}

func eventInfo(envelope *event.Envelope, part *wire.EventPart, job *eventJob) *apiv1.EventInfo {
	out := &apiv1.EventInfo{
		Seq:       envelope.Seq,
		At:        int64(envelope.At),
		Kind:      envelope.Event.Kind().String(),
		ActorKind: wire.ActorKindName(envelope.Actor.Kind),
		Actor:     envelope.Actor.Name,
		Command:   envelope.Cause.Command,
		CauseSeq:  envelope.Cause.Seq,
		Nodes:     part.Nodes,
		Fields:    part.Fields,
	}
	if job != nil {
		out.Job = job.displayName()
		out.JobId = uint32(job.id)
		out.User = job.user
		out.Account = job.account
	}
	return out
}

// eventSight is what a caller may see, by the rules of now.
type eventSight struct {
	topic           [wire.NumTopics]bool
	job             func(owner uint32, account string) bool
	ownReservations bool // only of reservations that name him
}

// eventSight asks the functions that guard the other calls.
func (s *authority) eventSight(caller Caller) eventSight {
	sight := eventSight{
		job: s.seesOwned(caller), ownReservations: s.private(privateReservations, caller),
	}
	sight.topic[wire.TopicCluster] = true
	sight.topic[wire.TopicJob] = true         // by the job
	sight.topic[wire.TopicReservation] = true // by the reservation
	sight.topic[wire.TopicNode] = !s.private(privateNodes, caller)
	sight.topic[wire.TopicPartition] = !s.private(privatePartitions, caller)
	sight.topic[wire.TopicUse] = !s.private(privateUsage, caller)
	sight.topic[wire.TopicPolicy] = s.isOperator(caller)
	sight.topic[wire.TopicSecret] = s.isAdministrator(caller)
	return sight
}

// eventFilter is what a caller wants to see.
type eventFilter struct {
	jobs   []wantedJob
	users  []string
	actors []string
	nodes  map[string]bool
	kinds  map[event.Kind]bool
}

// wantedJob is a job, an array or a task of one.
type wantedJob struct {
	id   spec.JobID
	task int64 // NoTask = all of it
}

func newEventFilter(req *apiv1.EventsRequest) (*eventFilter, error) {
	if req.GetFollow() && req.GetUntil() != 0 {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"follow goes on for ever: leave out its end, or follow",
		)
	}
	filter := &eventFilter{users: req.GetUsers(), actors: req.GetActors()}
	for _, text := range req.GetJobs() {
		number, task, isTask := strings.Cut(text, "_")
		id, err := strconv.ParseUint(number, 10, 32)
		want := wantedJob{spec.JobID(id), spec.NoTask}
		if err == nil && isTask {
			want.task, err = strconv.ParseInt(task, 10, 64)
		}
		if err != nil || id == 0 {
			return nil, spec.Refuse(spec.CodeInvalidJobID, "job "+text+": expected 12, 36 or 36_7")
		}
		filter.jobs = append(filter.jobs, want)
	}
	for _, expr := range req.GetNodes() {
		names, err := hostlist.Expand(expr)
		if err != nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
		}
		if filter.nodes == nil {
			filter.nodes = map[string]bool{}
		}
		for _, name := range names {
			filter.nodes[name] = true
		}
	}
	for _, word := range req.GetKinds() {
		if err := filter.addKinds(word); err != nil {
			return nil, err
		}
	}
	return filter, nil
}

// addKinds lets the kinds through whose name is a word or begins with it.
func (f *eventFilter) addKinds(word string) error {
	if f.kinds == nil {
		f.kinds = map[event.Kind]bool{}
	}
	found := false
	for _, kind := range event.Kinds() {
		name := kind.String()
		if word != "" && len(name) >= len(word) && strings.EqualFold(name[:len(word)], word) {
			f.kinds[kind], found = true, true
		}
	}
	if !found {
		return spec.Refuse(spec.CodeBadRequest, "no kind of event has the name or beginning "+
			strconv.Quote(word)+"; muster events --list-kinds lists them")
	}
	return nil
}

func (f *eventFilter) takesKind(k event.Kind) bool { return f.kinds == nil || f.kinds[k] }

// passesEvent tells whether an event is of the jobs, users and nodes that are wanted.
func (f *eventFilter) passesEvent(
	envelope *event.Envelope, part *wire.EventPart, job *eventJob,
) bool {
	if len(f.jobs) > 0 && (job == nil || !slices.ContainsFunc(f.jobs, job.isWanted)) {
		return false
	}
	if len(f.users) > 0 &&
		!slices.ContainsFunc(f.users, func(u string) bool {
			return concernsUser(envelope, job, u)
		}) {
		return false
	}
	if len(f.actors) > 0 &&
		!slices.ContainsFunc(f.actors, func(a string) bool { return actedBy(&envelope.Actor, a) }) {
		return false
	}
	return f.nodes == nil ||
		slices.ContainsFunc(part.Nodes, func(n string) bool { return f.nodes[n] })
}

// isWanted tells whether a job is the wanted one.
func (j *eventJob) isWanted(want wantedJob) bool {
	if want.task == spec.NoTask && j.id == want.id {
		return true
	}
	return j.array == want.id && (want.task == spec.NoTask || want.task == j.task)
}

// concernsUser tells whether a user, by name or number, acted or owns the job.
func concernsUser(envelope *event.Envelope, job *eventJob, user string) bool {
	if job != nil && (job.user == user || strconv.FormatUint(uint64(job.owner), 10) == user) {
		return true
	}
	return envelope.Actor.Kind == event.ActorUser && actedBy(&envelope.Actor, user)
}

// actedBy tells whether an actor is the one of a name, or a user of a number; the
// controller itself is system.
func actedBy(actor *event.Actor, name string) bool {
	switch actor.Kind {
	case event.ActorSystem:
		return name == wire.ActorKindName(event.ActorSystem)
	case event.ActorUser:
		return actor.Name == name || strconv.FormatUint(uint64(actor.UID), 10) == name
	case event.ActorNode:
	}
	return actor.Name == name
}
