package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

func badListEntity() error {
	return fail(1, "No valid entity in list command", "Input line must include \"Account\", \"Association\", \"Cluster\", \"Configuration\",",
		"\"Event\", \"Federation\", \"Problem\", \"QOS\", \"Resource\", \"Reservation\",",
		"\"RunAwayJobs\", \"Stats\", \"Transaction\", \"TRES\", \"User\", or \"WCKey\"")
}

// cells makes columns of a head and a width each, whose texts are the row's
// own cells.
func cells(heads ...any) []policyField {
	out := make([]policyField, 0, len(heads)/2)
	for i := 0; i+1 < len(heads); i += 2 {
		at := i / 2
		out = append(out, policyField{heads[i].(string), heads[i+1].(int), nil, func(r *policyRow) string { return r.more[at] }})
	}
	return out
}

// smallRows are the entities of few columns. Both are nil for one that cannot
// be shown.
func (s *policyShow) smallRows(what string) (rows []*policyRow, fields []policyField) {
	add := func(c ...string) { rows = append(rows, &policyRow{more: c}) }
	p := s.policy
	switch what {
	case "wckey":
		for _, k := range p.GetWckeys() {
			if s.named(k.GetName()) && s.matches("", k.GetUser(), "user") {
				add(k.GetName(), p.GetCluster(), k.GetUser(), itoa(k.GetId()))
			}
		}
		fields = aliases(cells("WCKey", 10, "Cluster", 10, "User", 10, "ID", 6), []string{"WCKey", "name"})
		if format, ok := get(s.words.where, "format"); ok && format != "" {
			return rows, fields
		}
		return rows, fields[:3]
	case "resource":
		for _, r := range p.GetResources() {
			if !s.named(r.GetName()) {
				continue
			}
			flags := ""
			if r.GetAbsolute() {
				flags = "Absolute"
			}
			add(r.GetName(), r.GetServer(), r.GetType(), itoa(r.GetCount()), itoa(r.GetAllowed()), r.GetServerType(), itoa(r.GetLastConsumed()), r.GetDescription(),
				p.GetCluster(), itoa(r.GetAllowed()), r.GetManager(), flags)
		}
		fields = cells("Name", 10, "Server", 10, "Type", 8, "Count", 6, "% Allocated", 11, "ServerType", 10, "LastConsumed", 12, "Descr", 20, "Cluster", 10, "Allowed", 10, "Manager", 10, "Flags", 10)
		aliases(fields, []string{"% Allocated", "allocated", "percentallowed"}, []string{"Descr", "description"}, []string{"Cluster", "clusters"})
		if format, ok := get(s.words.where, "format"); ok && format != "" {
			return rows, fields
		}
		if contains(s.words.bare, "withclusters") {
			return rows, append(fields[:6:6], fields[8:10]...)
		}
		return rows, fields[:6]
	case "problem":
		for _, a := range p.GetAccounts() {
			used := false
			for _, as := range p.GetAssociations() {
				used = used || (as.GetAccount() == a.GetName() && as.GetUser() != "") || (as.GetUser() == "" && s.byID(as.GetParent()).GetAccount() == a.GetName())
			}
			if !used {
				add(p.GetCluster(), a.GetName(), "", "Account has no users")
			}
		}
		for _, u := range p.GetUsers() {
			used := false
			for _, as := range p.GetAssociations() {
				used = used || as.GetUser() == u.GetName()
			}
			if !used {
				add(p.GetCluster(), "", u.GetName(), "User has no associations")
			}
		}
		return rows, cells("Cluster", 10, "Account", 10, "User", 10, "Problem", 40)
	case "federation": // there is none
		return nil, aliases(cells("Federation", 10, "Cluster", 10, "ID", 2, "Features", 20, "FedState", 12), []string{"Federation", "name"})
	}
	return nil, nil
}

// showTransactions lists the changes of the policy.
func (c *call) showTransactions(w words) error {
	req := &apiv1.TransactionsRequest{}
	for _, b := range [...]struct {
		key string
		to  *int64
	}{{"start", &req.Since}, {"end", &req.Until}} {
		text, ok := get(w.where, b.key)
		if !ok {
			continue
		}
		t, err := format.ParseTime(text, format.Moment{Now: c.Now().Unix(), Loc: c.Loc, Past: true})
		if err != nil {
			return c.errorf("%s=%s: %v", b.key, text, err)
		}
		*b.to = t * second
	}
	var rep apiv1.TransactionsReply
	if err := c.ask(methodTransactions, req, &rep); err != nil {
		return err
	}
	fields := aliases(cells("Time", 19, "Action", 20, "Actor", 10, "Where", 20, "Info", 20), []string{"Time", "timestamp"})
	actor, byActor := get(w.where, "actor", "actors")
	action, byAction := get(w.where, "action", "actions")
	var rows []*policyRow
	for _, t := range rep.GetTransactions() {
		if (byActor && !contains(splitList(actor), t.GetActor())) || (byAction && !strings.EqualFold(action, t.GetAction())) {
			continue
		}
		rows = append(rows, &policyRow{more: []string{c.time(t.GetAt()), t.GetAction(), t.GetActor(), t.GetWhere(), t.GetInfo()}})
	}
	shown, err := c.policyColumns(fields, nil, w)
	if err != nil {
		return err
	}
	s := policyShow{}
	return c.write(s.text(c.tableStyle(), shown, rows))
}

