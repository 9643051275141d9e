package mailing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// JobMails sends what --mail-type asks for: it runs MailProg, as Slurm does, with
// -s, a subject and the recipient, once for each mail. Where MailProg is not set, mail goes to
// the server of reports.smtp. Mail is a courtesy: what is due while no controller leads, or while
// the program or the server fails, is not sent later.
//
// The mail about the end of a run has a text that says how well it used what it held. Its nodes
// report that when they have cleaned up, so that the mail is held until then.
type JobMails struct {
	cfg JobMailsConfig

	queue        chan jobMail
	Sent, Failed atomic.Uint64
	looked       spec.Instant // until when time limits were looked at
	silent       spec.Instant // texts are left out until then

	mu   sync.Mutex
	held map[spec.JobUID]heldMail
}

// JobMailsConfig is what mail about jobs is made with.
type JobMailsConfig struct {
	View func() *state.State // the published state
	Now  func() spec.Instant
	// Start runs MailProg, which reads the text.
	Start func(ctx context.Context, program string, args, environ []string, text string) error
	// Describe says how well a run that is over used what it held; nil: mails have no text.
	Describe func(ctx context.Context, job string) (string, error)
	// Post hands a mail to the site's mail server where MailProg is not set; nil: reports.smtp is
	// empty.
	Post func(ctx context.Context, to, subject, text string) error
	// Fallback is the program used where neither is set; empty: this host has no mail.
	Fallback string
	Log      *slog.Logger
}

// jobMail is one mail about a job.
type jobMail struct {
	about                slog.Attr // the job, for the log
	program, to, subject string    // program: empty = the mail server takes it
	environ              []string
	describes            string // the job whose use is the text; empty = there is no text
}

// heldMail waits for what the nodes of a run report.
type heldMail struct {
	mail  jobMail
	since spec.Instant
}

// Bounds of mail about jobs.
const (
	maxQueuedMails = 16384
	jobMailTime    = time.Minute // for one run of MailProg
	limitLook      = 10 * time.Second
	describeTime   = 20 * time.Second // for one run of muster report
	maxHeld        = 2 * spec.Minute  // for nodes to report what was used
	silentAfter    = spec.Minute      // for how long an error of muster report leaves texts out
)

// NewJobMails makes the sender.
func NewJobMails(config JobMailsConfig) *JobMails {
	return &JobMails{
		cfg:    config,
		queue:  make(chan jobMail, maxQueuedMails),
		looked: config.Now(),
		held:   map[spec.JobUID]heldMail{},
	}
}

// Committed queues the mails that a durable batch asks for. It does not wait.
func (m *JobMails) Committed(cluster *state.State, events []event.Envelope) {
	for i := range events {
		switch e := events[i].Event.(type) {
		case *event.JobStarted:
			if e.Adopted != nil {
				continue // the lost history told its user
			}
			m.began(cluster, cluster.Job(e.UID))
		case *event.JobEnded:
			m.ended(cluster, cluster.Job(e.UID))
		case *event.JobNodeDone:
			m.reported(cluster.Job(e.UID))
		case *event.JobRequeued:
			m.requeued(cluster, cluster.Job(e.UID), e.State)
		case *event.RunFenced:
			m.fenced(cluster, cluster.Job(e.UID), e)
		case *event.ReasonsChanged:
			for k := range e.Jobs {
				if job := cluster.Job(e.Jobs[k].UID); job != nil &&
					e.Jobs[k].Reason.Code == spec.ReasonDependencyNever &&
					wants(job, "INVALID_DEPEND") {
					m.put(cluster, job, "INVALID_DEPEND", "Invalid dependency", "")
				}
			}
		}
	}
}

// wants tells whether a job asked for mail of a type; ALL names most of them.
func wants(job *state.Job, kind string) bool {
	if job == nil || len(job.Spec.Queue.MailTypes) == 0 {
		return false
	}
	inAll := slices.Contains([]string{"BEGIN", "END", "FAIL", "INVALID_DEPEND", "REQUEUE"}, kind)
	return slices.Contains(job.Spec.Queue.MailTypes, kind) ||
		inAll && slices.Contains(job.Spec.Queue.MailTypes, "ALL")
}

