package policy_test

import (
	"testing"

	"github.com/musterhpc/muster/scheduler/policy"
)

// FuzzLoad: a file of sacctmgr load is refused as a whole, or what it plans can be applied to the
// ledger, breaks no invariant, and is dumped as something that loads again.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		"Cluster - 'mycluster':Fairshare=1:QOS='normal'\nParent - 'root'\nAccount - 'good':Description='a: b':Organization='o'\n" +
			"Parent - 'good'\nUser - 'v':MaxWall=2-00:00:00:MaxJobs=3:DefaultAccount='good'\n",
		"QOS - 'q':Priority=5:GrpTRES=cpu=4,gres/gpu=2:Preempt='normal':UsageFactor=0.5\nCluster - 'mycluster'\n",
		"Parent - 'root'\nUser - 'root':AdminLevel=Administrator:Coordinator='root'\n# a comment\n\nAccount - 'a':GrpTRESMins=cpu=1:Fairshare=parent\n",
	} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, clean bool) {
		s := open(t)
		events, _, err := policy.Load(s.Freeze(), text, clean)
		if err != nil {
			if len(events) > 0 || err.Error() == "" {
				t.Fatalf("%d events beside %q", len(events), err)
			}
			return
		}
		put(t, s, events...)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		dump := policy.Dump(s)
		fresh := open(t)
		events, _, err = policy.Load(fresh.Freeze(), dump, false)
		if err != nil {
			t.Fatalf("what was loaded is dumped as what does not load: %v\n%s", err, dump)
		}
		put(t, fresh, events...)
		if err := fresh.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
