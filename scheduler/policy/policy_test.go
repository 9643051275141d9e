package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func open(t failer) *state.State {
	s := state.New()
	put(t, s, &event.ClusterCreated{Name: "mycluster", Version: event.Version}, &event.ConfigAdopted{Config: &spec.Config{
		Partitions: []spec.PartitionSpec{{Name: "gpu"}, {Name: "cpu"}}}},
		&event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal", Description: "Normal QOS default"}},
		&event.AccountPut{Account: spec.Account{Name: "root", Description: "default root account", Organization: "root"}},
		&event.AssociationPut{Association: spec.Association{ID: 1, Account: "root", Shares: 1, QOS: []string{"normal"}}},
		&event.UserPut{User: spec.User{Name: "root", DefaultAccount: "root", AdminLevel: "Administrator"}},
		&event.AssociationPut{Association: spec.Association{ID: 2, Account: "root", User: "root", Parent: 1, Shares: 1}})
	return s
}

func put(t failer, s *state.State, events ...event.Event) {
	t.Helper()
	for _, e := range events {
		if err := s.Apply(&event.Envelope{Seq: s.Seq + 1, Event: e}); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// command reads a sacctmgr line as the tool does.
func command(line string) policy.Change {
	args := strings.Fields(line)[1:]
	c := policy.Change{Verb: map[string]policy.Verb{"add": policy.Add, "modify": policy.Modify, "delete": policy.Delete}[args[0]], Entity: args[1]}
	to := &c.Where
	if c.Verb == policy.Add {
		to = &c.Set
	}
	for _, a := range args[2:] {
		k, v, pair := strings.Cut(a, "=")
		switch {
		case a == "set":
			to = &c.Set
		case a == "where":
			to = &c.Where
		case !pair:
			c.Names = append(c.Names, strings.Split(a, ",")...)
		default:
			*to = append(*to, spec.KeyValue{Key: strings.ToLower(k), Value: v})
		}
	}
	return c
}

func run(t failer, s *state.State, line string) ([]string, error) {
	t.Helper()
	events, names, err := policy.Plan(s.Freeze(), command(line))
	if err != nil {
		return nil, err
	}
	put(t, s, events...)
	if err := s.Check(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return names, nil
}

func must(t failer, s *state.State, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if _, err := run(t, s, l); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
}

// TestGuide runs the five commands of every Slurm guide, word for word.
func TestGuide(t *testing.T) {
	s := open(t)
	must(t, s, "sacctmgr add cluster mycluster",
		"sacctmgr add account research_lab cluster=mycluster fairshare=40",
		"sacctmgr add user alice account=research_lab defaultaccount=research_lab",
		"sacctmgr add qos gpu_priority MaxTRESPerUser=cpu=256,gres/gpu=8 MaxWallDurationPerJob=48:00:00 Priority=100",
		"sacctmgr modify user alice set qos+=gpu_priority")
	p := s.Policy
	q := p.FindQOS("gpu_priority")
	if q == nil || q.MaxTRESPerUser.String() != "cpu=256,gres/gpu=8" || q.MaxWall != 48*spec.Hour || q.Priority != 100 {
		t.Errorf("the QOS is %+v", q)
	}
	if a := p.FindAssoc("research_lab", "", ""); a == nil || a.Shares != 40 {
		t.Errorf("the account's association is %+v", a)
	}
	if a := p.FindAssoc("research_lab", "alice", ""); a == nil || !slices.Equal(a.QOS, []string{"normal", "gpu_priority"}) {
		t.Errorf("alice's association is %+v", a)
	}
	if u := p.FindUser("alice"); u == nil || u.DefaultAccount != "research_lab" {
		t.Errorf("alice is %+v", u)
	}
}

// TestNames sets every field under each of its names and reads it back from
// the dump, where it stands under the long one.
func TestNames(t *testing.T) {
	for _, c := range []struct{ entity, long, value, others string }{
		{"qos", "Description", "'x'", "descr"}, {"qos", "Priority", "7", "prio"}, {"qos", "GraceTime", "60", "grace"},
		{"qos", "GrpJobs", "7", ""}, {"qos", "GrpJobsAccrue", "7", ""}, {"qos", "GrpSubmitJobs", "7", "GrpSubmit"},
		{"qos", "GrpTRES", "cpu=7", ""}, {"qos", "GrpTRESMins", "cpu=7", ""}, {"qos", "GrpTRESRunMins", "cpu=7", ""}, {"qos", "GrpWall", "01:00:00", ""},
		{"qos", "LimitFactor", "1.500000", ""}, {"qos", "MaxJobsAccruePerAccount", "7", "MaxJobsAccruePA"}, {"qos", "MaxJobsAccruePerUser", "7", "MaxJobsAccruePU"},
		{"qos", "MaxJobsPerAccount", "7", "MaxJobsPA"}, {"qos", "MaxJobsPerUser", "7", "MaxJobsPU MaxJobs"}, {"qos", "MaxSubmitJobsPerAccount", "7", "MaxSubmitJobsPA MaxSubmitPA"},
		{"qos", "MaxSubmitJobsPerUser", "7", "MaxSubmitJobsPU MaxSubmitPU MaxSubmitJobs"}, {"qos", "MaxTRESPerJob", "cpu=7", "MaxTRES MaxTRESPJ"},
		{"qos", "MaxTRESPerNode", "cpu=7", "MaxTRESPN"}, {"qos", "MaxTRESPerAccount", "cpu=7", "MaxTRESPA"}, {"qos", "MaxTRESPerUser", "cpu=7", "MaxTRESPU"},
		{"qos", "MaxTRESMinsPerJob", "cpu=7", "MaxTRESMins MaxTRESMinsPJ"}, {"qos", "MaxTRESRunMinsPerAccount", "cpu=7", "MaxTRESRunMinsPA"},
		{"qos", "MaxTRESRunMinsPerUser", "cpu=7", "MaxTRESRunMinsPU MaxTRESRunMins"}, {"qos", "MinTRESPerJob", "cpu=7", "MinTRES MinTRESPJ"},
		{"qos", "MaxWallDurationPerJob", "2-00:00:00", "MaxWall"}, {"qos", "MinPrioThreshold", "7", "MinPrio"}, {"qos", "Preempt", "'normal'", ""},
		{"qos", "PreemptExemptTime", "00:10:00", ""}, {"qos", "PreemptMode", "'REQUEUE'", ""}, {"qos", "UsageFactor", "0.000000", ""},
		{"qos", "UsageThreshold", "0.250000", "UsageThres"}, {"qos", "Flags", "'DenyOnLimit,NoDecay'", ""},
		{"account", "Description", "'x'", ""}, {"account", "Organization", "'x'", ""}, {"account", "Fairshare", "0", "share shares"}, {"account", "Fairshare", "parent", ""},
		{"account", "GrpJobs", "7", ""}, {"account", "GrpJobsAccrue", "7", ""}, {"account", "GrpSubmitJobs", "7", "GrpSubmit"}, {"account", "GrpTRES", "cpu=7", "GrpTRES"}, {"account", "GuaranteedTRES", "cpu=7", "Guaranteed"}, {"account", "OverQuotaWeight", "7", "OverQuota"},
		{"account", "GrpTRESMins", "cpu=7", ""}, {"account", "GrpTRESRunMins", "cpu=7", ""}, {"account", "GrpWall", "01:00:00", ""}, {"account", "MaxJobs", "7", ""},
		{"account", "MaxJobsAccrue", "7", ""}, {"account", "MaxSubmitJobs", "7", "MaxSubmit"}, {"account", "MaxTRESPerJob", "cpu=7", "MaxTRES MaxTRESPJ"},
		{"account", "MaxTRESPerNode", "cpu=7", "MaxTRESPN"}, {"account", "MaxTRESMinsPerJob", "cpu=7", "MaxTRESMins"}, {"account", "MaxWallDurationPerJob", "01:00:00", "MaxWall"},
		{"account", "MinPrioThreshold", "7", ""}, {"account", "Priority", "7", ""}, {"account", "Comment", "'x'", ""}, {"account", "DefaultQOS", "'normal'", ""}, {"account", "QOS", "'more'", "QOSLevel"},
	} {
		for _, name := range append([]string{c.long}, strings.Fields(c.others)...) {
			s := open(t)
			must(t, s, "sacctmgr add qos more", "sacctmgr add qos x", "sacctmgr add account x")
			must(t, s, fmt.Sprintf("sacctmgr modify %s x set %s=%s", c.entity, name, strings.Trim(c.value, "'")))
			if want := ":" + c.long + "=" + c.value; !strings.Contains(policy.Dump(s), want) {
				t.Errorf("%s %s: no %s in\n%s", c.entity, name, want, policy.Dump(s))
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	s := open(t)
	must(t, s, "sacctmgr add account lab", "sacctmgr add account team parent=lab", "sacctmgr add user alice account=team", "sacctmgr add user alice account=lab", "sacctmgr add qos q")
	before := policy.Dump(s)
	for line, want := range map[string]string{
		"sacctmgr add user dave account=lab qos=nope":                 "You gave a bad qos 'nope'. Valid QOS's are normal,q",
		"sacctmgr add user dave account=nope":                         `account "nope" does not exist`,
		"sacctmgr add user dave":                                      "needs an account",
		"sacctmgr add user dave account=lab partition=nope":           `partition "nope" does not exist`,
		"sacctmgr add user dave account=lab maxjobs=many":             "not a whole number",
		"sacctmgr add user dave account=lab color=red maxjobs=x":      "unknown option color of an association; maxjobs=x: not a whole number",
		"sacctmgr add account a parent=nope":                          `parent account "nope" does not exist`,
		"sacctmgr add account a cluster=other":                        `cluster "other" is not known here`,
		"sacctmgr add cluster other socket=run/muster.sock":           `expected an absolute path`,
		"sacctmgr add cluster other controlport=70000":                `a port is at most 65535`,
		"sacctmgr add cluster all":                                    `stands for every cluster`,
		"sacctmgr modify cluster other set socket=/run/x.sock":        `sacctmgr add cluster other socket=PATH`,
		"sacctmgr add cluster other fairshare=2":                      `fairshare`,
		"sacctmgr add qos a MaxTRES=cpus=3":                           `"cpus": unknown TRES`,
		"sacctmgr add qos a flags=Relativ":                            "is not known",
		"sacctmgr add qos a flags=relative MaxTRES=cpu=101":           "more than 100 per cent",
		"sacctmgr add qos a flags=relative MinTRES=energy=5":          "no whole",
		"sacctmgr add qos a MaxWall=0":                                "no time at all",
		"sacctmgr modify account lab set parent=team":                 "below itself",
		"sacctmgr modify qos nope set priority=1":                     `QOS "nope" does not exist`,
		"sacctmgr modify user alice where account=nope set maxjobs=1": "has no association there",
		"sacctmgr modify user alice set defaultaccount=nope":          "shall be the default",
		"sacctmgr modify user where color=red set maxjobs=1":          "unknown condition",
		"sacctmgr modify user set maxjobs=1":                          "everything at once is not changed",
		"sacctmgr modify account lab set rawusage=5":                  "can only be set to 0",
		"sacctmgr delete account lab":                                 `has a child, "team"`,
		"sacctmgr delete user alice where account=team":               "team of user alice",
		"sacctmgr delete qos normal":                                  "is in use by the association of account root",
		"sacctmgr delete account root":                                "cannot be deleted",
		"sacctmgr add coordinator nobody account=lab":                 `user "nobody" does not exist`,
		"sacctmgr add resource matlab server=s":                       "needs count=",
		"sacctmgr add resource matlab server=s count=5 allowed=150":   "at most 100 per cent",
		"sacctmgr add wckey k user=nobody":                            `user "nobody" does not exist`,
		"sacctmgr add association account=lab":                        "needs account= and user=",
		"sacctmgr modify qos q set maxwal=1 grptrse=cpu=1":            "unknown option grptrse of a qos (did you mean grptres?)",
		"sacctmgr add user erin acount=lab":                           "unknown option acount of a user (did you mean account?)",
		"sacctmgr modify qos q set max=1":                             "unknown option max",
		"sacctmgr add federation f":                                   "is not an entity that can be changed",
	} {
		_, err := run(t, s, line)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
		if got := policy.Dump(s); got != before {
			t.Fatalf("%s: was refused and changed\n%s", line, got)
		}
	}
}

// TestDeleteQOS takes a QOS out of what lists it, and refuses what would leave a
// partition or the root of the tree without one.
func TestDeleteQOS(t *testing.T) {
	s := open(t)
	must(t, s, "sacctmgr add account lab", "sacctmgr add qos a", "sacctmgr add qos b preempt=a", "sacctmgr add user alice account=lab qos=normal,a defaultqos=a",
		"sacctmgr modify account lab set qos=a", "sacctmgr delete qos a")
	for i := range s.Policy.Assocs {
		a := &s.Policy.Assocs[i]
		if slices.Contains(a.QOS, "a") || a.DefaultQOS == "a" {
			t.Errorf("%s %s still has %v, %q", a.Account, a.User, a.QOS, a.DefaultQOS)
		}
		if a.User == "alice" && !slices.Equal(a.QOS, []string{"normal"}) || a.User == "" && a.Account == "lab" && len(a.QOS) != 0 {
			t.Errorf("%s %s has %v", a.Account, a.User, a.QOS)
		}
	}
	if q := s.Policy.FindQOS("b"); len(q.Preempt) != 0 || s.Policy.FindQOS("a") != nil {
		t.Errorf("%+v", q)
	}
}

// TestKeysByPrefix are keys as people shorten them.
func TestKeysByPrefix(t *testing.T) {
	s := open(t)
	must(t, s, "sacctmgr add account lab", "sacctmgr modify account lab set grpjob=5 maxjob=3 grptresmin=cpu=7", "sacctmgr add qos q maxjob=2 maxsub=4")
	a, q := s.Policy.Assocs[len(s.Policy.Assocs)-1], s.Policy.FindQOS("q")
	if a.GrpJobs == nil || *a.GrpJobs != 5 || a.MaxJobs == nil || *a.MaxJobs != 3 || a.GrpJobsAccrue != nil || len(a.GrpTRESMins) != 1 {
		t.Errorf("%+v", a)
	}
	if q.MaxJobsPerUser == nil || *q.MaxJobsPerUser != 2 || q.MaxSubmitPerUser == nil || *q.MaxSubmitPerUser != 4 || q.MaxJobsPerAcct != nil {
		t.Errorf("%+v", q)
	}
}

func TestConditionsAndLists(t *testing.T) {
	s := open(t)
	must(t, s, "sacctmgr add account a,b org=o", "sacctmgr add account c parent=a", "sacctmgr add user u,v account=a,b", "sacctmgr add user u account=a partition=gpu",
		"sacctmgr add qos x,y,z", "sacctmgr modify user where account=b set maxjobs=3", "sacctmgr modify user u where account=a partition=gpu set maxjobs=9",
		"sacctmgr modify account where organization=o set qos+=x", "sacctmgr modify user u where account=b set qos+=y,z", "sacctmgr modify user u where account=b set qos-=x",
		"sacctmgr add coordinator account=a names=u", "sacctmgr add user w account=c wckeys=k1,k2", "sacctmgr modify user w set wckeys-=k1", "sacctmgr modify user w set defaultwckey=k2 adminlevel=op",
		"sacctmgr add resource matlab server=flex count=100 allowed=30 servertype=flexlm", "sacctmgr modify resource matlab where server=flex set lastconsumed=80",
		"sacctmgr modify account c set parent=b", "sacctmgr add association account=c user=v", "sacctmgr modify association where account=c user=v set maxsubmit=2")
	want := `QOS - 'normal':Description='Normal QOS default'
QOS - 'x':Description='x'
QOS - 'y':Description='y'
QOS - 'z':Description='z'
Cluster - 'mycluster':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'a':Description='a':Organization='o':Fairshare=1:QOS='+x'
Account - 'b':Description='b':Organization='o':Fairshare=1:QOS='+x'
Parent - 'a'
User - 'u':DefaultAccount='a':Coordinator='a':Fairshare=1
User - 'v':DefaultAccount='a':Fairshare=1
User - 'u':Partition='gpu':DefaultAccount='a':Coordinator='a':Fairshare=1:MaxJobs=9
Parent - 'b'
User - 'u':DefaultAccount='a':Coordinator='a':Fairshare=1:MaxJobs=3:QOS='normal,y,z'
User - 'v':DefaultAccount='a':Fairshare=1:MaxJobs=3
Account - 'c':Description='c':Organization='o':Fairshare=1:QOS='normal,x'
Parent - 'c'
User - 'w':DefaultAccount='c':DefaultWCKey='k2':AdminLevel='Operator':WCKeys='k2':Fairshare=1
User - 'v':DefaultAccount='a':Fairshare=1:MaxSubmitJobs=2
`
	_, got, _ := strings.Cut(policy.Dump(s), "always exists.\n")
	if got != want {
		t.Errorf("the dump is\n%s\nwant\n%s", got, want)
	}
	if r := s.Policy.FindResource("matlab", "flex"); r.Available() != 20 || s.LicenseTotal("matlab@flex") != 20 {
		t.Errorf("of 100, 30 %% allowed and 80 used elsewhere, %d are available", r.Available())
	}
	if !policy.MayChange(s.Freeze(), "u", command("sacctmgr add user n account=a")) || policy.MayChange(s.Freeze(), "u", command("sacctmgr add user n account=b")) ||
		policy.MayChange(s.Freeze(), "u", command("sacctmgr add user n account=a adminlevel=admin")) || policy.MayChange(s.Freeze(), "u", command("sacctmgr add account n parent=a")) ||
		policy.MayChange(s.Freeze(), "u", command("sacctmgr delete user v")) || policy.MayChange(s.Freeze(), "v", command("sacctmgr add user n account=a")) {
		t.Error("a coordinator may change users of the account, and nothing else")
	}
	must(t, s, "sacctmgr delete user w", "sacctmgr delete user v where account=c", "sacctmgr delete account c", "sacctmgr delete coordinator names=u", "sacctmgr delete resource matlab")
	if len(s.Policy.WCKeys) != 0 || s.Policy.FindAccount("c") != nil || len(s.Policy.FindAccount("a").Coordinators) != 0 || len(s.Policy.Resources) != 0 {
		t.Errorf("something is left:\n%s", policy.Dump(s))
	}
}

// TestLoadNamesEveryFault: a file with faults in the middle changes nothing.
func TestLoadNamesEveryFault(t *testing.T) {
	s := open(t)
	_, _, err := policy.Load(s.Freeze(), `# a comment
Cluster - 'mycluster':Fairshare=1:QOS='normal'
Parent - 'root'
Account - 'good':Description='a: b':Organization='o'
Account - 'bad':GrpJobs=many
Parent - 'nowhere'
Bogus - 'x'
Parent - 'good'
User - 'u':QOS='nope'
User - 'v':MaxWall=2-00:00:00:MaxJobs=3
Account - 'open
User - 'v'
`, false)
	if err == nil {
		t.Fatal("it was loaded")
	}
	for _, want := range []string{"line 5: GrpJobs=many: not a whole number", `line 6: parent account "nowhere" has not been defined`, `line 7: unknown kind "Bogus"`,
		"line 9: You gave a bad qos 'nope'", "line 11: a quote is not closed", `line 12: user "v" is given twice`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	for _, not := range []string{"line 2:", "line 4:", "line 10:"} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("%q is no fault in\n%v", not, err)
		}
	}
}

// TestDumpAndLoad: whatever commands made, a dump loaded into a new cluster
// gives the same dump, and loaded again changes nothing; clean removes what
// the file does not name.
func TestDumpAndLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := open(t)
		one := func(from ...string) string { return rapid.SampledFrom(from).Draw(t, "choice") }
		for range rapid.IntRange(0, 25).Draw(t, "commands") {
			line := one("sacctmgr add account "+one("a", "b", "c", "d")+" parent="+one("root", "a", "b", "c")+one("", " fairshare=5", " maxjobs=3 grptres=cpu=4,gres/gpu=2", " fairshare=parent"),
				"sacctmgr add user "+one("u", "v", "w")+" account="+one("a", "b", "root", "c,d")+one("", " partition=gpu", " maxwall=1:00:00", " qos=q", " wckeys=k"),
				"sacctmgr add qos "+one("q", "r")+one("", " priority=5", " maxtrespu=cpu=4 flags=DenyOnLimit", " usagefactor=0.5 preempt=normal", " grpwall=10"),
				"sacctmgr modify account "+one("a", "b")+" set "+one("parent=c", "qos+=q", "qos=q,r", "comment=x", "maxtres=cpu=9"),
				"sacctmgr modify user "+one("u", "v")+" set "+one("qos+=r", "qos-=q", "adminlevel=operator", "priority=8", "defaultqos=q", "maxsubmit=0", "fairshare=0"),
				"sacctmgr modify qos "+one("q", "r")+" set "+one("maxjobspu=4", "preempt+=q", "minpriothreshold=3", "limitfactor=2"),
				"sacctmgr add coordinator account="+one("a", "b")+" names="+one("u", "v"),
				"sacctmgr delete "+one("account d", "user w", "qos r"))
			_, _ = run(t, s, line) // many make no sense, and are refused
		}
		dump := policy.Dump(s)
		fresh := open(t)
		events, _, err := policy.Load(fresh.Freeze(), dump, false)
		if err != nil {
			t.Fatalf("%v\n%s", err, dump)
		}
		put(t, fresh, events...)
		if err := fresh.Check(); err != nil {
			t.Fatalf("%v", err)
		}
		if got := sorted(policy.Dump(fresh)); got != sorted(dump) {
			t.Fatalf("dumped\n%s\nloaded\n%s", dump, policy.Dump(fresh))
		}
		must(t, fresh, "sacctmgr add account extra", "sacctmgr add user stray account=extra", "sacctmgr add user u account=extra")
		events, _, err = policy.Load(fresh.Freeze(), dump, true)
		if err != nil {
			t.Fatalf("clean: %v\n%s", err, dump)
		}
		put(t, fresh, events...)
		if got := sorted(policy.Dump(fresh)); got != sorted(dump) {
			t.Fatalf("dumped\n%s\nloaded clean\n%s", dump, policy.Dump(fresh))
		}
	})
}

// sorted makes dumps comparable: numbers of associations, and so the order of
// siblings, may differ.
func sorted(dump string) string {
	var out []string
	parent := ""
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "Parent") {
			parent = line
			continue
		}
		out = append(out, parent+line)
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func TestJournal(t *testing.T) {
	j := policy.NewJournal()
	var got []string
	for i, e := range []event.Event{
		&event.ClusterCreated{Name: "c"}, &event.AccountPut{Account: spec.Account{Name: "ml", Description: "ml team", Organization: "ml", Parent: "root"}},
		&event.AssociationPut{Association: spec.Association{ID: 3, Account: "ml", Parent: 1, Shares: 50}}, &event.JobPurged{}, &event.UserPut{User: spec.User{Name: "alice", DefaultAccount: "ml"}},
		&event.UserPut{User: spec.User{Name: "alice", AdminLevel: "Operator"}}, &event.QOSPut{QOS: spec.QOS{Name: "q", Priority: 3}}, &event.QOSRemoved{Name: "q"}, &event.UsageCleared{Assoc: 3}, &event.AssociationRemoved{ID: 3},
	} {
		if tx, ok := j.Note(&event.Envelope{Seq: uint64(i + 1), Actor: event.Actor{Name: "root"}, Event: e}); ok {
			got = append(got, tx.Action+"|"+tx.Actor+"|"+tx.Where+"|"+tx.Info)
		}
	}
	want := []string{"Add Clusters|root|c|", "Add Accounts|root|ml|description='ml team', organization='ml', parent_acct='root'",
		"Add Associations|root|id_assoc=3|acct='ml', user='', partition='', id_parent=1, Fairshare=50", "Add Users|root|alice|default_acct='ml', admin_level=None",
		"Modify Users|root|alice|default_acct='', admin_level=Operator", "Add QOS|root|q|Priority=3", "Remove QOS|root|q|", "Modify Associations|root|id_assoc=3|raw_usage=0",
		"Remove Associations|root|id_assoc=3|acct='ml', user='', partition=''"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOtherClusters(t *testing.T) {
	s := open(t)
	must(t, s, "sacctmgr add cluster north", "sacctmgr add cluster south socket=/run/south.sock controlhost=s1 controlport=7000",
		"sacctmgr modify cluster north set socket=/run/n.sock", "sacctmgr add cluster north socket=/ignored")
	want := []spec.KnownCluster{
		{Name: "north", Socket: "/run/n.sock"},
		{Name: "south", Socket: "/run/south.sock", Host: "s1", Port: 7000},
	}
	if got := s.Policy.Clusters; !slices.Equal(got, want) {
		t.Fatalf("clusters %+v, want %+v", got, want)
	}
	if _, err := run(t, s, "sacctmgr add account a cluster=north"); err == nil || !strings.Contains(err.Error(), "set MUSTER_SOCKET=/run/n.sock") {
		t.Errorf("an account of another cluster: %v", err)
	}
	must(t, s, "sacctmgr delete cluster north", "sacctmgr delete cluster unheard")
	if got := s.Policy.Clusters; !slices.Equal(got, want[1:]) {
		t.Fatalf("clusters %+v after one was deleted", got)
	}
}
