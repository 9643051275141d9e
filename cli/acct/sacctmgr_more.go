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
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

func badListEntity() error {
	return tool.Fail(1, "No valid entity in list command", "Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",",
		"\"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",",
		"\"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"")
}

// showTransactions lists the changes of the policy.
func showTransactions(c *tool.Call, w render.PolicyWords) error {
	req := &apiv1.TransactionsRequest{}
	for _, b := range [...]struct {
		key string
		to  *int64
	}{{"start", &req.Since}, {"end", &req.Until}} {
		text, ok := render.PolicyWord(w.Where, b.key)
		if !ok {
			continue
		}
		t, err := format.ParseTime(text, format.Moment{Now: c.Now().Unix(), Loc: c.Loc, Past: true})
		if err != nil {
			return c.Errorf("%s=%s: %v", b.key, text, err)
		}
		*b.to = t * tool.Second
	}
	var rep apiv1.TransactionsReply
	if err := c.RPC(tool.MethodTransactions, req, &rep); err != nil {
		return err
	}
	fields := render.WithAliases(render.TextFields("Time", 19, "Action", 20, "Actor", 10, "Where", 20, "Info", 20), []string{"Time", "timestamp"})
	actor, byActor := render.PolicyWord(w.Where, "actor", "actors")
	action, byAction := render.PolicyWord(w.Where, "action", "actions")
	var rows []*render.PolicyRow
	for _, t := range rep.GetTransactions() {
		if (byActor && !slices.Contains(tool.SplitList(actor), t.GetActor())) || (byAction && !strings.EqualFold(action, t.GetAction())) {
			continue
		}
		rows = append(rows, &render.PolicyRow{More: []string{render.FormatTime(c, t.GetAt()), t.GetAction(), t.GetActor(), t.GetWhere(), t.GetInfo()}})
	}
	shown, err := policyColumns(c, fields, nil, w)
	if err != nil {
		return err
	}
	s := render.PolicyView{}
	return c.WriteOut(s.Text(render.TableStyle(c), shown, rows))
}

// showAccountedReservations is sacctmgr show reservation: those that the controller
// has now; UnusedWall, which accounting would have to work out, stays empty.
func showAccountedReservations(c *tool.Call, w render.PolicyWords) error {
	rep, err := fetch.Reservations(c)
	if err != nil {
		return err
	}
	var cfg apiv1.GetConfigReply
	if err := c.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &cfg); err != nil {
		return err
	}
	all := render.TextFields("Cluster", 10, "Name", 15, "TRES", 30, "TimeStart", 19, "TimeEnd", 19, "UnusedWall", 10, "NodeNames", 20, "Flags", 20, "Comment", 20)
	all[3].Names = []string{"start"}
	all[4].Names = []string{"end"}
	all[6].Names = []string{"nodes"}
	var rows []*render.PolicyRow
	for _, r := range rep.GetReservations() {
		if len(w.Names) > 0 && !slices.Contains(w.Names, r.GetName()) {
			continue
		}
		rows = append(rows, &render.PolicyRow{More: []string{cfg.GetCluster(), r.GetName(), render.TRESText(r.GetTres()), render.FormatTime(c, r.GetStart()), render.FormatTime(c, r.GetEnd()), "",
			hostlist.FoldSorted(r.GetNodes()), r.GetFlags(), r.GetComment()}})
	}
	shown, err := policyColumns(c, all[:6], all[6:], w)
	if err != nil {
		return err
	}
	s := render.PolicyView{}
	return c.WriteOut(s.Text(render.TableStyle(c), shown, rows))
}

// showConfiguration prints what of the configuration concerns accounting.
func showConfiguration(c *tool.Call) error {
	var cfg apiv1.GetConfigReply
	if err := c.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &cfg); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Configuration data as of %s\n", render.FormatTime(c, cfg.GetNow()))
	for _, key := range [...]string{"AccountingStorageBackupHost", "AccountingStorageEnforce", "AccountingStorageHost", "AccountingStorageParameters", "AccountingStoragePort",
		"AccountingStorageTRES", "AccountingStorageType", "AccountingStorageUser", "AuthType", "MessageTimeout", "PluginDir", "PrivateData", "SlurmUser", "SLURM_CONF", "SLURM_VERSION",
		"TCPTimeout", "TrackWCKey"} {
		if v := render.ConfigValue(&cfg, key); v != "" {
			fmt.Fprintf(&b, "%-22s = %s\n", key, v)
		}
	}
	return c.WriteOut([]byte(b.String()))
}

// dumpPolicy writes everything to the file that load reads.
func dumpPolicy(c *tool.Call, args []string) error {
	w := readWords("cluster", args, false)
	var p apiv1.PolicyReply
	if err := c.RPC(tool.MethodGetPolicy, &apiv1.PolicyRequest{Dump: true}, &p); err != nil {
		return err
	}
	if len(w.Names) > 0 && w.Names[0] != p.GetCluster() {
		return tool.Fail(1, "sacctmgr: error: Cluster '"+w.Names[0]+"' doesn't exist, can't dump to file")
	}
	path, ok := render.PolicyWord(w.Where, "file")
	if !ok {
		path = "./" + p.GetCluster() + ".cfg"
	}
	if err := os.WriteFile(filepath.Clean(path), []byte(p.GetDump()), 0o644); err != nil {
		return tool.Fail(1, "sacctmgr: error: Couldn't open file "+path+": "+err.Error())
	}
	if c.Opts.On("quiet") {
		return nil
	}
	var b strings.Builder
	for line := range strings.Lines(p.GetDump()) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString("sacctmgr: " + line)
		}
	}
	return c.WriteOut([]byte(b.String()))
}

// loadPolicy reads such a file. The controller checks all of it first.
func loadPolicy(c *tool.Call, args []string) error {
	if c.Opts.On("readonly") {
		return c.Errorf("Can't run this command in readonly mode.")
	}
	w := readWords("cluster", args, false)
	path, ok := render.PolicyWord(w.Where, "file")
	var clean bool
	for _, n := range w.Names {
		switch {
		case strings.EqualFold(n, "clean"):
			clean = true
		case !ok:
			path, ok = n, true
		}
	}
	if !ok {
		return tool.Fail(1, "sacctmgr: error: No filename given, specify one with file=''")
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return tool.Fail(1, "sacctmgr: error: Unable to read "+path+": "+err.Error())
	}
	req := &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_LOAD, Text: string(text), Clean: clean, Try: true}
	var rep apiv1.PolicyChangeReply
	if err := c.RPC(tool.MethodChangePolicy, req, &rep); err != nil {
		r := tool.ExplainError(err)
		return tool.Fail(1, strings.Split("sacctmgr: error: "+cmp.Or(r.Detail, r.Text), "\n")...)
	}
	if len(rep.GetChanged()) == 0 {
		return nothingChanged(c, " Nothing new added.")
	}
	if !c.Opts.On("quiet") {
		if err := c.WriteOut([]byte(fmt.Sprintf("%s: %d entities are added or set to what the file says\n", path, len(rep.GetChanged())))); err != nil {
			return err
		}
	}
	if !c.Opts.On("immediate") {
		if ok, err := confirmChange(c, "load"); err != nil || !ok {
			return err
		}
	}
	req.Try = false
	return c.RPC(tool.MethodChangePolicy, req, &rep)
}