// showAccountedReservations is sacctmgr show reservation: those that the controller
// has now; UnusedWall, which accounting would have to work out, stays empty.
func (c *call) showAccountedReservations(w words) error {
	rep, err := c.reservations()
	if err != nil {
		return err
	}
	var cfg apiv1.GetConfigReply
	if err := c.ask(methodGetConfig, &apiv1.GetConfigRequest{}, &cfg); err != nil {
		return err
	}
	all := cells("Cluster", 10, "Name", 15, "TRES", 30, "TimeStart", 19, "TimeEnd", 19, "UnusedWall", 10, "NodeNames", 20, "Flags", 20, "Comment", 20)
	all[3].names, all[4].names, all[6].names = []string{"start"}, []string{"end"}, []string{"nodes"}
	var rows []*policyRow
	for _, r := range rep.GetReservations() {
		if len(w.names) > 0 && !contains(w.names, r.GetName()) {
			continue
		}
		rows = append(rows, &policyRow{more: []string{cfg.GetCluster(), r.GetName(), tresText(r.GetTres()), c.time(r.GetStart()), c.time(r.GetEnd()), "",
			hostlist.FoldSorted(r.GetNodes()), r.GetFlags(), r.GetComment()}})
	}
	shown, err := c.policyColumns(all[:6], all[6:], w)
	if err != nil {
		return err
	}
	s := policyShow{}
	return c.write(s.text(c.tableStyle(), shown, rows))
}

// showConfiguration prints what of the configuration concerns accounting.
func (c *call) showConfiguration() error {
	var cfg apiv1.GetConfigReply
	if err := c.ask(methodGetConfig, &apiv1.GetConfigRequest{}, &cfg); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Configuration data as of %s\n", c.time(cfg.GetNow()))
	for _, key := range [...]string{"AccountingStorageBackupHost", "AccountingStorageEnforce", "AccountingStorageHost", "AccountingStorageParameters", "AccountingStoragePort",
		"AccountingStorageTRES", "AccountingStorageType", "AccountingStorageUser", "AuthType", "MessageTimeout", "PluginDir", "PrivateData", "SlurmUser", "SLURM_CONF", "SLURM_VERSION",
		"TCPTimeout", "TrackWCKey"} {
		if v := configValue(&cfg, key); v != "" {
			fmt.Fprintf(&b, "%-22s = %s\n", key, v)
		}
	}
	return c.write([]byte(b.String()))
}

// dumpPolicy writes everything to the file that load reads.
func (c *call) dumpPolicy(args []string) error {
	w := readWords("cluster", args, false)
	var p apiv1.PolicyReply
	if err := c.ask(methodGetPolicy, &apiv1.PolicyRequest{Dump: true}, &p); err != nil {
		return err
	}
	if len(w.names) > 0 && w.names[0] != p.GetCluster() {
		return fail(1, "sacctmgr: error: Cluster '"+w.names[0]+"' doesn't exist, can't dump to file")
	}
	path, ok := get(w.where, "file")
	if !ok {
		path = "./" + p.GetCluster() + ".cfg"
	}
	if err := os.WriteFile(filepath.Clean(path), []byte(p.GetDump()), 0o644); err != nil {
		return fail(1, "sacctmgr: error: Couldn't open file "+path+": "+err.Error())
	}
	if c.opts.On("quiet") {
		return nil
	}
	var b strings.Builder
	for line := range strings.Lines(p.GetDump()) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString("sacctmgr: " + line)
		}
	}
	return c.write([]byte(b.String()))
}

// loadPolicy reads such a file. The controller checks all of it first.
func (c *call) loadPolicy(args []string) error {
	if c.opts.On("readonly") {
		return c.errorf("Can't run this command in readonly mode.")
	}
	w := readWords("cluster", args, false)
	path, ok := get(w.where, "file")
	var clean bool
	for _, n := range w.names {
		switch {
		case strings.EqualFold(n, "clean"):
			clean = true
		case !ok:
			path, ok = n, true
		}
	}
	if !ok {
		return fail(1, "sacctmgr: error: No filename given, specify one with file=''")
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return fail(1, "sacctmgr: error: Unable to read "+path+": "+err.Error())
	}
	req := &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_LOAD, Text: string(text), Clean: clean, Try: true}
	var rep apiv1.PolicyChangeReply
	if err := c.ask(methodChangePolicy, req, &rep); err != nil {
		r := explainError(err)
		return fail(1, strings.Split("sacctmgr: error: "+or(r.detail, r.text), "\n")...)
	}
	if len(rep.GetChanged()) == 0 {
		return c.nothing(" Nothing new added.")
	}
	if !c.opts.On("quiet") {
		if err := c.write([]byte(fmt.Sprintf("%s: %d entities are added or set to what the file says\n", path, len(rep.GetChanged())))); err != nil {
			return err
		}
	}
	if !c.opts.On("immediate") {
		if ok, err := c.confirm("load"); err != nil || !ok {
			return err
		}
	}
	req.Try = false
	return c.ask(methodChangePolicy, req, &rep)
}
