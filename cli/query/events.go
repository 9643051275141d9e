package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec/format"
)

func Events() *tool.Command {
	return &tool.Command{
		Name:    "events",
		Summary: "show what has happened, from the ledger, and follow it live",
		Usage:   []string{"[OPTIONS]"},
		About: `Each line is an event: its number, its time, its kind, what it is about, and who caused it. Without a time
these are the events since midnight, with --jobs all that are known, and with --follow those to come. Events of jobs,
nodes, partitions and reservations are shown to whoever may see these by squeue, sinfo and scontrol (PrivateData);
changes of accounts, QOS and limits to operators; tokens and certificates of machines to administrators.

--follow goes on after a restart of the controller, from the event behind the last one that was shown. An event that
is about several jobs has a line for each.`,
		Options: []opt.Option{
			{Long: "follow", Short: "f", Help: "go on as events happen, until interrupted"},
			{Long: "from", Arg: "<number>", Help: "first event, by its number: 1234 or #1234"},
			{
				Long:  "jobs",
				Also:  "job",
				Short: "j",
				Arg:   "<job_id_list>",
				Help:  "only events of these jobs: 12, 36 with its tasks, 36_7",
			},
			{Long: "json", Help: "print a JSON object on each line"},
			{
				Long:  "kinds",
				Also:  "kind",
				Short: "k",
				Arg:   "<kind_list>",
				Help:  "only these kinds, by name or its beginning: JobStarted,Node",
			},
			{Long: "list-kinds", Help: "print the names of the kinds"},
			{
				Long:  "nodelist",
				Also:  "nodes",
				Short: "w",
				Arg:   "<hostlist>",
				Help:  "only events that name one of these nodes",
			},
			{
				Long:  "since",
				Also:  "starttime",
				Short: "S",
				Arg:   "<time>",
				Help:  "only events at or after this time, as sacct -S reads it",
			},
			{
				Long:  "until",
				Also:  "endtime",
				Short: "E",
				Arg:   "<time>",
				Help:  "only events before this time, as sacct -E reads it",
			},
			{
				Long:  "users",
				Also:  "user",
				Short: "u",
				Arg:   "<user_list>",
				Help:  "only events of jobs of these users, or caused by them",
			},
		},
		Env: []tool.Variable{
			{
				Name: "SLURM_TIME_FORMAT",
				Help: "format of timestamps: standard, relative or a strftime format",
			},
		},
		Example: []tool.Example{
			{Line: "muster events -j 12", What: "shows the life of job 12"},
			{
				Line: "muster events --follow -k JobStarted,JobEnded --json",
				What: "feeds a program with starts and ends, live",
			},
			{
				Line: "muster events -w node7 -S now-1hour",
				What: "shows what happened to a node in the last hour",
			},
		},
		Run: runEvents,
	}
}

func runEvents(call *tool.Call) error {
	if err := call.RefuseOperands(); err != nil {
		return err
	}
	if call.Opts.On("list-kinds") {
		for _, k := range event.Kinds() {
			fmt.Fprintln(call.Out, k)
		}
		return nil
	}
	request, err := eventsRequest(call)
	if err != nil {
		return err
	}
	defer call.EndWhenUnread()()
	if !request.GetFollow() {
		if _, err := eventsOnce(call, request, eventWriter(call)); err != nil &&
			call.Ctx.Err() == nil {
			return err
		}
		return nil
	}
	return followEvents(call, request, eventWriter(call))
}

// eventsRequest reads the options.
func eventsRequest(call *tool.Call) (*apiv1.EventsRequest, error) {
	values := call.Opts
	request := &apiv1.EventsRequest{
		Follow: values.On("follow"),
		Jobs:   tool.SplitJobs(values.Text("jobs")),
		Users:  values.List("users"),
		Kinds:  values.List("kinds"),
	}
	if values.On("nodelist") {
		request.Nodes = []string{values.Text("nodelist")}
	}
	if values.On("from") {
		seq, err := strconv.ParseUint(strings.TrimPrefix(values.Text("from"), "#"), 10, 64)
		if err != nil || seq == 0 {
			return nil, call.Errorf(
				"--from=%s: expected the number of an event, from 1",
				values.Text("from"),
			)
		}
		if values.On("since") {
			return nil, call.Errorf("--from and --since both say where to begin: leave one out")
		}
		request.FromSeq = seq
	}
	if values.On("until") && request.GetFollow() {
		return nil, call.Errorf("--follow has no end: leave out --until")
	}
	at := func(name string) (int64, error) {
		seconds, err := format.ParseTime(
			values.Text(name),
			format.Moment{Now: call.Now().Unix(), Loc: call.Loc, Past: true},
		)
		if err != nil {
			return 0, tool.Fail(1, tool.BadTimeText(values.Text(name)))
		}
		return max(seconds*tool.Second, 1), nil
	}
	var err error
	switch {
	case values.On("since"):
		request.Since, err = at("since")
	case request.GetFromSeq() != 0 || request.GetFollow():
	case len(request.GetJobs()) > 0:
		request.Since = 1
	default:
		local := call.Now().In(call.Loc)
		request.Since = time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, call.Loc).
			UnixNano()
	}
	if err == nil && values.On("until") {
		request.Until, err = at("until")
	}
	return request, err
}

