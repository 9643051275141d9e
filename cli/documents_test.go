package cli

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// documented is a controller and accounting that know one of everything whose documents have no
// schema of Slurm.
func (w *world) documented() {
	w.people()
	w.running()
	w.priorities()
	w.reply[tool.MethodTransactions] = func(proto.Message) (proto.Message, error) {
		return &apiv1.TransactionsReply{Transactions: []*apiv1.Transaction{{At: w.now, Action: "Add Users", Actor: "root", Where: "bob", Seq: 9}}}, nil
	}
	w.live = &apiv1.StepUsageReply{Jobs: []*apiv1.JobSteps{{
		Job: "12", JobId: 12, Nodes: "n1", Alloc: &apiv1.Tres{Cpu: 4, Node: 1},
		Steps: []*apiv1.StepMeasured{{Step: 0, Tasks: 2, Nodes: []*apiv1.Measurement{{
			Node: "n1", Pids: []int32{71}, Usage: &apiv1.Usage{UserCpu: 60 * tool.Second, PeakRss: 8 << 20, HasRss: true},
		}}}},
	}}}
	w.jobs[0].Steps = []*apiv1.StepInfo{{
		StepId: 3, Name: "train", Nodes: []string{"node1"}, Tasks: 2, State: uint32(spec.Running),
		Start: w.now - 60*tool.Second, TimeLimit: 3600 * tool.Second, Tres: &apiv1.Tres{Cpu: 2, Node: 1},
	}}
	w.policy.Resources = []*apiv1.Resource{{Name: "matlab", Server: "flex", Count: 5, Allowed: 40}}
	w.policy.Accounts = append(w.policy.Accounts, &apiv1.Account{Name: "idle"})
}

// at finds a value of a document by keys and indices.
func valueIn(t *testing.T, doc any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, ok := doc.(map[string]any)
			if !ok {
				t.Fatalf("%v: no object at %s: %v", path, step, doc)
			}
			doc = object[step]
		case int:
			list, ok := doc.([]any)
			if !ok || step >= len(list) {
				t.Fatalf("%v: no element %d: %v", path, step, doc)
			}
			doc = list[step]
		}
	}
	return doc
}

// TestDocumentsWithoutASchema: what Slurm has no schema of is a document all the same, with the
// values of the text, in JSON and in YAML.
func TestDocumentsWithoutASchema(t *testing.T) {
	for line, want := range map[string]struct {
		path  []any
		value any
	}{
		"sacctmgr show resource":     {[]any{"resources", 0, "clusters", 0, "allowed"}, 40.0},
		"sacctmgr show problem":      {[]any{"problems", 0, "problem"}, "Account has no users"},
		"sacctmgr show federation":   {[]any{"federations"}, []any{}},
		"sacctmgr show transactions": {[]any{"transactions", 0, "event"}, 9.0},
		"sacctmgr show config":       {[]any{"configuration", "AccountingStorageTRES"}, "gres/gpu"},
		"sacctmgr show reservation":  {[]any{"reservations"}, []any{}},
		"sacctmgr show runaway":      {[]any{"runaway_jobs"}, []any{}},
		"scontrol show step":         {[]any{"steps", 1, "step", "name"}, "train"},
		"scontrol show step 4.3":     {[]any{"steps", 0, "time", "elapsed"}, 60.0},
		"scontrol show config":       {[]any{"configuration", "AccountingStorageTRES"}, "gres/gpu"},
		"sprio -j 8":                 {[]any{"jobs", 0, "factors", "tres", 0, "weighted"}, 187.5},
		"sprio":                      {[]any{"weights", "tres", 2, "weight"}, 3000.0},
		"sstat -j 12":                {[]any{"steps", 0, "tres", "requested", "max", 2, "count"}, 8388608.0},
		"sstat -a -j 12":             {[]any{"steps", 0, "pid"}, "71"},
	} {
		w := newWorld(t)
		w.documented()
		r := w.shell(line + " --json")
		var doc any
		if err := json.Unmarshal([]byte(r.out), &doc); err != nil || r.code != 0 {
			t.Errorf("$ %s --json\n%d %v %s%s", line, r.code, err, r.out, r.errOut)
			continue
		}
		if got := valueIn(t, doc, want.path...); !reflect.DeepEqual(got, want.value) {
			t.Errorf("$ %s --json: %v is %v, wanted %v", line, want.path, got, want.value)
		}
		if got := valueIn(t, doc, "meta", "slurm", "cluster"); got != "peer" {
			t.Errorf("$ %s --json: cluster %v", line, got)
		}
		r = w.shell(line + " --yaml")
		var again any
		if err := yaml.Unmarshal([]byte(r.out), &again); err != nil || r.code != 0 {
			t.Errorf("$ %s --yaml\n%d %v %s%s", line, r.code, err, r.out, r.errOut)
			continue
		}
		if got := valueIn(t, again, want.path[0]); got == nil {
			t.Errorf("$ %s --yaml: no %v", line, want.path[0])
		}
		if r := w.shell(line + " --json=v0.0.12"); r.code == 0 {
			t.Errorf("$ %s --json=v0.0.12 is accepted", line)
		}
	}
}

// TestOneFormWins: of --json and --yaml the one that was typed last holds.
func TestOneFormWins(t *testing.T) {
	w := newWorld(t)
	w.documented()
	if r := w.shell("sprio --json --yaml"); r.code != 0 || json.Valid([]byte(r.out)) {
		t.Errorf("%d %s", r.code, r.out)
	}
	if r := w.shell("scontrol show config --yaml --json"); r.code != 0 || !json.Valid([]byte(r.out)) {
		t.Errorf("%d %s", r.code, r.out)
	}
}

// TestDocumentsSayWhoAnswers: every command that has --json prints one document with the same
// frame: meta with the cluster, errors and warnings. Streams of events have one object a line.
func TestDocumentsSayWhoAnswers(t *testing.T) {
	streams := []string{"audit", "events", "traces"}
	for _, entry := range commandEntries() {
		command := entry.Make()
		hasJSON := slices.ContainsFunc(command.Options, func(o opt.Option) bool { return o.Long == "json" })
		if !hasJSON || slices.Contains(streams, command.Name) {
			continue
		}
		t.Run(command.Name, func(t *testing.T) {
			w := everything(t)
			line := cmp.Or(samples()[command.Name]["json"].line, usual()[command.Name])
			line = strings.ReplaceAll(line, "DIR", w.dir)
			r := w.shell(line + " --json")
			var doc any
			if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
				t.Fatalf("$ %s --json\n%v %s%s", line, err, r.out, r.errOut)
			}
			cluster := "peer"
			if command.Name == "simulate" {
				cluster = "" // it asks none
			}
			if got := valueIn(t, doc, "meta", "slurm", "cluster"); got != cluster {
				t.Errorf("$ %s --json: cluster %v", line, got)
			}
			for _, key := range []string{"errors", "warnings"} {
				if got, ok := valueIn(t, doc, key).([]any); !ok || len(got) != 0 {
					t.Errorf("$ %s --json: %s is %v", line, key, valueIn(t, doc, key))
				}
			}
		})
	}
}
