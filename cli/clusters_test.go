package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// twoClusters are north, where commands are typed, and south, which north knows.
func twoClusters(t *testing.T) (north, south *world) {
	north, south = newWorld(t), newWorld(t)
	for name, w := range map[string]*world{"north": north, "south": south} {
		w.jobs = []*apiv1.JobInfo{{JobId: 7, Spec: &apiv1.JobSpec{Name: "of-" + name}}}
		w.reply[tool.MethodPing] = func(proto.Message) (proto.Message, error) {
			return &apiv1.PingReply{
				Cluster:  name,
				Clusters: []*apiv1.KnownCluster{{Name: "south", Socket: south.socket}},
			}, nil
		}
	}
	return north, south
}

// outward runs a line as a user types it: -M may lead to other clusters.
func (w *world) outward(line string) result {
	w.t.Helper()
	words, err := tool.ShellWords(line)
	if err != nil {
		w.t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	env := w.world(words, &out, &errOut)
	env.Outward = true
	code := Main(env)
	return result{code, out.String(), errOut.String()}
}

// TestClustersOfM: which clusters are asked, in which order, and what is printed above each.
func TestClustersOfM(t *testing.T) {
	north, south := twoClusters(t)
	const ofNorth, ofSouth = "CLUSTER: north\nJOBID NAME\n7 of-north\n", "CLUSTER: south\nJOBID NAME\n7 of-south\n"
	for names, want := range map[string]string{
		"":                  "JOBID NAME\n7 of-north\n",
		"-M north":          ofNorth,
		"-M south":          ofSouth,
		"-M south,north":    ofSouth + "\n" + ofNorth,
		"-M all":            ofNorth + "\n" + ofSouth,
		"-M south,ALL":      ofSouth + "\n" + ofNorth,
		"-M north,north":    ofNorth,
		"-M south -M north": ofNorth,
		"-h -M south,north": "7 of-south\n7 of-north\n",
	} {
		if r := north.outward(`squeue -o "%i %j" ` + names); r.code != 0 || r.out != want {
			t.Errorf("squeue %s: exit code %d, %q %q, want %q", names, r.code, r.out, r.errOut, want)
		}
	}
	north.forget()
	south.forget()
	if r := north.outward("scancel -M south 7"); r.code != 0 {
		t.Errorf("scancel -M south 7: %d, %s", r.code, r.errOut)
	}
	if cancelled := south.last(tool.MethodCancel).(*apiv1.CancelRequest); len(cancelled.GetFilter().GetJobs()) != 1 {
		t.Errorf("scancel -M south 7: south was asked %v", cancelled)
	}
	if slices.ContainsFunc(north.seen, func(s seenRequest) bool { return s.method == tool.MethodCancel }) {
		t.Error("scancel -M south 7 cancels in north too")
	}
}

// TestOwnClusterWithin: a command that runs in the controller may name its cluster. What carries
// its questions there cannot be compared.
func TestOwnClusterWithin(t *testing.T) {
	north, _ := twoClusters(t)
	var out, errOut bytes.Buffer
	env := north.world([]string{"squeue", "-h", "-o", "%j", "-M", "north"}, &out, &errOut)
	dial := env.Dial
	env.Dial = func(ctx context.Context) (tool.Conn, error) {
		conn, err := dial(ctx)
		return uncomparable{Conn: conn}, err
	}
	if code := Main(env); code != 0 || out.String() != "of-north\n" {
		t.Errorf("exit code %d, %q %q", code, out.String(), errOut.String())
	}
}

// uncomparable is a connection that holds functions, as those of tool.Within do.
type uncomparable struct {
	tool.Conn
	_ []func()
}

// TestClustersRefused: what cannot be asked ends with an error that says why, before anything is
// changed.
func TestClustersRefused(t *testing.T) {
	north, south := twoClusters(t)
	refused := func(r result, part string) {
		t.Helper()
		if r.code != 1 || r.out != "" || !strings.Contains(r.errOut, part) {
			t.Errorf("exit code %d, %q %q, want %q", r.code, r.out, r.errOut, part)
		}
	}
	refused(north.outward("squeue -h -M north,east"), "No cluster 'east' known by database.")
	refused(north.outward("scontrol -M all show job 7"), "Only one cluster can be used at a time with scontrol")
	refused(north.shell("squeue -h -M south"), "commands of this kind stay in cluster north")
	north.env[tool.TokenVariable] = "a-token"
	refused(north.outward("squeue -h -M south"), tool.TokenVariable+" holds a token for cluster north")
	delete(north.env, tool.TokenVariable)
	south.reply[tool.MethodPing] = func(proto.Message) (proto.Message, error) {
		return &apiv1.PingReply{Cluster: "east"}, nil
	}
	r := north.outward("squeue -h -M south")
	if r.code != 1 || !strings.Contains(r.errOut, south.socket+" belongs to cluster east") {
		t.Errorf("another cluster's socket: exit code %d, %q %q", r.code, r.out, r.errOut)
	}
	if slices.ContainsFunc(south.seen, func(s seenRequest) bool { return s.method != tool.MethodPing }) {
		t.Errorf("a cluster of another name was asked: %v", south.seen)
	}
}

// TestOneClusterFails: the others still answer, and the exit code tells.
func TestOneClusterFails(t *testing.T) {
	north, south := twoClusters(t)
	south.reply[tool.MethodStreamJobs] = func(proto.Message) (proto.Message, error) {
		return nil, rpcstatus.New(rpcstatus.Internal, "it broke")
	}
	r := north.outward(`squeue -h -o "%i %j" -M south,north`)
	if want := "7 of-north\n"; r.code != 1 || r.out != want {
		t.Errorf("exit code %d, %q, want %q", r.code, r.out, want)
	}
	if !strings.Contains(r.errOut, "it broke") {
		t.Errorf("why a cluster failed is not told: %q", r.errOut)
	}
}

// TestEarliestCluster: of several clusters the job goes to the one that starts it first; of equal
// ones to this one, then to the one that was named first.
func TestEarliestCluster(t *testing.T) {
	for names, cases := range map[string][]struct {
		north, south int64 // planned starts; -1: it refuses the job
		want         string
	}{
		"north,south": {{5, 3, "south"}, {3, 5, "north"}, {4, 4, "north"}, {-1, 9, "south"}, {9, -1, "north"}},
		"south,north": {{5, 3, "south"}, {3, 5, "north"}, {4, 4, "north"}},
		"south":       {{1, 9, "south"}},
	} {
		for _, c := range cases {
			north, south := twoClusters(t)
			for w, start := range map[*world]int64{north: c.north, south: c.south} {
				w.reply[tool.MethodSubmit] = func(req proto.Message) (proto.Message, error) {
					switch {
					case start < 0:
						return nil, rpcstatus.New(rpcstatus.Internal, "it refuses")
					case req.(*apiv1.SubmitRequest).GetTestOnly():
						return &apiv1.SubmitReply{PlannedStart: start}, nil
					}
					return &apiv1.SubmitReply{JobId: 7}, nil
				}
			}
			r := north.outward("sbatch --parsable --wrap true -M " + names)
			if r.code != 0 || r.out != "7;"+c.want+"\n" {
				t.Errorf("%s, starts %d and %d: exit code %d, %q %q, want %s", names, c.north, c.south, r.code, r.out, r.errOut, c.want)
			}
		}
	}
	north, south := twoClusters(t)
	for _, w := range []*world{north, south} {
		w.reply[tool.MethodSubmit] = func(proto.Message) (proto.Message, error) {
			return nil, rpcstatus.New(rpcstatus.Internal, "it refuses")
		}
	}
	r := north.outward("sbatch --wrap true -M all")
	if r.code != 1 || !strings.Contains(r.errOut, "none of the clusters takes the job") {
		t.Errorf("both refuse: exit code %d, %q", r.code, r.errOut)
	}
}

// TestCallsInOrder: sdiag sorts the tables of calls as it is asked.
func TestCallsInOrder(t *testing.T) {
	w := newWorld(t)
	const millisecond = 1_000_000
	w.diag = &apiv1.DiagReply{Now: w.now, Methods: []*apiv1.CallFigure{
		{Name: "Cluster/ListJobs", Count: 9, Nanos: 9 * millisecond},
		{Name: "Cluster/ListNodes", Count: 1, Nanos: 8 * millisecond},
		{Name: "Cluster/Submit", Count: 3, Nanos: 6 * millisecond},
	}}
	for option, want := range map[string]string{
		"":   "REQUEST_JOB_INFO Cluster/Submit REQUEST_NODE_INFO",
		"-i": "Cluster/Submit REQUEST_JOB_INFO REQUEST_NODE_INFO",
		"-t": "REQUEST_JOB_INFO REQUEST_NODE_INFO Cluster/Submit",
		"-T": "REQUEST_NODE_INFO Cluster/Submit REQUEST_JOB_INFO",
	} {
		var names []string
		for line := range strings.Lines(w.shell("sdiag " + option).out) {
			if strings.Contains(line, " count:") {
				names = append(names, strings.Fields(line)[0])
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("sdiag %s: %s, want %s", option, got, want)
		}
	}
}

// TestReportsOfClusters: sreport asks the accounting of each cluster that is named.
func TestReportsOfClusters(t *testing.T) {
	north, south := twoClusters(t)
	for name, w := range map[string]*world{"north": north, "south": south} {
		w.reply[tool.MethodAcctReport] = func(proto.Message) (proto.Message, error) {
			return &apiv1.ReportReply{
				Cluster: name,
				Columns: []*apiv1.ReportColumn{{Name: "Cluster", Unit: "text"}},
				Rows:    []*apiv1.ReportRow{{Cells: []*apiv1.Cell{{Kind: &apiv1.Cell_Text{Text: name}}}}},
			}, nil
		}
	}
	for options, want := range map[string]string{
		"cluster util":              "north",
		"-M south cluster util":     "south",
		"-M all cluster util":       "north south",
		"-a cluster util":           "north south",
		"cluster util all_clusters": "north south",
		"-M south,north user top":   "south north",
	} {
		r := north.outward("sreport -n -P --json " + options)
		var clusters []string
		decoder := json.NewDecoder(strings.NewReader(r.out))
		for decoder.More() {
			var doc struct{ Cluster string }
			if err := decoder.Decode(&doc); err != nil {
				t.Fatalf("sreport %s: %v: %s%s", options, err, r.out, r.errOut)
			}
			clusters = append(clusters, doc.Cluster)
		}
		if got := strings.Join(clusters, " "); got != want || r.code != 0 {
			t.Errorf("sreport %s: %d %q, wanted %q %s", options, r.code, got, want, r.errOut)
		}
	}
}