// eventWriter is how events are printed.
func eventWriter(call *tool.Call) func(*tool.Call, *apiv1.EventInfo) error {
	if call.Opts.On("json") {
		return eventJSON
	}
	return eventText
}

// eventsOnce asks and prints until the answer ends, or the way to the controller
// does. It moves the request on to what has not been told, so that it can be made
// again.
func eventsOnce(
	call *tool.Call,
	request *apiv1.EventsRequest,
	write func(*tool.Call, *apiv1.EventInfo) error,
) (placed bool, err error) {
	conn, err := call.Connect()
	if err != nil {
		return false, err
	}
	// A stream of its own: reading must end with the context.
	ctx, cancel := context.WithCancel(call.Ctx)
	defer cancel()
	began := call.Now()
	stream, err := conn.Stream(ctx, tool.MethodEvents, request)
	if err != nil {
		return false, err
	}
	defer stream.Close()
	for {
		var reply apiv1.EventsReply
		switch err := stream.Recv(&reply); {
		case errors.Is(err, io.EOF):
			return placed, nil
		case err != nil:
			return placed, err
		}
		if !placed {
			call.Trace(tool.MethodEvents, began, request, &reply)
		}
		placed = true
		for _, entry := range reply.GetEvents() {
			if err := write(call, entry); err != nil {
				return placed, err
			}
		}
		if err := call.Out.Flush(); err != nil {
			return placed, err
		}
		request.FromSeq = reply.GetSeq() + 1
		request.Since = 0
		request.Epoch = reply.GetEpoch()
	}
}

// reconnectEvery is how long to wait before the controller is tried again.
const reconnectEvery = time.Second

// followEvents goes on until it is interrupted, across restarts of the controller.
func followEvents(
	call *tool.Call,
	request *apiv1.EventsRequest,
	write func(*tool.Call, *apiv1.EventInfo) error,
) error {
	placed, warned := false, false
	for {
		got, err := eventsOnce(call, request, write)
		if call.Ctx.Err() != nil {
			return nil
		}
		placed = placed || got
		if !placed || err != nil && !fetch.ControllerGone(err) && !tool.ExplainError(err).Lost {
			return err
		}
		if got {
			warned = false
		}
		if !warned {
			fmt.Fprintf(
				call.Stderr,
				"muster %s: the controller is away after event %d; waiting for it\n",
				call.Command.Name,
				request.GetFromSeq()-1,
			)
			warned = true
		}
		if call.Conn != nil {
			_ = call.Conn.Close() // it is broken already
			call.Conn = nil
		}
		call.Pause(call.Ctx, reconnectEvery)
		if call.Ctx.Err() != nil {
			return nil
		}
	}
}

// eventText prints an event on one line.
func eventText(call *tool.Call, entry *apiv1.EventInfo) error {
	buffer := fmt.Appendf(
		nil, "%d %s %s", entry.GetSeq(), render.FormatTime(call, entry.GetAt()), entry.GetKind(),
	)
	buffer = render.EventFacts(render.NewClock(call.Env), buffer, entry)
	by := entry.GetActorKind()
	if entry.GetActor() != "" {
		by += ":" + entry.GetActor()
	}
	buffer = render.EventWord(buffer, "by", by)
	buffer = render.EventWord(buffer, "command", entry.GetCommand())
	return call.WriteOut(append(buffer, '\n'))
}

// eventJSON prints an event as a JSON object on one line. Times are RFC 3339 with
// nanoseconds, spans are seconds, -1 is no limit.
func eventJSON(call *tool.Call, entry *apiv1.EventInfo) error {
	fields := tree.Object{}
	for _, field := range entry.GetFields() {
		var value any
		switch v := field.GetValue().(type) {
		case *apiv1.EventField_Text:
			value = v.Text
		case *apiv1.EventField_Number:
			value = v.Number
		case *apiv1.EventField_Time:
			value = eventTime(v.Time)
		case *apiv1.EventField_Span:
			value = float64(v.Span) / float64(tool.Second)
			if v.Span < 0 {
				value = int64(-1)
			}
		case *apiv1.EventField_Yes:
			value = v.Yes
		}
		fields = append(fields, tree.Member{Key: field.GetName(), Value: value})
	}
	return tree.WriteJSON(call.Out, tree.Object{
		{
			Key:   "seq",
			Value: entry.GetSeq(),
		}, {Key: "at", Value: eventTime(entry.GetAt())}, {Key: "kind", Value: entry.GetKind()},
		{
			Key:   "job",
			Value: entry.GetJob(),
		}, {Key: "job_id", Value: int64(entry.GetJobId())}, {Key: "user", Value: entry.GetUser()},
		{Key: "account", Value: entry.GetAccount()},
		{Key: "nodes", Value: tree.Strings(entry.GetNodes())}, {Key: "fields", Value: fields},
		{
			Key: "actor",
			Value: tree.Object{
				{Key: "kind", Value: entry.GetActorKind()},
				{Key: "name", Value: entry.GetActor()},
			},
		},
		{Key: "command", Value: entry.GetCommand()}, {Key: "cause", Value: entry.GetCauseSeq()},
	}, true)
}

func eventTime(ns int64) string {
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}
