package acct

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

//muster:table the options and verbs of sacctmgr
func Sacctmgr() *tool.Command {
	return &tool.Command{
		Name: "sacctmgr", Slurm: true, Mixed: true,
		Summary: "show and change accounts, users, associations, QOS, coordinators, wckeys and resources",
		Usage:   []string{"[OPTIONS] COMMAND ENTITY [NAMES] [where KEY=VALUE...] [set KEY=VALUE...]"},
		About: `Entities are cluster, account, user, association, qos, coordinator, wckey and resource; configuration, problem, runawayjobs,
transaction and tres can be shown. load reads the file that dump writes. If the file contains an error,
nothing is changed, and all errors are reported with their lines.

Keys are those of Slurm, long or short, and case-insensitive: MaxTRESPerUser=gres/gpu=4, MaxWall=2-0, GrpTRES=cpu=100, fairshare=10. += and -= add to and
take from lists. A limit of -1 removes it. The controller decides who may change what.

Beside Slurm's keys an account has GuaranteedTRES=gres/gpu=8, what it can always have, since jobs of accounts that hold more than their own
make room for it; and OverQuotaWeight, by which what nobody is guaranteed, or uses, is shared: of two accounts the one that holds less beyond its own
for each unit of weight starts first, and the one that holds more gives back first. Without a weight its Fairshare counts; with 0 it starts after
all others and gives back before them. As long as any account is guaranteed something, that decides before priority does, within a tier.

Without -i, changes require confirmation; without a terminal, changes are made but nothing is deleted.`,
		Verbs: []tool.Verb{
			{Name: "add", Args: "ENTITY NAMES KEY=VALUE...", Help: "add accounts, users or QOS, or make another cluster known to -M (socket=PATH: where its commands are taken on login hosts; /run/muster/NAME/muster.sock without it)"},
			{Name: "modify", Args: "ENTITY [NAMES] [where ...] set KEY=VALUE...", Help: "change them"},
			{Name: "modify", Args: "job where jobid=|user=|account=|starttime=|endtime=... set Comment=|AdminComment=|SystemComment=|Extra=|DerivedExitCode=", Help: "change what is said of jobs, also after their end; their owners may change the comment and the exit code for some minutes (MinJobAge)"},
			{Name: "delete", Args: "ENTITY NAMES [where ...]", Help: "delete them"},
			{Name: "dump", Args: "[CLUSTER] [file=PATH]", Help: "write all entities to a file (default: CLUSTER.cfg)"},
			{Name: "load", Args: "PATH [clean]", Help: "load a file; with clean, remove entries that it does not contain"},
			{Name: "show", Args: "ENTITY [NAMES] [KEY=VALUE...] [format=FIELDS] [withassoc] [tree]", Help: "show them"},
			{Name: "list", Args: "ENTITY ...", Help: "same as above"},
			{Name: "ping", Args: "", Help: "check whether the accounting service responds"},
			{Name: "version", Args: "", Help: "print the version"},
			{Name: "help", Args: "", Help: "print this help"},
		},
		Options: []opt.Option{
			{Long: "associations", Short: "s", Help: "show users and accounts with their associations"},
			{Long: "immediate", Short: "i", Help: "do not ask for confirmation"},
			{Long: "json", Arg: "<data_parser>", Maybe: true, Env: "SLURM_JSON", Help: "print JSON"},
			{Long: "noheader", Short: "n", Help: "omit the header"},
			{Long: "parsable", Short: "p", Help: "end every field with |"},
			{Long: "parsable2", Short: "P", Help: "separate fields with |"},
			{Long: "quiet", Short: "Q", Help: "print errors only"},
			{Long: "readonly", Short: "r", Help: "refuse commands that change anything"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		Example: []tool.Example{
			{Line: "sacctmgr add account research_lab cluster=mycluster fairshare=40", What: "adds an account"},
			{Line: "sacctmgr add user alice account=research_lab defaultaccount=research_lab", What: "lets alice use it"},
			{Line: "sacctmgr add qos gpu_priority MaxTRESPerUser=cpu=256,gres/gpu=8 MaxWallDurationPerJob=48:00:00 Priority=100", What: "adds a QOS with limits"},
			{Line: "sacctmgr modify user alice set qos+=gpu_priority", What: "lets alice use it too"},
			{Line: "sacctmgr add cluster north socket=/run/muster/north/muster.sock", What: "makes another cluster known to -M"},
			{Line: "sacctmgr show assoc tree format=account,user,share,qos", What: "shows the tree"},
		},
		Entities: func() []string {
			var out []string
			for _, e := range entities() {
				out = append(out, e...)
			}
			return out
		},
		Run: runSacctmgr,
	}
}

// entities are what sacctmgr shows and changes, each with its other names.
func entities() [][]string {
	return [][]string{
		{
			"account",
			"acct",
			"accounts",
			"accts",
		}, {"association", "assoc", "associations", "assocs"}, {"cluster", "clusters"},
		{
			"configuration",
			"config",
		}, {"coordinator", "coordinators"}, {"event", "events"}, {"job", "jobs"}, {"federation", "federations"}, {"problem", "problems"}, {"qos"},
		{
			"reservation",
			"reservations",
		}, {"resource", "resources"}, {"runawayjobs", "runaway"}, {"stats"}, {"transaction", "transactions", "txn"}, {"tres"},
		{"user", "users"}, {"wckey", "wckeys"},
	}
}

// findEntity finds what a word means, however short it is: usr, acct, assoc.
func findEntity(word string) string {
	word = strings.ToLower(word)
	for _, e := range entities() {
		for _, name := range e {
			if name == word || (len(word) >= 3 && strings.HasPrefix(name, word)) {
				return e[0]
			}
		}
	}
	return ""
}

func runSacctmgr(call *tool.Call) error {
	if len(call.Operands) == 0 {
		return &opt.UsageError{
			Command: "sacctmgr",
			Text:    "a command is required; there is no interactive mode",
		}
	}
	word := strings.ToLower(call.Operands[0])
	switch word {
	case "create":
		word = "add"
	case "remove":
		word = "delete"
	case "update":
		word = "modify"
	}
	name := call.Command.FirstVerb(word, 3)
	switch name {
	case "add", "modify", "delete":
		return changePolicy(call, name, call.Operands[1:])
	case "show", "list":
		return showPolicy(call, call.Operands[1:])
	case "dump":
		return dumpPolicy(call, call.Operands[1:])
	case "load":
		return loadPolicy(call, call.Operands[1:])
	case "ping":
		return pingAccounting(call)
	case "version":
		return tool.PrintVersion(call)
	case "help":
		return call.WriteOut([]byte(tool.HelpText(call.Command)))
	}
	if slices.Contains([]string{"archive", "clear", "reconfigure", "shutdown"}, word) {
		return call.Errorf("%s is not supported in this release", word)
	}
	return tool.Fail(1, "invalid keyword: "+call.Operands[0])
}

func pingAccounting(call *tool.Call) error {
	var reply apiv1.AccountingStatusReply
	if err := call.RPC(
		tool.MethodAcctStatus, &apiv1.AccountingStatusRequest{}, &reply,
	); err != nil {
		return err
	}
	if !reply.GetUp() {
		return tool.Fail(
			1,
			fmt.Sprintf("slurmdbd(primary) at %s is DOWN", reply.GetStore()),
			"sacctmgr: error: "+
				reply.GetError(),
		)
	}
	return call.WriteOut([]byte(fmt.Sprintf("slurmdbd(primary) at %s is UP\n", reply.GetStore())))
}

// readWords reads names and KEY=VALUE; where and set say which is which, and
// without them a key belongs to what the verb does.
func readWords(what string, args []string, setting bool) render.PolicyWords {
	var words render.PolicyWords
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
		key, value, ok := strings.Cut(a, "=")
		value = strings.Trim(value, "\"'")
		switch plain := strings.TrimRight(strings.ToLower(key), "+-"); {
		case !ok && slices.Contains([]string{"withassoc", "withcoordinator", "withcoord", "tree", "withdeleted", "withclusters", "withcoordinators", "wopinfo", "wopi", "wopl", "woplimits", "onlydefaults"}, strings.ToLower(a)):
			words.Bare = append(words.Bare, strings.ToLower(a))
		case !ok:
			words.Names = append(words.Names, tool.SplitList(a)...)
		case slices.Contains(own, plain) && (condition || plain == "name" || plain == "names" || plain == what || plain == what+
			"s" || what == "coordinator") && key == strings.TrimRight(key, "+-"):
			words.Names = append(words.Names, tool.SplitList(value)...)
		case condition:
			words.Where = append(
				words.Where,
				&apiv1.ConfigEntry{Key: strings.ToLower(key), Value: value},
			)
		default:
			words.Set = append(
				words.Set, &apiv1.ConfigEntry{Key: strings.ToLower(key), Value: value},
			)
		}
	}
	return words
}

// changePolicy is add, modify and delete.
func changePolicy(call *tool.Call, verb string, args []string) error {
	if call.Opts.On("readonly") {
		return call.Errorf("Can't run this command in readonly mode.")
	}
	if len(args) == 0 {
		return tool.Fail(1, "No valid entity in "+verb+" command", entityHelp())
	}
	what := findEntity(args[0])
	if what == "job" && verb == "modify" {
		return modifyJobs(call, args[1:])
	}
	if !slices.Contains(
		[]string{
			"account",
			"association",
			"cluster",
			"coordinator",
			"qos",
			"resource",
			"user",
			"wckey",
		},
		what,
	) {
		if what == "" {
			return tool.Fail(1, "No valid entity in "+verb+" command", entityHelp())
		}
		return call.Errorf(
			"%s %s is not supported in this release (account, association, cluster, coordinator, qos, resource, user and wckey are)",
			verb,
			what,
		)
	}
	words := readWords(what, args[1:], verb == "add")
	request := &apiv1.PolicyChangeRequest{
		Entity: what,
		Names:  words.Names,
		Where:  words.Where,
		Set:    words.Set,
	}
	switch verb {
	case "add":
		request.Verb = apiv1.PolicyChangeRequest_ADD
	case "modify":
		request.Verb = apiv1.PolicyChangeRequest_MODIFY
	default:
		request.Verb = apiv1.PolicyChangeRequest_DELETE
	}
	switch {
	case len(request.GetNames()) == 0 && verb == "add" && what != "association":
		return tool.Fail(1, " Need name of "+what+" to add.")
	case len(request.GetNames()) == 0 && len(request.GetWhere()) == 0 && verb != "add" &&
		what != "cluster":
		return call.Errorf(
			"name the %s to %s, or say where: everything at once is not changed",
			what,
			verb,
		)
	case verb == "modify" && len(request.GetSet()) == 0:
		return tool.Fail(1, " You didn't give me anything to set")
	}
	return commitPolicy(call, verb, ofUsersInAccounts(request), what)
}

// ofUsersInAccounts turns a change of accounts where a user is named into one of that
// user's associations in them, which is what Slurm makes of it.
func ofUsersInAccounts(req *apiv1.PolicyChangeRequest) *apiv1.PolicyChangeRequest {
	if req.GetEntity() != "account" || req.GetVerb() != apiv1.PolicyChangeRequest_MODIFY {
		return req
	}
	out := &apiv1.PolicyChangeRequest{Verb: req.GetVerb(), Entity: "user", Set: req.GetSet()}
	for _, entry := range req.GetWhere() {
		if key := entry.GetKey(); key == "user" || key == "users" {
			out.Names = append(out.Names, tool.SplitList(entry.GetValue())...)
		} else {
			out.Where = append(out.Where, entry)
		}
	}
	if len(out.GetNames()) == 0 {
		return req
	}
	if len(req.GetNames()) > 0 {
		out.Where = append(out.Where, &apiv1.ConfigEntry{
			Key:   "account",
			Value: strings.Join(req.GetNames(), ","),
		})
	}
	return out
}

func entityHelp() string {
	return "Input line must include \"Account\", \"Association\", \"Cluster\", \"Coordinator\", \"QOS\", \"Resource\", \"User\", or \"WCKey\""
}

// commitPolicy says what changes, and changes it; typed is the entity that the user named.
// Without --immediate it says so and asks first; with it, what is said comes after the change, so
// that a refused one is not announced.
func commitPolicy(
	call *tool.Call,
	verb string,
	request *apiv1.PolicyChangeRequest,
	typed string,
) error {
	nothing := map[string]string{"add": " Nothing new added.", "modify": " Nothing modified", "delete": " Nothing deleted"}[verb]
	var have apiv1.PolicyReply
	if err := call.RPC(tool.MethodGetPolicy, &apiv1.PolicyRequest{}, &have); err != nil {
		return err
	}
	if verb != "add" && len(request.GetNames()) > 0 &&
		slices.Contains([]string{"account", "cluster", "qos", "user"}, request.GetEntity()) {
		request.Names = slices.DeleteFunc(
			request.GetNames(),
			func(n string) bool { return !exists(&have, request.GetEntity(), n) },
		)
		if len(request.GetNames()) == 0 {
			return nothingChanged(call, nothing)
		}
	}
	if err := refuseDefaultAccount(request, &have); err != nil {
		return err
	}
	text, known := announce(request, &have)
	switch {
	case known && text == "" && !addsMore(request):
		return nothingChanged(call, nothing)
	case text == "":
		text = describeChange(verb, request)
	}
	text = strings.Replace(text, "Modified user associations", "Modified "+typed+" associations", 1)
	if call.Opts.On("quiet") {
		text = ""
	}
	if !call.Opts.On("immediate") {
		if err := call.WriteOut([]byte(text)); err != nil {
			return err
		}
		text = ""
		if ok, err := confirmChange(call, verb); err != nil || !ok {
			return err
		}
	}
	var reply apiv1.PolicyChangeReply
	if err := call.RPC(tool.MethodChangePolicy, request, &reply); err != nil {
		return explainPolicy(request, err)
	}
	if len(reply.GetChanged()) == 0 {
		return nothingChanged(call, nothing)
	}
	return call.WriteOut([]byte(text))
}

// refuseDefaultAccount refuses a default account that a user has no association with, naming all
// such users, before anything is changed.
func refuseDefaultAccount(request *apiv1.PolicyChangeRequest, have *apiv1.PolicyReply) error {
	if request.GetEntity() != "user" || request.GetVerb() != apiv1.PolicyChangeRequest_MODIFY {
		return nil
	}
	c := &change{req: request, have: have}
	account := c.value("defaultaccount")
	if account == "" {
		return nil
	}
	lines := []string{fmt.Sprintf(
		" Can't modify because these users aren't associated with new default account '%s'...",
		account,
	)}
	for _, user := range c.users() {
		if len(c.associations(user, account)) == 0 {
			lines = append(lines, fmt.Sprintf("  U = %s C = %s", user, have.GetCluster()))
		}
	}
	if len(lines) == 1 {
		return nil
	}
	return tool.Fail(1, lines...)
}

// explainPolicy words the refusal of a change as sacctmgr does.
func explainPolicy(request *apiv1.PolicyChangeRequest, err error) error {
	refusal := tool.ExplainError(err)
	if bad, ok := badQOSName(refusal.Detail); ok {
		said := "sacctmgr: error: " + refusal.Detail
		option := " Unknown option: " + optionNaming(request, bad)
		if request.GetVerb() == apiv1.PolicyChangeRequest_MODIFY {
			return tool.Fail(1, said, option, whereHint)
		}
		return tool.Fail(1, said, said, option)
	}
	if unknown := refusal.Unknown; unknown != nil && unknown.Kind == "option" {
		lines := unknownOption(request, unknown.Word)
		if unknown.Nearest != "" {
			lines = append(lines, " Did you mean "+unknown.Nearest+"?")
		}
		return tool.Fail(1, lines...)
	}
	if unknown := refusal.Unknown; unknown != nil && unknown.Kind == "condition" {
		return tool.Fail(1, " Unknown condition: "+asTyped(request.GetWhere(), unknown.Word),
			" Use keyword 'set' to modify value", "sacctmgr: error: "+refusal.Detail)
	}
	if refusal.Code == spec.CodeDefaultAccount {
		return tool.Fail(1, "sacctmgr: error: "+refusal.Text+": "+refusal.Detail)
	}
	if refusal.Detail != "" {
		return tool.Fail(1, "sacctmgr: error: "+refusal.Detail)
	}
	return tool.Fail(1, append(refusal.Preamble("sacctmgr"), "sacctmgr: error: "+
		refusal.Text)...)
}

const whereHint = " Use keyword 'where' to modify condition"

// unknownOption says that something cannot be set.
func unknownOption(request *apiv1.PolicyChangeRequest, key string) []string {
	lines := []string{" Unknown option: " + asTyped(request.GetSet(), key)}
	if request.GetVerb() == apiv1.PolicyChangeRequest_MODIFY {
		lines = append(lines, whereHint)
	}
	return lines
}

// asTyped is a key with the value that was given for it.
func asTyped(entries []*apiv1.ConfigEntry, key string) string {
	for _, entry := range entries {
		if strings.EqualFold(entry.GetKey(), key) {
			return entry.GetKey() + "=" + entry.GetValue()
		}
	}
	return key
}

// badQOSName is the QOS that a refusal says does not exist.
func badQOSName(detail string) (string, bool) {
	_, rest, ok := strings.Cut(detail, "You gave a bad qos '")
	name, _, closed := strings.Cut(rest, "'")
	return name, ok && closed
}

// optionNaming finds the option as it was typed in which a QOS was named.
func optionNaming(request *apiv1.PolicyChangeRequest, name string) string {
	for _, entry := range slices.Concat(request.GetSet(), request.GetWhere()) {
		if strings.Contains(entry.GetValue(), name) {
			return entry.GetKey() + "=" + entry.GetValue()
		}
	}
	return name
}

// nothingChanged ends a change that had nothing to do.
func nothingChanged(call *tool.Call, text string) error {
	if !call.Opts.On("quiet") {
		if err := call.WriteOut([]byte(text + "\n")); err != nil {
			return err
		}
	}
	return tool.ExitCode(1)
}

func exists(policy *apiv1.PolicyReply, what, name string) bool {
	switch what {
	case "account":
		return slices.ContainsFunc(
			policy.GetAccounts(),
			func(a *apiv1.Account) bool { return a.GetName() == name },
		)
	case "user":
		return slices.ContainsFunc(
			policy.GetUsers(),
			func(u *apiv1.AccountingUser) bool { return u.GetName() == name },
		)
	case "qos":
		return slices.ContainsFunc(
			policy.GetQos(),
			func(q *apiv1.Qos) bool { return q.GetName() == name },
		)
	}
	return policy.GetCluster() == name || slices.ContainsFunc(
		policy.GetClusters(),
		func(c *apiv1.KnownCluster) bool { return c.GetName() == name },
	)
}

// describeChange says what is about to happen to what has no words of its own.
func describeChange(verb string, request *apiv1.PolicyChangeRequest) string {
	title := map[string]string{"account": "Account(s)", "user": "User(s)", "qos": "QOS(s)", "cluster": "Cluster(s)",
		"association": "Association(s)", "coordinator": "Coordinator(s)", "wckey": "WCKey(s)",
		"resource": "Resource(s)"}[request.GetEntity()]
	lead := map[string]string{"add": " Adding ", "modify": " Modifying ", "delete": " Deleting "}[verb]
	var text strings.Builder
	text.WriteString(lead + title + "\n")
	for _, n := range request.GetNames() {
		text.WriteString("  " + n + "\n")
	}
	for _, part := range [...]struct {
		title string
		list  []*apiv1.ConfigEntry
	}{{" Where", request.GetWhere()}, {" Settings", request.GetSet()}} {
		if len(part.list) > 0 {
			text.WriteString(part.title + "\n")
			for _, entry := range part.list {
				sign := "="
				key := strings.TrimRight(entry.GetKey(), "+-")
				if key != entry.GetKey() {
					sign = entry.GetKey()[len(key):] + "="
				}
				fmt.Fprintf(&text, "  %-14s%2s %s\n", key, sign, render.Cell(entry.GetValue()))
			}
		}
	}
	return text.String()
}

// decideWithin is how long somebody may think about a change.
const decideWithin = 30 * time.Second

// confirmChange asks whether to go on. Where nobody can answer, a change is made,
// but nothing is deleted.
func confirmChange(call *tool.Call, verb string) (bool, error) {
	question := fmt.Sprintf("Would you like to commit changes? (You have %d seconds to decide)\n(N/y): ",
		decideWithin/time.Second)
	if err := call.WriteOut([]byte(question)); err != nil {
		return false, err
	}
	if err := call.Out.Flush(); err != nil {
		return false, err
	}
	line, err := readWithin(call.Ctx, call.Stdin, decideWithin)
	if err := call.WriteOut([]byte("\n")); err != nil {
		return false, err
	}
	switch answer := strings.ToLower(strings.TrimSpace(line)); {
	case answer == "y" || answer == "yes":
		return true, nil
	case answer == "" && errors.Is(err, io.EOF) && !call.Terminal(call.Stdin) && verb != "delete":
		return true, nil
	case answer == "" && errors.Is(err, io.EOF) && !call.Terminal(call.Stdin):
		return false, tool.Fail(
			1,
			"sacctmgr: error: nobody answers: nothing was deleted; use -i",
		)
	}
	return false, call.WriteOut([]byte(" Changes Discarded\n"))
}

// readWithin reads a line, or fails when nobody has written one in time.
func readWithin(ctx context.Context, in io.Reader, wait time.Duration) (string, error) {
	type answer struct {
		line string
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	said := make(chan answer, 1)
	go func() { // ends with the line, or with the program, whose end follows
		line, err := bufio.NewReader(in).ReadString('\n')
		said <- answer{line, err}
	}()
	select {
	case got := <-said:
		return got.line, got.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