// whole gives the array that a task is of, if mail is about the array as a whole.
func whole(cluster *state.State, job *state.Job) *state.Array {
	if slices.Contains(job.Spec.Queue.MailTypes, "ARRAY_TASKS") {
		return nil
	}
	return cluster.ArrayOf(job)
}

func (m *JobMails) began(cluster *state.State, job *state.Job) {
	if !wants(job, "BEGIN") || job.Het.Follows() {
		return
	}
	if a := whole(cluster, job); a != nil && (a.Started != 1 || job.Attempt != 1) {
		return // not the first of its tasks
	}
	m.put(cluster, job, "BEGIN", "Began", "Queued time "+
		format.Duration(max(job.Started.Sub(job.Submitted), 0).Seconds()))
}

func (m *JobMails) ended(cluster *state.State, job *state.Job) {
	if job == nil || job.Het.Follows() {
		return
	}
	array := whole(cluster, job)
	if array != nil && array.Ended < array.Total {
		return // its other tasks are not over
	}
	failed := job.State != spec.Completed
	if array != nil {
		failed = array.OK < array.Total
	}
	timedOut := job.State == spec.TimedOut && wants(job, "TIME_LIMIT")
	verb, kind := "Ended", "END"
	if failed && array == nil {
		verb, kind = "Failed", "FAIL"
	}
	if !wants(job, "END") && !(failed && wants(job, "FAIL")) && !timedOut {
		return
	}
	ran := "Run time " + format.Duration(max(job.Ended.Sub(job.Started), 0).Seconds())
	switch {
	case job.Started == 0:
		ran = "Run time 00:00:00"
	case timedOut && !wants(job, "END") && !wants(job, "FAIL"):
		verb, kind = "Reached time limit", "TIME_LIMIT"
	}
	verdict := job.State.String()
	if array != nil && failed && array.OK > 0 {
		verdict = "Mixed"
	}
	subject := fmt.Sprintf("%s, %s, ExitCode %d", ran, verdict, job.Exit.Code)
	mail, ok := m.compose(cluster, job, kind, verb, subject)
	if !ok {
		return
	}
	if m.cfg.Describe != nil && array == nil && job.Started != 0 {
		mail.describes = jobName(cluster, job)
		if job.Completing() && m.hold(job.UID, mail) {
			return
		}
	}
	m.enqueue(mail)
}

// hold keeps a mail until the nodes of its job have reported; false = too many are kept.
func (m *JobMails) hold(uid spec.JobUID, mail jobMail) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.held) >= maxQueuedMails {
		return false
	}
	m.held[uid] = heldMail{mail, m.cfg.Now()}
	return true
}

// reported sends the mail that waited for a job whose nodes are all done.
func (m *JobMails) reported(job *state.Job) {
	if job == nil || job.Completing() {
		return
	}
	m.mu.Lock()
	held, ok := m.held[job.UID]
	delete(m.held, job.UID)
	m.mu.Unlock()
	if ok {
		m.enqueue(held.mail)
	}
}

// release sends the mails that waited too long: a node may never report.
func (m *JobMails) release(now spec.Instant) {
	m.mu.Lock()
	var late []jobMail
	for _, uid := range slices.Sorted(maps.Keys(m.held)) {
		if held := m.held[uid]; held.since.Add(maxHeld) <= now {
			late = append(late, held.mail)
			delete(m.held, uid)
		}
	}
	m.mu.Unlock()
	for _, mail := range late {
		m.enqueue(mail)
	}
}

// aboutJob are the fields of a line of the log that is about a job, the same as in the lines of the
// controller (docs/opentelemetry.md).
func aboutJob(cluster *state.State, job *state.Job) slog.Attr {
	return slog.Group(
		"",
		"job", uint64(job.ID),
		"name", jobName(cluster, job),
		"attempt", job.Attempt,
		"user", job.Spec.User,
		"event", job.Changed,
	)
}

