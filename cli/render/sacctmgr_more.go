package render

import (
	"slices"

	"github.com/musterhpc/muster/cli/tool"
)

// smallRows are the entities of few columns. Both are nil for one that cannot
// be shown.
func (s *PolicyView) smallRows(what string) (rows []*PolicyRow, fields []PolicyField) {
	add := func(c ...string) { rows = append(rows, &PolicyRow{More: c}) }
	policy := s.Policy
	switch what {
	case "wckey":
		for _, key := range policy.GetWckeys() {
			if s.Named(key.GetName()) && s.matchesConditions("", key.GetUser(), "user") {
				add(key.GetName(), policy.GetCluster(), key.GetUser(), tool.Itoa(key.GetId()))
			}
		}
		fields = WithAliases(
			TextFields("WCKey", 10, "Cluster", 10, "User", 10, "ID", 6),
			[]string{"WCKey", "name"},
		)
		if format, ok := PolicyWord(s.Words.Where, "format"); ok && format != "" {
			return rows, fields
		}
		return rows, fields[:3]
	case "resource":
		for _, resource := range policy.GetResources() {
			if !s.Named(resource.GetName()) {
				continue
			}
			flags := ""
			if resource.GetAbsolute() {
				flags = "Absolute"
			}
			add(
				resource.GetName(),
				resource.GetServer(),
				resource.GetType(),
				tool.Itoa(resource.GetCount()),
				tool.Itoa(resource.GetAllowed()),
				resource.GetServerType(),
				tool.Itoa(resource.GetLastConsumed()),
				resource.GetDescription(),
				policy.GetCluster(),
				tool.Itoa(resource.GetAllowed()),
				resource.GetManager(),
				flags,
			)
		}
		fields = TextFields(
			"Name",
			10,
			"Server",
			10,
			"Type",
			8,
			"Count",
			6,
			"% Allocated",
			11,
			"ServerType",
			10,
			"LastConsumed",
			12,
			"Descr",
			20,
			"Cluster",
			10,
			"Allowed",
			10,
			"Manager",
			10,
			"Flags",
			10,
		)
		WithAliases(
			fields,
			[]string{"% Allocated", "allocated", "percentallowed"},
			[]string{"Descr", "description"},
			[]string{"Cluster", "clusters"},
		)
		if format, ok := PolicyWord(s.Words.Where, "format"); ok && format != "" {
			return rows, fields
		}
		if slices.Contains(s.Words.Bare, "withclusters") {
			return rows, append(fields[:6:6], fields[8:10]...)
		}
		return rows, fields[:6]
	case "problem":
		for _, problem := range s.findProblems() {
			add(policy.GetCluster(), problem.account, problem.user, problem.text)
		}
		return rows, TextFields("Cluster", 10, "Account", 10, "User", 10, "Problem", 40)
	case "federation": // there is none
		return nil, WithAliases(
			TextFields("Federation", 10, "Cluster", 10, "ID", 2, "Features", 20, "FedState", 12),
			[]string{"Federation", "name"},
		)
	}
	return nil, nil
}
