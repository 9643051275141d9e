package daemon_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhpc/muster/accounting/daemon"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// injections are what would break out of a text, a list, a parameter or a
// comment, if it stood in the SQL.
func injections() []string {
	return []string{"' OR 1=1 --", "x'] OR true OR user IN ['alice", `alice\`, `\' OR 1=1 -- `, "{ledger:UUID}", "{users:Array(String)}", "a\x00'b", "'; DROP TABLE jobs; --", "*/ OR 1=1 /*", "\xff'\xfe", "%", "alice') UNION ALL SELECT * FROM jobs --"}
}

// Every field of every question that takes a text is tried with each of them,
// on the real engine: the answer is a refusal that names what is wrong, or the
// rows of somebody of that name, of whom there is none. A field that is added
// to a question is tried without being named here.
func TestNothingTypedBecomesSQL(t *testing.T) {
	h, now := scenario(t)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 7)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(now)
	r.start()
	head, _ := ledger.Head()
	r.stored(head)
	before := r.rows()
	s := r.Service()
	window := func(q *apiv1.ReportQuery) *apiv1.ReportQuery {
		q.Start, q.End = int64(spec.AtUnix(t0)), int64(now)
		return q
	}
	type question struct {
		name string
		req  proto.Message
		ask  func(ctx context.Context, req proto.Message) (proto.Message, error)
	}
	questions := []question{
		{"sacct", &apiv1.AcctQuery{AllUsers: true, Start: int64(spec.AtUnix(t0)), End: int64(now)}, func(ctx context.Context, m proto.Message) (proto.Message, error) {
			return s.Jobs(ctx, m.(*apiv1.AcctQuery))
		}},
		{"scripts", &apiv1.AcctScriptQuery{}, func(ctx context.Context, m proto.Message) (proto.Message, error) {
			return s.Scripts(ctx, m.(*apiv1.AcctScriptQuery))
		}},
		{"reasons", &apiv1.ReasonsQuery{}, func(ctx context.Context, m proto.Message) (proto.Message, error) {
			return s.Reasons(ctx, m.(*apiv1.ReasonsQuery))
		}},
		{"job report", &apiv1.JobReportQuery{}, func(ctx context.Context, m proto.Message) (proto.Message, error) {
			return s.JobReport(ctx, m.(*apiv1.JobReportQuery))
		}},
		{"advice", &apiv1.AdviceQuery{}, func(ctx context.Context, m proto.Message) (proto.Message, error) {
			return s.Advise(ctx, m.(*apiv1.AdviceQuery))
		}},
	}
	for _, name := range daemon.Reports() {
		questions = append(questions, question{name, window(&apiv1.ReportQuery{Report: name}), func(ctx context.Context, m proto.Message) (proto.Message, error) {
			return s.Report(ctx, m.(*apiv1.ReportQuery))
		}})
	}
	// A name that is not known chooses nobody; these choose something else.
	other := []string{"zone", "cluster", "by", "report", "fields", "tres"}
	tried := 0
	tries := 1
	if os.Getenv("MUSTER_LONG") != "" {
		tries = 3
	}
	for _, q := range questions {
		fields := q.req.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if f.Kind() != protoreflect.StringKind {
				continue
			}
			for range tries { // each field a few of them, each of them many fields
				attack := injections()[tried%len(injections())]
				req := proto.Clone(q.req)
				if v := protoreflect.ValueOfString(attack); f.IsList() {
					req.ProtoReflect().Mutable(f).List().Append(v)
				} else {
					req.ProtoReflect().Set(f, v)
				}
				tried++
				rep, err := q.ask(t.Context(), req)
				if err != nil {
					if code := spec.CodeOf(err); code == 0 || code == spec.CodeDatabaseUnreachable {
						t.Errorf("%s, %s = %q: the engine was asked and said %v", q.name, f.Name(), attack, err)
					}
					continue
				}
				if text := protoText(rep); !slices.Contains(other, string(f.Name())) && (strings.Contains(text, "alice") || strings.Contains(text, "bob")) && q.name != "kpi" {
					t.Errorf("%s, %s = %q shows rows:\n%.300s", q.name, f.Name(), attack, text)
				}
			}
		}
	}
	if tried < 150 {
		t.Errorf("only %d were tried", tried)
	}
	if after := r.rows(); after != before {
		t.Errorf("the store changed:\n%s\n%s", before, after)
	}
}

// protoText is all text of a reply but its SQL.
func protoText(m proto.Message) string {
	var b strings.Builder
	var walk func(m protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.Name() == "sql" || f.IsMap():
			case f.Kind() == protoreflect.StringKind && !f.IsList():
				b.WriteString(v.String() + "\n")
			case f.Message() != nil && f.IsList():
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			case f.Message() != nil:
				walk(v.Message())
			}
			return true
		})
	}
	walk(m.ProtoReflect())
	return b.String()
}
