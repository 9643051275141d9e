package acct

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

func badListEntity() error {
	return tool.Fail(
		1,
		"No valid entity in list command",
		"Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",",
		"\"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",",
		"\"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"",
	)
}

// showTransactions lists the changes of the policy.
func showTransactions(call *tool.Call, words render.PolicyWords) error {
	request := &apiv1.TransactionsRequest{}
	for _, b := range [...]struct {
		key string
		to  *int64
	}{{"start", &request.Since}, {"end", &request.Until}} {
		text, ok := render.PolicyWord(words.Where, b.key)
		if !ok {
			continue
		}
		t, err := format.ParseTime(
			text,
			format.Moment{Now: call.Now().Unix(), Loc: call.Loc, Past: true},
		)
		if err != nil {
			return call.Errorf("%s=%s: %v", b.key, text, err)
		}
		*b.to = t * tool.Second
	}
	var reply apiv1.TransactionsReply
	if err := call.RPC(tool.MethodTransactions, request, &reply); err != nil {
		return err
	}
	fields := render.WithAliases(
		render.TextFields("Time", 19, "Action", 20, "Actor", 10, "Where", 20, "Info", 20),
		[]string{"Time", "timestamp"},
	)
	actor, byActor := render.PolicyWord(words.Where, "actor", "actors")
	action, byAction := render.PolicyWord(words.Where, "action", "actions")
	list := tree.List{}
	var rows []*render.PolicyRow
	for _, transaction := range reply.GetTransactions() {
		if (byActor && !slices.Contains(tool.SplitList(actor), transaction.GetActor())) ||
			(byAction && !strings.EqualFold(action, transaction.GetAction())) {
			continue
		}
		list = append(list, transactionTree(transaction))
		rows = append(
			rows,
			&render.PolicyRow{
				More: []string{
					render.FormatTime(call, transaction.GetAt()),
					transaction.GetAction(),
					transaction.GetActor(),
					transaction.GetWhere(),
					transaction.GetInfo(),
				},
			},
		)
	}
	if render.WantsDocument(call) {
		return render.Print(call, tree.Member{Key: "transactions", Value: list})
	}
	shown, err := policyColumns(call, fields, nil, words)
	if err != nil {
		return err
	}
	view := render.PolicyView{}
	return call.WriteOut(view.Text(render.TableStyle(call), shown, rows))
}

func transactionTree(transaction *apiv1.Transaction) tree.Object {
	return tree.Object{
		{Key: "time", Value: render.Instant(transaction.GetAt())},
		{Key: "action", Value: transaction.GetAction()},
		{Key: "actor", Value: transaction.GetActor()},
		{Key: "where", Value: transaction.GetWhere()},
		{Key: "info", Value: transaction.GetInfo()},
		{Key: "event", Value: transaction.GetSeq()},
	}
}

// showAccountedReservations is sacctmgr show reservation: those that the controller
// has now; UnusedWall, which accounting would have to work out, stays empty.
func showAccountedReservations(call *tool.Call, words render.PolicyWords) error {
	reply, err := fetch.Reservations(call)
	if err != nil {
		return err
	}
	var config apiv1.GetConfigReply
	if err := call.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &config); err != nil {
		return err
	}
	all := render.TextFields(
		"Cluster",
		10,
		"Name",
		15,
		"TRES",
		30,
		"TimeStart",
		19,
		"TimeEnd",
		19,
		"UnusedWall",
		10,
		"NodeNames",
		20,
		"Flags",
		20,
		"Comment",
		20,
	)
	all[3].Names = []string{"start"}
	all[4].Names = []string{"end"}
	all[6].Names = []string{"nodes"}
	list := tree.List{}
	var rows []*render.PolicyRow
	for _, reservation := range reply.GetReservations() {
		if len(words.Names) > 0 && !slices.Contains(words.Names, reservation.GetName()) {
			continue
		}
		list = append(list, accountedReservationTree(config.GetCluster(), reservation))
		rows = append(
			rows,
			&render.PolicyRow{
				More: []string{
					config.GetCluster(),
					reservation.GetName(),
					render.TRESText(reservation.GetTres()),
					render.FormatTime(call, reservation.GetStart()),
					render.FormatTime(call, reservation.GetEnd()),
					"",
					hostlist.FoldSorted(
						reservation.GetNodes(),
					),
					reservation.GetFlags(),
					reservation.GetComment(),
				},
			},
		)
	}
	if render.WantsDocument(call) {
		return render.Print(call, tree.Member{Key: "reservations", Value: list})
	}
	shown, err := policyColumns(call, all[:6], all[6:], words)
	if err != nil {
		return err
	}
	view := render.PolicyView{}
	return call.WriteOut(view.Text(render.TableStyle(call), shown, rows))
}

