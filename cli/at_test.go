package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// momentOf is the moment in a request; nil if it asks about the present.
func momentOf(req proto.Message) *apiv1.Moment {
	m := req.ProtoReflect()
	field := m.Descriptor().Fields().ByName("moment")
	if field == nil || !m.Has(field) {
		return nil
	}
	return m.Get(field).Message().Interface().(*apiv1.Moment)
}

// TestAtAsksAboutTheMoment: every request of every command is about the moment, and
// the command prints what it prints otherwise.
func TestAtAsksAboutTheMoment(t *testing.T) {
	for _, line := range []string{"squeue -l", "squeue --start", "squeue -s", "squeue --json", "sinfo", "sinfo -N -l", "sinfo -T", "sprio -l", "scontrol show job",
		"scontrol -d show job 4", "scontrol show node node1", "scontrol show partition", "scontrol show reservation", "why 36"} {
		w := everything(t)
		w.pauses = nil
		now := w.shell("muster " + line)
		w.forget()
		past := w.shell("muster at 01:30 " + line)
		if past.out != now.out && !strings.Contains(line, "json") || past.code != now.code {
			t.Errorf("%s prints\n%s\nat a moment\n%s%s", line, now.out, past.out, past.errOut)
		}
		asked := 0
		for _, q := range w.seen {
			if q.method == tool.MethodPing || q.method == tool.MethodAcctReasons {
				continue
			}
			asked++
			if m := momentOf(q.req); m.GetAt() != at("01:30:00") || m.GetSeq() != 0 {
				t.Errorf("%s: %s asks about %v", line, q.method, m)
			}
		}
		if asked == 0 {
			t.Errorf("%s asks nothing", line)
		}
	}
	w := everything(t)
	if r := w.run("muster", "at", "#77", "sinfo"); r.code != 0 || momentOf(w.last(tool.MethodListNodes)).GetSeq() != 77 {
		t.Errorf("by number: %v", r)
	}
}

// TestAtChangesNothing: what is about the present, or changes it, is not sent, and a
// refusal says what is known.
func TestAtChangesNothing(t *testing.T) {
	for _, line := range []string{"scontrol update jobid=4 comment=x", "scontrol hold 4", "scontrol show config", "scancel 4", "sacct", "squeue --nonsense", ""} {
		w := everything(t)
		r := w.shell("muster at 01:30 " + line)
		if r.code == 0 || r.errOut == "" {
			t.Errorf("%s: exit code %d, %q", line, r.code, r.errOut)
		}
		for _, q := range w.seen {
			if momentOf(q.req) == nil && q.method != tool.MethodPing {
				t.Errorf("%s sends %s", line, q.method)
			}
		}
	}
	for _, text := range []string{"#0", "#x", "25:99"} {
		if r := everything(t).run("muster", "at", text, "squeue"); r.code == 0 || r.errOut == "" {
			t.Errorf("%s: %v", text, r)
		}
	}
	w := everything(t)
	w.reply[tool.MethodListNodes] = func(proto.Message) (proto.Message, error) {
		return nil, spec.Refuse(spec.CodeInvalidTime, "the past is known from X")
	}
	if r := w.run("muster", "at", "#5", "sinfo"); r.code != 1 || !strings.Contains(r.errOut, "the past is known from X") {
		t.Errorf("a refusal: %v", r)
	}
}

// TestAtReasonsUpToTheMoment: the history of why ends at the moment, also for a job
// that has ended since, and one that was not there is unknown.
func TestAtReasonsUpToTheMoment(t *testing.T) {
	w := everything(t)
	w.reply[tool.MethodWhy] = func(proto.Message) (proto.Message, error) {
		return &apiv1.WhyReply{Job: w.jobs[1], Reason: &apiv1.Reason{Code: "Resources"}, Now: at("01:30:00")}, nil
	}
	w.reply[tool.MethodAcctReasons] = func(proto.Message) (proto.Message, error) {
		return &apiv1.ReasonsReply{Run: &apiv1.AcctRow{JobId: 36, State: "COMPLETED"}, Periods: []*apiv1.ReasonPeriod{
			{Reason: &apiv1.Reason{Code: "Priority"}, From: at("01:00:00"), To: at("01:20:00")},
			{Reason: &apiv1.Reason{Code: "Resources"}, From: at("01:20:00"), To: at("01:40:00")},
			{Reason: &apiv1.Reason{Code: "QOSGrpCpuLimit"}, From: at("01:40:00"), To: at("01:50:00")},
		}}, nil
	}
	r := w.run("muster", "at", "01:30", "why", "36", "--json")
	if r.code != 0 || !strings.Contains(r.out, "Priority") || strings.Contains(r.out, "QOSGrpCpuLimit") {
		t.Errorf("%s%s", r.out, r.errOut)
	}
	w.reply[tool.MethodWhy] = func(proto.Message) (proto.Message, error) {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if r := w.run("muster", "at", "01:30", "why", "36"); r.code != 1 || !strings.Contains(r.errOut, spec.CodeInvalidJobID.String()) || strings.Contains(r.out, "COMPLETED") {
		t.Errorf("a job that was not there: %v", r)
	}
}
