package cli

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
)

//muster:table the options and verbs of sacctmgr
func sacctmgrCommand() *command {
	return &command{
		name: "sacctmgr", slurm: true, mixed: true,
		summary: "show and change accounts, users, associations, QOS, coordinators, wckeys and resources",
		usage:   []string{"[OPTIONS] COMMAND ENTITY [NAMES] [where KEY=VALUE...] [set KEY=VALUE...]"},
		about: `Entities are cluster, account, user, association, qos, coordinator, wckey and resource; configuration, problem, runawayjobs,
transaction and tres can be shown. load takes the file that dump writes: with a fault anywhere in it nothing is changed, and every fault is
named with its line.

Keys are Slurm's, long or short, with any capitals: MaxTRESPerUser=gres/gpu=4, MaxWall=2-0, GrpTRES=cpu=100, fairshare=10. += and -= add to and
take from lists. A limit of -1 removes it. Who may change what is decided by the controller.

Beside Slurm's keys an account has GuaranteedTRES=gres/gpu=8, what it can always have, since jobs of accounts that hold more than their own
make room for it; and OverQuotaWeight, by which what nobody is guaranteed, or uses, is shared: of two accounts the one that holds less beyond its own
for each unit of weight starts first, and the one that holds more gives back first. Without a weight its Fairshare counts; with 0 it starts after
all others and gives back before them. As long as any account is guaranteed something, that decides before priority does, within a tier.

Without -i a change is asked about first; where there is nobody to ask, it is made, but nothing is deleted.`,
		verbs: []verb{
			{"add", "ENTITY NAMES KEY=VALUE...", "add accounts, users, QOS, or say the cluster's name"},
			{"modify", "ENTITY [NAMES] [where ...] set KEY=VALUE...", "change them"},
			{"delete", "ENTITY NAMES [where ...]", "delete them"},
			{"dump", "[CLUSTER] [file=PATH]", "write everything to a file, CLUSTER.cfg unless named"},
			{"load", "PATH [clean]", "read such a file; with clean, what it does not name is removed"},
			{"show", "ENTITY [NAMES] [KEY=VALUE...] [format=FIELDS] [withassoc] [tree]", "show them"},
			{"list", "ENTITY ...", "the same"},
			{"ping", "", "say whether the accounting service answers"},
			{"version", "", "print the version"},
			{"help", "", "print this text"},
		},
		options: []opt.Option{
			{Long: "associations", Short: "s", Help: "show users and accounts with their associations"},
			{Long: "immediate", Short: "i", Help: "change without asking"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "noheader", Short: "n", Help: "print no header"},
			{Long: "parsable", Short: "p", Help: "| behind every field"},
			{Long: "parsable2", Short: "P", Help: "| between fields"},
			{Long: "quiet", Short: "Q", Help: "print only errors"},
			{Long: "readonly", Short: "r", Help: "refuse to change anything"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		example: []example{
			{"sacctmgr add account research_lab cluster=mycluster fairshare=40", "adds an account"},
			{"sacctmgr add user alice account=research_lab defaultaccount=research_lab", "lets alice use it"},
			{"sacctmgr add qos gpu_priority MaxTRESPerUser=cpu=256,gres/gpu=8 MaxWallDurationPerJob=48:00:00 Priority=100", "adds a QOS with limits"},
			{"sacctmgr modify user alice set qos+=gpu_priority", "lets alice use it too"},
			{"sacctmgr show assoc tree format=account,user,share,qos", "shows the tree"},
		},
		run: runSacctmgr,
	}
}

// entity finds what a word means, however short it is: usr, acct, assoc.
func entity(word string) string {
	word = strings.ToLower(word)
	for _, e := range [...][]string{{"account", "acct", "accounts", "accts"}, {"association", "assoc", "associations", "assocs"}, {"cluster", "clusters"},
		{"configuration", "config"}, {"coordinator", "coordinators"}, {"event", "events"}, {"federation", "federations"}, {"problem", "problems"}, {"qos"},
		{"reservation", "reservations"}, {"resource", "resources"}, {"runawayjobs", "runaway"}, {"stats"}, {"transaction", "transactions", "txn"}, {"tres"},
		{"user", "users"}, {"wckey", "wckeys"}} {
		for _, name := range e {
			if name == word || (len(word) >= 3 && strings.HasPrefix(name, word)) {
				return e[0]
			}
		}
	}
	return ""
}

func runSacctmgr(c *call) error {
	if len(c.args) == 0 {
		return &opt.UsageError{Command: "sacctmgr", Text: "a command is missing (there is no interactive mode)"}
	}
	word := strings.ToLower(c.args[0])
	switch word {
	case "create":
		word = "add"
	case "remove":
		word = "delete"
	}
	name := c.cmd.firstVerb(word, 3)
	switch name {
	case "add", "modify", "delete":
		return c.changePolicy(name, c.args[1:])
	case "show", "list":
		return c.showPolicy(c.args[1:])
	case "dump":
		return c.dumpPolicy(c.args[1:])
	case "load":
		return c.loadPolicy(c.args[1:])
	case "ping":
		return c.pingAccounting()
	case "version":
		return printVersion(c)
	case "help":
		return c.write([]byte(helpText(c.cmd)))
	}
	if contains([]string{"archive", "clear", "reconfigure", "shutdown"}, word) {
		return c.errorf("%s is not supported in this release", word)
	}
	return fail(1, "sacctmgr: error: invalid keyword: "+c.args[0])
}

func (c *call) pingAccounting() error {
	var rep apiv1.AccountingStatusReply
	if err := c.ask(methodAcctStatus, &apiv1.AccountingStatusRequest{}, &rep); err != nil {
		return err
	}
	if !rep.GetUp() {
		return fail(1, fmt.Sprintf("slurmdbd(primary) at %s is DOWN", rep.GetStore()), "sacctmgr: error: "+rep.GetError())
	}
	return c.write([]byte(fmt.Sprintf("slurmdbd(primary) at %s is UP\n", rep.GetStore())))
}

// words is what stands behind an entity.
type words struct {
	names []string
	where []*apiv1.ConfigEntry
	set   []*apiv1.ConfigEntry
	bare  []string // withassoc, tree
}

// readWords reads names and KEY=VALUE; where and set say which is which, and
// without them a key belongs to what the verb does.
func readWords(what string, args []string, setting bool) words {
	var w words
	own := map[string][]string{
		"account": {"name", "names", "account", "accounts", "acct"}, "user": {"name", "names", "user", "users"},
		"qos": {"name", "names", "qos"}, "cluster": {"name", "names", "cluster", "clusters"}, "coordinator": {"name", "names", "user", "users"},
		"wckey": {"name", "names", "wckey", "wckeys"}, "reservation": {"name", "names", "reservation", "reservations"}, "resource": {"name", "names", "resource", "resources"},
	}[what]
	condition := !setting
	for _, a := range args {
		switch strings.ToLower(a) {
		case "where":
			condition = true
			continue
		case "set":
			condition, setting = false, true
			continue
		}
		key, val, ok := strings.Cut(a, "=")
		val = strings.Trim(val, "\"'")
		switch plain := strings.TrimRight(strings.ToLower(key), "+-"); {
		case !ok && contains([]string{"withassoc", "withcoordinator", "withcoord", "tree", "withdeleted", "withclusters", "withcoordinators", "wopinfo", "wopi", "wopl", "woplimits"}, strings.ToLower(a)):
			w.bare = append(w.bare, strings.ToLower(a))
		case !ok:
			w.names = append(w.names, splitList(a)...)
		case contains(own, plain) && (condition || plain == "name" || plain == "names" || plain == what || plain == what+"s") && key == strings.TrimRight(key, "+-"):
			w.names = append(w.names, splitList(val)...)
		case condition:
			w.where = append(w.where, &apiv1.ConfigEntry{Key: strings.ToLower(key), Value: val})
		default:
			w.set = append(w.set, &apiv1.ConfigEntry{Key: strings.ToLower(key), Value: val})
		}
	}
	return w
}

// get finds the value of a key.
func get(list []*apiv1.ConfigEntry, keys ...string) (string, bool) {
	for _, e := range slices.Backward(list) {
		if contains(keys, e.GetKey()) {
			return e.GetValue(), true
		}
	}
	return "", false
}

// changePolicy is add, modify and delete.
func (c *call) changePolicy(verb string, args []string) error {
	if c.opts.On("readonly") {
		return c.errorf("Can't run this command in readonly mode.")
	}
	if len(args) == 0 {
		return fail(1, "No valid entity in "+verb+" command", entityHelp())
	}
	what := entity(args[0])
	if !contains([]string{"account", "association", "cluster", "coordinator", "qos", "resource", "user", "wckey"}, what) {
		if what == "" {
			return fail(1, "No valid entity in "+verb+" command", entityHelp())
		}
		return c.errorf("%s %s is not supported in this release (account, association, cluster, coordinator, qos, resource, user and wckey are)", verb, what)
	}
	w := readWords(what, args[1:], verb == "add")
	req := &apiv1.PolicyChangeRequest{Entity: what, Names: w.names, Where: w.where, Set: w.set}
	switch verb {
	case "add":
		req.Verb = apiv1.PolicyChangeRequest_ADD
	case "modify":
		req.Verb = apiv1.PolicyChangeRequest_MODIFY
	default:
		req.Verb = apiv1.PolicyChangeRequest_DELETE
	}
	switch {
	case len(req.GetNames()) == 0 && verb == "add" && what != "association":
		return c.errorf("Need a name of a %s to add.", what)
	case len(req.GetNames()) == 0 && len(req.GetWhere()) == 0 && verb != "add" && what != "cluster":
		return c.errorf("name the %s to %s, or say where: everything at once is not changed", what, verb)
	case verb == "modify" && len(req.GetSet()) == 0:
		return fail(1, " You didn't give me anything to set")
	}
	return c.commitPolicy(verb, req)
}

func entityHelp() string {
	return "Input line must include \"Account\", \"Association\", \"Cluster\", \"Coordinator\", \"QOS\", \"Resource\", \"User\", or \"WCKey\""
}

// commitPolicy says what will happen, asks, and does it.
func (c *call) commitPolicy(verb string, req *apiv1.PolicyChangeRequest) error {
	nothing := map[string]string{"add": " Nothing new added.", "modify": " Nothing modified", "delete": " Nothing deleted"}[verb]
	if verb != "add" && len(req.GetNames()) > 0 && contains([]string{"account", "cluster", "qos", "user"}, req.GetEntity()) {
		var have apiv1.PolicyReply
		if err := c.ask(methodGetPolicy, &apiv1.PolicyRequest{}, &have); err != nil {
			return err
		}
		req.Names = slices.DeleteFunc(req.GetNames(), func(n string) bool { return !exists(&have, req.GetEntity(), n) })
		if len(req.GetNames()) == 0 {
			return c.nothing(nothing)
		}
	}
	if err := c.sayChange(verb, req); err != nil {
		return err
	}
	if !c.opts.On("immediate") {
		if ok, err := c.confirm(verb); err != nil || !ok {
			return err
		}
	}
	var rep apiv1.PolicyChangeReply
	if err := c.ask(methodChangePolicy, req, &rep); err != nil {
		r := explainError(err)
		if bad, ok := badQOSName(r.detail); ok {
			return fail(1, "sacctmgr: error: "+r.detail, "sacctmgr: error: "+r.detail, " Unknown option: "+optionNaming(req, bad))
		}
		if r.detail != "" {
			return fail(1, "sacctmgr: error: "+r.detail)
		}
		return fail(1, append(r.before("sacctmgr"), "sacctmgr: error: "+r.text)...)
	}
	if len(rep.GetChanged()) == 0 {
		return c.nothing(nothing)
	}
	return nil
}

// badQOSName is the QOS that a refusal says does not exist.
func badQOSName(detail string) (string, bool) {
	_, rest, ok := strings.Cut(detail, "You gave a bad qos '")
	name, _, closed := strings.Cut(rest, "'")
	return name, ok && closed
}

// optionNaming finds the option as it was typed in which a QOS was named.
func optionNaming(req *apiv1.PolicyChangeRequest, name string) string {
	for _, e := range slices.Concat(req.GetSet(), req.GetWhere()) {
		if strings.Contains(e.GetValue(), name) {
			return e.GetKey() + "=" + e.GetValue()
		}
	}
	return name
}

// nothing ends a change that had nothing to do.
func (c *call) nothing(text string) error {
	if !c.opts.On("quiet") {
		if err := c.write([]byte(text + "\n")); err != nil {
			return err
		}
	}
	return exit(1)
}

func exists(p *apiv1.PolicyReply, what, name string) bool {
	switch what {
	case "account":
		return slices.ContainsFunc(p.GetAccounts(), func(a *apiv1.Account) bool { return a.GetName() == name })
	case "user":
		return slices.ContainsFunc(p.GetUsers(), func(u *apiv1.AccountingUser) bool { return u.GetName() == name })
	case "qos":
		return slices.ContainsFunc(p.GetQos(), func(q *apiv1.Qos) bool { return q.GetName() == name })
	}
	return p.GetCluster() == name
}

// sayChange prints what is about to happen.
func (c *call) sayChange(verb string, req *apiv1.PolicyChangeRequest) error {
	if c.opts.On("quiet") {
		return nil
	}
	title := map[string]string{"account": "Account(s)", "user": "User(s)", "qos": "QOS(s)", "cluster": "Cluster(s)",
		"association": "Association(s)", "coordinator": "Coordinator(s)", "wckey": "WCKey(s)", "resource": "Resource(s)"}[req.GetEntity()]
	lead := map[string]string{"add": " Adding ", "modify": " Modifying ", "delete": " Deleting "}[verb]
	var b strings.Builder
	b.WriteString(lead + title + "\n")
	for _, n := range req.GetNames() {
		b.WriteString("  " + n + "\n")
	}
	for _, part := range [...]struct {
		title string
		list  []*apiv1.ConfigEntry
	}{{" Where", req.GetWhere()}, {" Settings", req.GetSet()}} {
		if len(part.list) > 0 {
			b.WriteString(part.title + "\n")
			for _, e := range part.list {
				sign := "="
				key := strings.TrimRight(e.GetKey(), "+-")
				if key != e.GetKey() {
					sign = e.GetKey()[len(key):] + "="
				}
				fmt.Fprintf(&b, "  %-14s%2s %s\n", key, sign, e.GetValue())
			}
		}
	}
	return c.write([]byte(b.String()))
}

// confirm asks whether to go on. Where nobody can answer, a change is made,
// but nothing is deleted.
func (c *call) confirm(verb string) (bool, error) {
	if err := c.write([]byte("Would you like to commit changes? (N/y): ")); err != nil {
		return false, err
	}
	if err := c.out.Flush(); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(c.Stdin).ReadString('\n')
	switch answer := strings.ToLower(strings.TrimSpace(line)); {
	case answer == "y" || answer == "yes":
		return true, nil
	case answer == "" && err != nil && !c.Terminal(c.Stdin) && verb != "delete":
		return true, c.write([]byte("\n"))
	case answer == "" && err != nil && !c.Terminal(c.Stdin):
		return false, fail(1, "", "sacctmgr: error: nobody answers: nothing was deleted; use -i")
	}
	return false, c.write([]byte(" Changes Discarded\n"))
}