func accountedReservationTree(cluster string, reservation *apiv1.ReservationInfo) tree.Object {
	return tree.Object{
		{Key: "cluster", Value: cluster},
		{Key: "name", Value: reservation.GetName()},
		{Key: "tres", Value: render.TRESTree(reservation.GetTres())},
		{
			Key: "time",
			Value: tree.Object{
				{Key: "start", Value: render.Instant(reservation.GetStart())},
				{Key: "end", Value: render.Instant(reservation.GetEnd())},
			},
		},
		{Key: "nodes", Value: hostlist.FoldSorted(reservation.GetNodes())},
		{Key: "flags", Value: tree.Strings(tool.SplitList(reservation.GetFlags()))},
		{Key: "comment", Value: reservation.GetComment()},
	}
}

// accountingKeys are the keys of the configuration that concern accounting.
func accountingKeys() []string {
	return []string{
		"AccountingStorageBackupHost", "AccountingStorageEnforce", "AccountingStorageHost",
		"AccountingStorageParameters", "AccountingStoragePort", "AccountingStorageTRES",
		"AccountingStorageType", "AccountingStorageUser", "AuthType", "MessageTimeout", "PluginDir",
		"PrivateData", "SlurmUser", "SLURM_CONF", "SLURM_VERSION", "TCPTimeout", "TrackWCKey",
	}
}

// showConfiguration prints what of the configuration concerns accounting.
func showConfiguration(call *tool.Call) error {
	var config apiv1.GetConfigReply
	if err := call.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &config); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Configuration data as of %s\n", render.FormatTime(call, config.GetNow()))
	values := tree.Object{}
	for _, key := range accountingKeys() {
		if value := render.ConfigValue(&config, key); value != "" {
			fmt.Fprintf(&text, "%-22s = %s\n", key, value)
			values = append(values, tree.Member{Key: key, Value: value})
		}
	}
	if render.WantsDocument(call) {
		return render.Print(
			call,
			tree.Member{Key: "configuration", Value: values},
			tree.Member{
				Key: "last_update", Value: render.Instant(call.LastUpdate(config.GetNow())),
			},
		)
	}
	return call.WriteOut([]byte(text.String()))
}

// dumpPolicy writes everything to the file that load reads.
func dumpPolicy(call *tool.Call, args []string) error {
	words := readWords("cluster", args, false)
	var policy apiv1.PolicyReply
	if err := call.RPC(tool.MethodGetPolicy, &apiv1.PolicyRequest{Dump: true}, &policy); err != nil {
		return err
	}
	if len(words.Names) > 0 && words.Names[0] != policy.GetCluster() {
		return tool.Fail(1, "sacctmgr: error: Cluster '"+words.Names[0]+
			"' doesn't exist, can't dump to file")
	}
	path, ok := render.PolicyWord(words.Where, "file")
	if !ok {
		path = "./" + policy.GetCluster() + ".cfg"
	}
	if err := os.WriteFile(filepath.Clean(path), []byte(policy.GetDump()), 0o644); err != nil {
		return tool.Fail(1, "sacctmgr: error: Couldn't open file "+path+": "+err.Error())
	}
	if call.Opts.On("quiet") {
		return nil
	}
	var text strings.Builder
	for line := range strings.Lines(policy.GetDump()) {
		if !strings.HasPrefix(line, "#") {
			text.WriteString("sacctmgr: " + line)
		}
	}
	return call.WriteOut([]byte(text.String()))
}

// loadPolicy reads such a file. The controller checks all of it first.
func loadPolicy(call *tool.Call, args []string) error {
	if call.Opts.On("readonly") {
		return call.Errorf("Can't run this command in readonly mode.")
	}
	words := readWords("cluster", args, false)
	path, ok := render.PolicyWord(words.Where, "file")
	var clean bool
	for _, name := range words.Names {
		switch {
		case strings.EqualFold(name, "clean"):
			clean = true
		case !ok:
			path, ok = name, true
		}
	}
	if !ok {
		return tool.Fail(1, "sacctmgr: error: No filename given, specify one with file=''")
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return tool.Fail(1, "sacctmgr: error: Unable to read "+path+": "+err.Error())
	}
	request := &apiv1.PolicyChangeRequest{
		Verb:  apiv1.PolicyChangeRequest_LOAD,
		Text:  string(text),
		Clean: clean,
		Try:   true,
	}
	var reply apiv1.PolicyChangeReply
	if err := call.RPC(tool.MethodChangePolicy, request, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(
			1, strings.Split("sacctmgr: error: "+cmp.Or(refusal.Detail, refusal.Text), "\n")...,
		)
	}
	if len(reply.GetChanged()) == 0 {
		return nothingChanged(call, " Nothing new added.")
	}
	if !call.Opts.On("quiet") {
		if err := call.WriteOut(
			[]byte(
				fmt.Sprintf(
					"%s: %d entities are added or set to what the file says\n",
					path,
					len(reply.GetChanged()),
				),
			),
		); err != nil {
			return err
		}
	}
	if !call.Opts.On("immediate") {
		if ok, err := confirmChange(call, "load"); err != nil || !ok {
			return err
		}
	}
	request.Try = false
	return call.RPC(tool.MethodChangePolicy, request, &reply)
}