// jobName is a job as muster report names it.
func jobName(cluster *state.State, job *state.Job) string {
	if array := cluster.ArrayOf(job); array != nil {
		return fmt.Sprintf("%d_%d", array.ID, job.Task)
	}
	return strconv.FormatUint(uint64(job.ID), 10)
}

// requeued tells that a job is queued again. Where its node failed, that is a failure too: who
// asked for mail about those would else hear nothing of a run that was lost.
func (m *JobMails) requeued(cluster *state.State, job *state.Job, as spec.JobState) {
	nodeFailed := as == spec.NodeFailed
	if !wants(job, "REQUEUE") && !(nodeFailed && wants(job, "FAIL")) || job.Het.Follows() {
		return
	}
	tail := ""
	if nodeFailed {
		tail = as.String()
		if job.Unfenced > 0 {
			tail += ", waits until the run is known to have ended on its node"
		}
	}
	m.put(cluster, job, "REQUEUE", "Requeued", tail)
}

// fenced tells that a job may start again whose earlier run was given up with its node.
func (m *JobMails) fenced(cluster *state.State, job *state.Job, e *event.RunFenced) {
	if !wants(job, "REQUEUE") && !wants(job, "FAIL") || job.Het.Follows() {
		return
	}
	if job.State != spec.Pending || job.Unfenced > 0 {
		return // it ended for good, or waits for another node
	}
	m.put(
		cluster,
		job,
		"REQUEUE",
		"May start again",
		fmt.Sprintf("its run on node %s has ended", e.Node),
	)
}

// put queues one mail, unless the site has no program for it.
func (m *JobMails) put(cluster *state.State, job *state.Job, kind, verb, tail string) {
	if mail, ok := m.compose(cluster, job, kind, verb, tail); ok {
		m.enqueue(mail)
	}
}

// compose makes one mail; false = the site has no program for it, or it has no recipient.
func (m *JobMails) compose(
	cluster *state.State, job *state.Job, kind, verb, tail string,
) (mail jobMail, ok bool) {
	program := cluster.Config.MailProg
	switch {
	case strings.EqualFold(program, "none") || program == "(null)":
		return jobMail{}, false
	case program == "" && m.cfg.Post == nil:
		program = m.cfg.Fallback
	}
	if program == "" && m.cfg.Post == nil {
		m.Failed.Add(1)
		m.cfg.Log.Warn(
			"mail about a job is not sent: this host has no /usr/bin/mail; "+
				"set MailProg in slurm.conf or reports.smtp in muster.yaml",
			aboutJob(cluster, job),
		)
		return jobMail{}, false
	}
	id, about := strconv.FormatUint(uint64(job.ID), 10), "Job"
	if array := cluster.ArrayOf(job); array != nil {
		id, about = fmt.Sprintf("%d_%d (%d)", array.ID, job.Task, job.ID), "Array Task"
		if whole(cluster, job) != nil {
			id, about = fmt.Sprintf("%d_* (%d)", array.ID, job.ID), "Array Summary"
		}
	}
	subject := fmt.Sprintf("Slurm %s Job_id=%s Name=%s %s", about, id, job.Spec.Name, verb)
	if about == "Job" {
		subject = fmt.Sprintf("Slurm Job_id=%s Name=%s %s", id, job.Spec.Name, verb)
	}
	if tail != "" {
		subject += ", " + tail
	}
	to := job.Spec.Queue.MailUser
	if to == "" {
		to = job.Spec.User
	}
	if cluster.Config.MailDomain != "" && !strings.Contains(to, "@") {
		to += "@" + cluster.Config.MailDomain
	}
	if to == "" || strings.HasPrefix(to, "-") || strings.ContainsAny(to, " \t\r\n\x00") {
		m.cfg.Log.Warn(
			"mail about a job has no valid recipient", aboutJob(cluster, job), "recipient", to,
		)
		return jobMail{}, false
	}
	return jobMail{about: aboutJob(cluster, job), program: program, to: to, subject: oneLine(subject), environ: []string{
		"SLURM_JOB_ID=" + strconv.FormatUint(uint64(job.ID), 10), "SLURM_JOB_NAME=" +
			oneLine(job.Spec.Name), "SLURM_JOB_USER=" + job.Spec.User,
		"SLURM_JOB_PARTITION=" + job.Partition(), "SLURM_JOB_STATE=" + job.State.String(), "SLURM_JOB_MAIL_TYPE=" +
			kind,
		"SLURM_CLUSTER_NAME=" + cluster.Config.ClusterName, "SLURM_JOB_WORK_DIR=" +
			oneLine(job.Spec.IO.WorkDir)}}, true
}

