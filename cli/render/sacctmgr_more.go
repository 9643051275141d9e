package render

import (
	"slices"

	"github.com/musterhpc/muster/cli/tool"
)

// smallRows are the entities of few columns. Both are nil for one that cannot
// be shown.
func (s *PolicyView) smallRows(what string) (rows []*PolicyRow, fields []PolicyField) {
	add := func(c ...string) { rows = append(rows, &PolicyRow{More: c}) }
	p := s.Policy
	switch what {
	case "wckey":
		for _, k := range p.GetWckeys() {
			if s.Named(k.GetName()) && s.matchesConditions("", k.GetUser(), "user") {
				add(k.GetName(), p.GetCluster(), k.GetUser(), tool.Itoa(k.GetId()))
			}
		}
		fields = WithAliases(TextFields("WCKey", 10, "Cluster", 10, "User", 10, "ID", 6), []string{"WCKey", "name"})
		if format, ok := PolicyWord(s.Words.Where, "format"); ok && format != "" {
			return rows, fields
		}
		return rows, fields[:3]
	case "resource":
		for _, r := range p.GetResources() {
			if !s.Named(r.GetName()) {
				continue
			}
			flags := ""
			if r.GetAbsolute() {
				flags = "Absolute"
			}
			add(r.GetName(), r.GetServer(), r.GetType(), tool.Itoa(r.GetCount()), tool.Itoa(r.GetAllowed()), r.GetServerType(), tool.Itoa(r.GetLastConsumed()), r.GetDescription(),
				p.GetCluster(), tool.Itoa(r.GetAllowed()), r.GetManager(), flags)
		}
		fields = TextFields("Name", 10, "Server", 10, "Type", 8, "Count", 6, "% Allocated", 11, "ServerType", 10, "LastConsumed", 12, "Descr", 20, "Cluster", 10, "Allowed", 10, "Manager", 10, "Flags", 10)
		WithAliases(fields, []string{"% Allocated", "allocated", "percentallowed"}, []string{"Descr", "description"}, []string{"Cluster", "clusters"})
		if format, ok := PolicyWord(s.Words.Where, "format"); ok && format != "" {
			return rows, fields
		}
		if slices.Contains(s.Words.Bare, "withclusters") {
			return rows, append(fields[:6:6], fields[8:10]...)
		}
		return rows, fields[:6]
	case "problem":
		for _, a := range p.GetAccounts() {
			used := false
			for _, as := range p.GetAssociations() {
				used = used || (as.GetAccount() == a.GetName() && as.GetUser() != "") || (as.GetUser() == "" && s.ByID(as.GetParent()).GetAccount() == a.GetName())
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
		return rows, TextFields("Cluster", 10, "Account", 10, "User", 10, "Problem", 40)
	case "federation": // there is none
		return nil, WithAliases(TextFields("Federation", 10, "Cluster", 10, "ID", 2, "Features", 20, "FedState", 12), []string{"Federation", "name"})
	}
	return nil, nil
}
