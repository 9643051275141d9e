package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// priorities are the six jobs of which a real sprio printed the goldens.
func (w *world) priorities() {
	tres := func(cpu, mem, gpu float64) []*apiv1.NamedFactor {
		out := []*apiv1.NamedFactor{{Name: "cpu", Weighted: cpu, Norm: cpu / 1000}, {Name: "mem", Weighted: mem, Norm: mem / 1000}}
		if gpu > 0 {
			out = append(out, &apiv1.NamedFactor{Name: "gres/gpu", Weighted: gpu, Norm: gpu / 1000})
		}
		return out
	}
	job := func(id uint32, part string, total uint32, size, partition, qos float64, t []*apiv1.NamedFactor) *apiv1.JobPriority {
		j := &apiv1.JobPriority{JobId: id, Partition: part, User: "alice", Account: "ml", Qos: "normal", Priority: total, FairShare: 5000, FairShareNorm: 0.5, JobSize: size, JobSizeNorm: size / 1000,
			PartitionPart: partition, PartitionNorm: partition / 1000, QosPart: qos, QosNorm: qos / 2000, Tres: t}
		if id < 20 {
			j.Age, j.AgeNorm = 0.0546, 0.0000546
		}
		return j
	}
	rep := &apiv1.PrioritiesReply{Cluster: "peer", Weights: &apiv1.PriorityWeights{Age: 1000, FairShare: 10000, JobSize: 1000, Partition: 1000, Qos: 2000,
		Tres: []*apiv1.NamedFactor{{Name: "cpu", Weighted: 1000}, {Name: "mem", Weighted: 1000}, {Name: "gres/gpu", Weighted: 3000}}}}
	rep.Jobs = []*apiv1.JobPriority{job(22, "gpu", 8396, 281.25, 100, 2000, tres(62.5, 15.625, 937.5)), job(8, "gpu", 6178, 843.75, 100, 0, tres(187.5, 46.875, 0)), job(9, "gpu", 13834, 1000, 100, 0, tres(6187.5, 1546.875, 0)),
		job(11, "debug", 6359, 281.25, 1000, 0, tres(62.5, 15.625, 0)), job(20, "gpu", 7646, 281.25, 100, 2000, tres(62.5, 15.625, 187.5)), job(21, "gpu", 7646, 281.25, 100, 2000, tres(62.5, 15.625, 187.5))}
	w.reply[tool.MethodPriorities] = func(proto.Message) (proto.Message, error) { return rep, nil }
}

// shares is the tree of which a real sshare printed the goldens.
func (w *world) shares(user string) {
	run := []*apiv1.NamedCount{{Name: "cpu", N: 240}, {Name: "mem", N: 120000}}
	w.tree = &apiv1.SharesReply{Cluster: "peer", FairTree: true, User: user, Shares: []*apiv1.Share{
		{Account: "root", RawShares: 1, RawUsage: 13, EffectiveUsage: 1, TresRunMins: run},
		{Parent: 1, Depth: 1, Account: "root", User: "root", RawShares: 1, NormShares: 1.0 / 81, RawUsage: 1, NormUsage: 0.142850, EffectiveUsage: 0.142850, Factor: 0.25, LevelFs: 0.0864239},
		{Parent: 1, Depth: 1, Account: "ml", RawShares: 50, NormShares: 50.0 / 81, RawUsage: 11, NormUsage: 0.857150, EffectiveUsage: 0.857150, LevelFs: 0.720159, TresRunMins: run},
		{Parent: 3, Depth: 2, Account: "ml", User: "alice", RawShares: 1, NormShares: 1.0 / 21, RawUsage: 11, NormUsage: 0.857150, EffectiveUsage: 1, Factor: 0.5, LevelFs: 0.047619, TresRunMins: run},
		{Parent: 3, Depth: 2, Account: "vision", RawShares: 20, NormShares: 20.0 / 21, LevelInfinite: true},
		{Parent: 4, Depth: 3, Account: "vision", User: "carol", RawShares: 5, NormShares: 1, Factor: 0.75, LevelInfinite: true},
		{Parent: 1, Depth: 1, Account: "physics", RawShares: 30, NormShares: 30.0 / 81, LevelInfinite: true},
		{Parent: 5, Depth: 2, Account: "physics", User: "bob", RawShares: 1, NormShares: 1, Factor: 1, LevelInfinite: true},
	}}
	w.reply[tool.MethodShares] = func(proto.Message) (proto.Message, error) { return w.tree, nil }
}

func TestPriorityOptions(t *testing.T) {
	w := newWorld(t)
	w.priorities()
	for line, want := range map[string]string{
		"sprio -h -j 8 -o %i|%r|%u|%o|%n|%Y|%N|%c":        "8|gpu|alice|ml|normal|6178|0|peer\n",
		"sprio -h -S -Y,i -o %i":                          "9\n22\n20\n21\n11\n8\n",
		"sprio -h -p debug -o %i,%T,%t,%q,%Q":             "11,cpu=62,mem=16,cpu=0.06,mem=0.02,0.0000000,0\n",
		"sprio -h -u bob":                                 "",
		"sshare -n -P -o account,fairshare -A physics -a": "physics|\n physics|1.000000\n",
		"sshare -n -P -U -o user,rawshares%5":             "alice|1\n",
		"sshare -nP -u carol -A vision": "vision||20|0.952381|0|0.000000|\n" +
			" vision|carol|5|1.000000|0|0.000000|0.750000\n",
	} {
		w.shares("alice")
		if got := w.shell(line); got.out != want || got.code != 0 {
			t.Errorf("%s: %q (%d %s), want %q", line, got.out, got.code, got.errOut, want)
		}
	}
	if got := w.shell("sprio -j 99"); got.code != 0 || !strings.HasPrefix(got.errOut, "Unable to find jobs") {
		t.Errorf("sprio of a job that does not wait: exit %d, %q", got.code, got.errOut)
	}
	for line, want := range map[string]string{
		"sprio -o %z":      "Invalid job format",
		"sprio -S z":       "Invalid sort",
		"sprio -j x":       "Invalid job id",
		"sshare -o nosuch": "Invalid field requested",
	} {
		if got := w.shell(line); got.code == 0 || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: %q (%d), want %q", line, got.errOut, got.code, want)
		}
	}
}