// enqueue hands a mail to Run. It does not wait.
func (m *JobMails) enqueue(mail jobMail) {
	select {
	case m.queue <- mail:
	default:
		m.Failed.Add(1)
		m.cfg.Log.Warn(
			"mail about a job is dropped: too many wait to be sent",
			mail.about,
			"subject",
			mail.subject,
			"program",
			cmp.Or(mail.program, "reports.smtp"),
		)
	}
}

// oneLine keeps what a user wrote from adding lines or options to a mail.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}

// Run sends what is queued, one after the other, and looks at time limits, until the
// context ends.
func (m *JobMails) Run(ctx context.Context) error {
	look := time.NewTicker(limitLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			m.limits(m.cfg.View(), m.cfg.Now())
			m.release(m.cfg.Now())
		case mail := <-m.queue:
			m.send(ctx, mail)
		}
	}
}

// describe makes the text of a mail. A mail whose text cannot be made is sent without it. After an
// error no text is made for a while, so that mails do not wait for accounting one after the other.
func (m *JobMails) describe(ctx context.Context, mail *jobMail) string {
	if mail.describes == "" || m.cfg.Now() < m.silent {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	text, err := m.cfg.Describe(ctx, mail.describes)
	if err != nil {
		m.silent = m.cfg.Now().Add(silentAfter)
		m.cfg.Log.Warn("mail about a job has no text", mail.about, "error", err)
		return ""
	}
	return text
}

func (m *JobMails) send(ctx context.Context, mail jobMail) {
	text := m.describe(ctx, &mail)
	ctx, cancel := context.WithTimeout(ctx, jobMailTime)
	defer cancel()
	if err := m.deliver(ctx, &mail, text); err != nil {
		m.Failed.Add(1)
		m.cfg.Log.Warn(
			"mail about a job could not be sent",
			mail.about,
			"program",
			cmp.Or(mail.program, "reports.smtp"),
			"recipient",
			mail.to,
			"subject",
			mail.subject,
			"error",
			err,
		)
		return
	}
	m.Sent.Add(1)
}

func (m *JobMails) deliver(ctx context.Context, mail *jobMail, text string) error {
	if mail.program == "" {
		return m.cfg.Post(ctx, mail.to, mail.subject, text)
	}
	args := []string{"-s", mail.subject, mail.to}
	return m.cfg.Start(ctx, mail.program, args, mail.environ, text)
}

// limitShares are the types of mail about a part of the time limit, in per cent.
func limitShares() map[string]int64 {
	return map[string]int64{"TIME_LIMIT_50": 50, "TIME_LIMIT_80": 80, "TIME_LIMIT_90": 90}
}

// limits mails about running jobs that have reached a share of their time limit since
// the last look.
func (m *JobMails) limits(cluster *state.State, now spec.Instant) {
	since := m.looked
	m.looked = now
	if cluster == nil {
		return
	}
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		job := cluster.Job(spec.JobUID(uid))
		if job == nil || len(job.Spec.Queue.MailTypes) == 0 || !usesTimeLimit(job) {
			return true
		}
		for kind, share := range limitShares() {
			at := max(job.Started, job.Ready).Add(job.Limit/100*spec.Span(share) + job.Paused)
			if wants(job, kind) && at > since && at <= now {
				m.put(cluster, job, kind, fmt.Sprintf("Reached %d%% of time limit", share), "")
			}
		}
		return true
	})
}

// usesTimeLimit tells whether a job uses its time limit up: not while its nodes are being prepared.
func usesTimeLimit(job *state.Job) bool {
	if job.State != spec.Running || job.Configuring() {
		return false
	}
	return job.Limit > 0 && job.Limit != spec.Infinite
}
