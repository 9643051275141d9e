package scheduler_test

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/scheduler"
)

// What a pass proposed for a job is dropped when another has got it meanwhile,
// whatever it is. Where it is not CPUs they share these.
func TestWhatWasTakenMeanwhileIsNotGivenAgain(t *testing.T) {
	for name, tc := range map[string]struct{ first, meanwhile string }{
		"CPUs":                     {"sbatch -n4", "sbatch -n1"},
		"a GPU, of which a part":   {"sbatch -p shared --gres=gpu:1", "sbatch -p shared --gres=shard:1"},
		"parts, of which too many": {"sbatch -p shared --gres=shard:2", "sbatch -p shared --gres=shard:1"},
		"parts of the whole":       {"sbatch -p shared --gres=shard:1", "sbatch -p shared --gres=gpu:1"},
		"licences":                 {"sbatch -p shared -L lic:3", "sbatch -p shared -L lic:1"},
		"what a user may have":     {"sbatch -p shared --qos=tight -n2", "sbatch -p shared --qos=tight -n1"},
		"what a component needs":   {"sbatch -p shared -n1 : -p shared -n1 -L lic:3", "sbatch -p shared -L lic:1"},
		"the node":                 {"sbatch", "reserve r nodes=n1 users=alice starttime=now duration=60"},
		"the node, later":          {"sbatch --time=60", "reserve r nodes=n1 users=alice starttime=now+0:30:00 duration=60"},
		"some cores":               {"sbatch -n4", "reserve r corecnt=2 nodes=n1 users=alice starttime=now duration=60"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			shared := ""
			if strings.Contains(tc.first, "-p shared") {
				shared = "\nPartitionName=shared Nodes=n1 OverSubscribe=FORCE:4 DefaultTime=60"
			}
			s.configure("GresTypes=gpu,shard\nDefMemPerCPU=100\nAccountingStorageEnforce=limits\nLicenses=lic:3\nNodeName=n1 CPUs=4 RealMemory=1000 Gres=gpu:1,shard:2\nPartitionName=p Nodes=n1 Default=YES DefaultTime=60" + shared)
			s.run("sacctmgr add qos tight MaxTRESPerUser=cpu=2")
			s.run("register n1")
			s.run(tc.first)
			out, err := scheduler.Pass(s.head.Freeze(), s.now, scheduler.PassOptions{})
			if err != nil || len(out.Starts) == 0 {
				t.Fatalf("%s: %d start, %v\n%s", tc.first, len(out.Starts), err, s.out)
			}
			s.run("hold 1")
			s.run(tc.meanwhile)
			s.run("pass")
			s.run("release 1")
			if s.head.Seq == out.Plan.Seq || s.head.Active.Len()+len(s.head.Reservations) != 1 {
				t.Fatalf("%s did nothing\n%s", tc.meanwhile, s.out)
			}
			if res := s.must(scheduler.Starts{Proposal: &out.Proposal}); res.Started != 0 || res.Stale != len(out.Starts) {
				t.Errorf("%d started, %d were dropped\n%s", res.Started, res.Stale, s.out)
			}
			s.check()
		})
	}
}
