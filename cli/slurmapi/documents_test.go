package slurmapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/schema"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// fullJob has something in most fields.
func fullJob(id uint32) *apiv1.JobInfo {
	return &apiv1.JobInfo{
		Uid: uint64(id), JobId: id, User: "ada", UserId: 1000, Group: "users", GroupId: 100, State: uint32(spec.Running), Priority: 4000000000, Restarts: 1,
		Spec: &apiv1.JobSpec{Name: "train", Account: "physics", Partitions: []string{"gpu"}, MinNodes: 1, MaxNodes: 2, Tasks: 8, CpusPerTask: 4, MemPerNode: 64000, Qos: "normal",
			WorkDir: "/home/ada/runs/2026", Stdout: "slurm-%j.out", Comment: "a run of many", MailTypes: []string{"END", "FAIL"}, Constraint: "h100&nvlink", Sharing: uint32(spec.Oversubscribe),
			PerNode: []*apiv1.Count{{Name: "gpu", Type: "h100", N: 4}}, Licenses: []*apiv1.Count{{Name: "matlab", N: 2}}, SubmitLine: "sbatch --gres=gpu:h100:4 train.sh", Command: "/home/ada/train.sh"},
		Reason: &apiv1.Reason{Code: "None"}, Submit: 1.7e18, Eligible: 1.7e18, Start: 1.7e18 + 5e9, End: 1.7e18 + 3605e9, TimeLimit: 3600e9, Partition: "gpu", Nodes: "node[1-2]", BatchHost: "node1",
		NumNodes: 2, NumCpus: 64, NumTasks: 8, ReqTres: &apiv1.Tres{Cpu: 64, Mem: 128000, Node: 2, Billing: 64}, AllocTres: &apiv1.Tres{Cpu: 64, Mem: 128000, Node: 2, Billing: 64, Other: []*apiv1.NamedCount{{Name: "gres/gpu", N: 8}}},
		Allocation: []*apiv1.NodeAlloc{{Name: "node1", Cpus: []uint64{0xffffffff}, Mem: 64000, Gpus: []*apiv1.GpuRef{{Uuid: "GPU-1", Type: "h100"}, {Uuid: "GPU-2", Index: 1, Type: "h100"}}},
			{Name: "node2", Cpus: []uint64{0xffffffff}, Mem: 64000}},
		Backfilled: true, Stdout: "/home/ada/runs/2026/slurm-1.out", Stderr: "/home/ada/runs/2026/slurm-1.out", Qos: "normal",
	}
}

// What commands put into their documents has a place in some version of the API, with
// a value of the right kind: else it would be lost on the way.
func TestNothingIsLost(t *testing.T) {
	env := &tool.Env{Now: time.Now, Loc: time.UTC, API: &tool.API{Cluster: "muster"}, UserName: func(uint32) string { return "" }}
	call := &tool.Call{Env: env, Opts: opt.New()}
	view := &render.NodeView{Clock: render.NewClock(env), Cluster: "muster", UID: func(string) string { return "" }}
	count := []*apiv1.NamedCount{{Name: "gres/gpu", N: 4}}
	one := &apiv1.OptionalInt{Value: 1}
	policy := &apiv1.PolicyReply{Cluster: "muster", Accounts: []*apiv1.Account{{Name: "physics", Coordinators: []string{"ada"}}},
		Users: []*apiv1.AccountingUser{{Name: "ada", DefaultAccount: "physics", AdminLevel: "Operator"}}, Wckeys: []*apiv1.WcKey{{Id: 1, Name: "w", User: "ada"}},
		Qos:          []*apiv1.Qos{{Id: 1, Name: "normal", Flags: []string{"DenyOnLimit"}, PreemptMode: "requeue", GrpTres: count, MaxTresPerJob: count, MinPrio: one, MaxWall: 6e13, UsageThreshold: one}},
		Associations: []*apiv1.Association{{Id: 1, Account: "root"}, {Id: 2, Account: "physics", User: "ada", Parent: 1, MaxJobs: one, GrpTres: count, MaxWall: 6e13, Qos: []string{"normal"}}}}
	documents := &render.PolicyView{Policy: policy, Config: &apiv1.GetConfigReply{}}
	for name, doc := range map[string]any{
		"job_info": render.JobTree(call, fullJob(1)), "partition_info": render.PartitionTree(&apiv1.PartitionInfo{Name: "gpu", MaxTime: -1, State: 1}),
		"node": render.NodeTree(&apiv1.NodeInfo{Name: "node1", State: "IDLE", LoadMilli: 100, Gpus: []*apiv1.GpuInfo{{Uuid: "GPU-1"}}}, view),
		"qos":  render.QOSTree(policy.GetQos()[0]), "user": documents.UserTree(policy.GetUsers()[0]), "account": documents.AccountTree(policy.GetAccounts()[0]),
		"assoc": documents.AssociationTree(documents.TreeRows()[1]), "cluster_rec": documents.ClusterTree(), "wckey": documents.WCKeyTree(policy.GetWckeys()[0]),
	} {
		var lost []string
		for i, v := range schema.Versions() {
			found := schema.Of(v).Type(name).Mismatches(doc)
			if i == 0 {
				lost = found
			}
			lost = slices.DeleteFunc(lost, func(text string) bool { return !slices.Contains(found, text) })
		}
		for _, text := range lost {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// jobsHost answers with a list of jobs.
func jobsHost(jobs []*apiv1.JobInfo) Host {
	return Host{Cluster: "muster", Now: time.Now, Changed: func() int64 { return 0 }, Log: slog.New(slog.DiscardHandler),
		Caller: func(context.Context) (string, uint32) { return "ada", 1000 },
		Convert: func(err error) (*rpcstatus.Error, int) {
			return rpcstatus.Convert(err, rpcstatus.Numbers()), http.StatusInternalServerError
		},
		Call: func(context.Context, string, proto.Message, proto.Message) error { return nil },
		Stream: func(context.Context, string, proto.Message) (tool.Receiver, error) {
			return &jobsStream{jobs: jobs}, nil
		}}
}

type jobsStream struct{ jobs []*apiv1.JobInfo }

func (s *jobsStream) Recv(resp proto.Message) error {
	if len(s.jobs) == 0 {
		return io.EOF
	}
	n := min(len(s.jobs), 500)
	rep, ok := resp.(*apiv1.ListJobsReply)
	if !ok {
		return fmt.Errorf("asked for a %T", resp)
	}
	rep.Jobs, s.jobs = s.jobs[:n], s.jobs[n:]
	return nil
}

func (*jobsStream) Close() {}

// counter counts what is written and remembers how much memory was in use.
type counter struct {
	header http.Header
	n      int
	most   uint64
	base   uint64
}

func (c *counter) Header() http.Header { return c.header }
func (c *counter) WriteHeader(int)     {}

func (c *counter) Write(b []byte) (int, error) {
	if c.n>>22 != (c.n+len(b))>>22 { // every 4 MiB
		c.most = max(c.most, inUse()-min(c.base, inUse()))
	}
	c.n += len(b)
	return len(b), nil
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// BenchmarkJobs writes 10,000 jobs of 8 CPUs and two GPUs on one node. The aim is
// 300 ms, and 60 MiB beyond the jobs themselves.
func BenchmarkJobs(b *testing.B) { benchmarkJobs(b, "identity") }

func benchmarkJobs(b *testing.B, accept string) {
	var jobs []*apiv1.JobInfo
	for i := range uint32(10_000) {
		j := fullJob(i + 1)
		j.Allocation = j.GetAllocation()[:1]
		j.Allocation[0].Cpus = []uint64{0xff}
		jobs = append(jobs, j)
	}
	api := New(jobsHost(jobs))
	r := httptest.NewRequest(http.MethodGet, "/slurm/v0.0.44/jobs", nil)
	r.Header.Set("Accept-Encoding", accept)
	runtime.GC()
	w := &counter{base: inUse()}
	for b.Loop() {
		w.header, w.n = http.Header{}, 0
		api.ServeHTTP(w, r)
	}
	b.ReportMetric(float64(w.n)/(1<<20), "MiB/answer")
	b.ReportMetric(float64(w.most)/(1<<20), "MiB/heap")
}

// A long answer is one JSON document, whatever is written in pieces.
func TestManyJobs(t *testing.T) {
	var jobs []*apiv1.JobInfo
	for i := range uint32(300) {
		jobs = append(jobs, fullJob(i+1))
	}
	for _, v := range schema.Versions() {
		w := httptest.NewRecorder()
		New(jobsHost(jobs)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/slurm/"+v.String()+"/jobs/?flags=DETAIL&color=red", nil))
		var doc struct {
			Jobs []struct {
				ID int `json:"job_id"`
			}
			Warnings []map[string]string
			Meta     struct{ Plugin map[string]string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || len(doc.Jobs) != 300 || doc.Jobs[299].ID != 300 {
			t.Fatalf("%s: %v, %d jobs", v, err, len(doc.Jobs))
		}
		if len(doc.Warnings) != 1 || !strings.Contains(doc.Warnings[0]["description"], "color") || doc.Meta.Plugin["data_parser"] != "data_parser/"+v.String() {
			t.Errorf("%s: warnings %v, plugin %v", v, doc.Warnings, doc.Meta.Plugin)
		}
	}
}

// A client that takes gzip gets the same document, smaller; one that does not, and a
// short answer, get it as it is.
func TestAnswersAreCompressed(t *testing.T) {
	var jobs []*apiv1.JobInfo
	for i := range uint32(300) {
		jobs = append(jobs, fullJob(i+1))
	}
	ask := func(path, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		w := httptest.NewRecorder()
		New(jobsHost(jobs)).ServeHTTP(w, r)
		if w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: Vary is %q", path, w.Header().Get("Vary"))
		}
		return w
	}
	const path = "/slurm/v0.0.44/jobs"
	plain := ask(path, "").Body.Bytes()
	for accept, want := range map[string]bool{"gzip": true, "deflate, GZIP;q=0.5": true, "br": false, "gzip;q=0": false, "gzip; q=0.0, br": false, "gzip;q=x": false} {
		w := ask(path, accept)
		body := w.Body.Bytes()
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("%q: compressed %v", accept, got)
			continue
		}
		if want {
			if len(body)*4 > len(plain) {
				t.Errorf("%q: %d bytes of %d", accept, len(body), len(plain))
			}
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		var doc struct {
			Jobs []json.RawMessage `json:"jobs"`
		}
		if err := json.Unmarshal(body, &doc); err != nil || len(doc.Jobs) != 300 {
			t.Errorf("%q: %d jobs, %v", accept, len(doc.Jobs), err)
		}
	}
	jobs = nil
	held := &held{to: httptest.NewRecorder(), gzips: true}
	if _, err := held.Write([]byte("{}")); err != nil || held.finish() != nil || held.zip != nil {
		t.Errorf("a short answer is compressed (%v)", err)
	}
}

// BenchmarkJobsCompressed is BenchmarkJobs for a client that takes gzip.
func BenchmarkJobsCompressed(b *testing.B) {
	benchmarkJobs(b, "gzip")
}
