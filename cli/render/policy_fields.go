package render

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// oldQOSFields are the columns of QOS of the time before TRES, which scripts
// still ask for.
func oldQOSFields() []PolicyField {
	type list = func(q *apiv1.Qos) []*apiv1.NamedCount
	one := func(head, tres string, of list, names ...string) PolicyField {
		return PolicyField{
			head,
			max(len(head), 8),
			names,
			func(r *PolicyRow) string { return limitOf(of(r.QOS), tres) },
		}
	}
	return []PolicyField{
		one(
			"GrpCPUs",
			"cpu",
			(*apiv1.Qos).GetGrpTres,
		), one("GrpMem", "mem", (*apiv1.Qos).GetGrpTres, "grpmemory"), one("GrpNodes", "node", (*apiv1.Qos).GetGrpTres),
		one(
			"GrpCPUMins",
			"cpu",
			(*apiv1.Qos).GetGrpTresMins,
		), one("GrpCPURunMins", "cpu", (*apiv1.Qos).GetGrpTresRunMins),
		one(
			"MaxCPUs",
			"cpu",
			(*apiv1.Qos).GetMaxTresPerJob,
			"maxcpusperjob",
		), one("MaxNodes", "node", (*apiv1.Qos).GetMaxTresPerJob, "maxnodesperjob"),
		one(
			"MaxCPUMins",
			"cpu",
			(*apiv1.Qos).GetMaxTresMins,
			"maxcpuminsperjob",
		), one("MaxCPUsPU", "cpu", (*apiv1.Qos).GetMaxTresPerUser, "maxcpusperuser"),
		one(
			"MaxNodesPU",
			"node",
			(*apiv1.Qos).GetMaxTresPerUser,
			"maxnodesperuser",
		), one("MinCPUs", "cpu", (*apiv1.Qos).GetMinTresPerJob, "mincpusperjob"),
	}
}

// furtherAssocFields are columns of associations that hang together with other
// entities, and those of the time before TRES.
func furtherAssocFields(view *PolicyView) []PolicyField {
	one := func(head, tres string, of func(a *apiv1.Association) []*apiv1.NamedCount, names ...string) PolicyField {
		return PolicyField{
			head,
			max(len(head), 8),
			names,
			func(r *PolicyRow) string { return limitOf(of(r.Assoc), tres) },
		}
	}
	return []PolicyField{
		one(
			"GrpCPUMins",
			"cpu",
			(*apiv1.Association).GetGrpTresMins,
		), one("GrpCPURunMins", "cpu", (*apiv1.Association).GetGrpTresRunMins),
		one("MaxCPUMins", "cpu", (*apiv1.Association).GetMaxTresMins, "maxcpuminsperjob"),
		{"QOS_RAW", 20, []string{"qosraw", "qosrawlevel"}, func(row *PolicyRow) string {
			var ids []string
			for _, name := range row.QOSList {
				for _, qos := range view.Policy.GetQos() {
					if qos.GetName() == name {
						ids = append(ids, tool.Itoa(qos.GetId()))
					}
				}
			}
			return strings.Join(ids, ",")
		}},
		{"Is Default", 10, nil, func(row *PolicyRow) string {
			for _, user := range view.Policy.GetUsers() {
				if row.Assoc.GetUser() != "" && user.GetName() == row.Assoc.GetUser() {
					return YesNo(user.GetDefaultAccount() == row.Assoc.GetAccount())
				}
			}
			return ""
		}},
	}
}

// hiddenClusterFields are the columns that say what the cluster is made of.
func hiddenClusterFields(view *PolicyView) []PolicyField {
	ofThis := func(text func() string) func(*PolicyRow) string {
		return func(row *PolicyRow) string {
			if row.other != nil {
				return ""
			}
			return text()
		}
	}
	return []PolicyField{
		{"Socket", 32, nil, func(r *PolicyRow) string { return r.other.GetSocket() }},
		{"NodeCount", 9, nil, ofThis(func() string { return tool.Itoa(len(view.Nodes)) })},
		{"Cluster Nodes", 20, []string{"nodenames"}, ofThis(func() string {
			names := make([]string, len(view.Nodes))
			for i, node := range view.Nodes {
				names[i] = node.GetName()
			}
			return hostlist.FoldSorted(names)
		})},
		{"TRES", 20, nil, ofThis(func() string {
			var all spec.TRES
			for _, node := range view.Nodes {
				all = all.Add(ToTRES(node.GetCfgTres()))
			}
			return all.String()
		})},
	}
}

// WithAliases gives columns made by cells further names: the head, then they.
func WithAliases(fields []PolicyField, of ...[]string) []PolicyField {
	for _, a := range of {
		if i := FindPolicyField(fields, a[0]); i >= 0 {
			fields[i].Names = append(fields[i].Names, a[1:]...)
		}
	}
	return fields
}

// TextFields makes columns of a head and a width each, whose texts are the row's
// own cells.
func TextFields(heads ...any) []PolicyField {
	fields := make([]PolicyField, 0, len(heads)/2)
	for i := 0; i+1 < len(heads); i += 2 {
		at := i / 2
		fields = append(
			fields,
			PolicyField{
				heads[i].(string),
				heads[i+1].(int),
				nil,
				func(r *PolicyRow) string { return r.More[at] },
			},
		)
	}
	return fields
}

// assocFields are the columns of associations, which users, accounts and the
// cluster show too.
//
//muster:table one row for each column
func assocFields() []PolicyField {
	type R = PolicyRow
	a := func(head string, width int, get func(a *apiv1.Association) string, names ...string) PolicyField {
		return PolicyField{head, width, names, func(r *R) string { return get(r.Assoc) }}
	}
	return []PolicyField{
		{"Cluster", 10, []string{"clusters"}, func(r *R) string { return r.cluster }},
		{"Account", 10, []string{"acct"}, func(row *R) string {
			if row.account != nil && row.Assoc == nil {
				return row.account.GetName()
			}
			return row.Assoc.GetAccount()
		}},
		{"User", 10, []string{"users"}, func(row *R) string {
			if row.user != nil {
				return row.user.GetName()
			}
			return row.Assoc.GetUser()
		}},
		a("Partition", 10, (*apiv1.Association).GetPartition),
		a("Share", 9, func(assoc *apiv1.Association) string {
			switch {
			case assoc == nil:
				return ""
			case assoc.GetSharesParent():
				return "parent"
			}
			return tool.Itoa(RawShares(assoc))
		}, "fairshare", "shares", "rawshares"),
		a("Priority", 10, func(assoc *apiv1.Association) string {
			if assoc.GetPriority() == 0 {
				return ""
			}
			return tool.Itoa(assoc.GetPriority())
		}),
		a("GrpJobs", 7, func(a *apiv1.Association) string { return OptionalInt(a.GetGrpJobs()) }),
		a("GrpTRES", 13, func(a *apiv1.Association) string { return LimitsText(a.GetGrpTres()) }),
		a("GrpSubmit", 9, func(a *apiv1.Association) string { return OptionalInt(a.GetGrpSubmitJobs()) }, "grpsubmitjobs"),
		a("GrpWall", 11, func(a *apiv1.Association) string { return formatWall(a.GetGrpWall()) }),
		a("GrpTRESMins", 13, func(a *apiv1.Association) string { return LimitsText(a.GetGrpTresMins()) }),
		a("MaxJobs", 7, func(a *apiv1.Association) string { return OptionalInt(a.GetMaxJobs()) }),
		a("MaxTRES", 13, func(a *apiv1.Association) string { return LimitsText(a.GetMaxTresPerJob()) }, "maxtresperjob", "maxtrespj"),
		a("MaxTRESPerNode", 14, func(a *apiv1.Association) string { return LimitsText(a.GetMaxTresPerNode()) }, "maxtrespn"),
		a("MaxSubmit", 9, func(a *apiv1.Association) string { return OptionalInt(a.GetMaxSubmitJobs()) }, "maxsubmitjobs"),
		a("MaxWall", 11, func(a *apiv1.Association) string { return formatWall(a.GetMaxWall()) }, "maxwalldurationperjob"),
		a("MaxTRESMins", 13, func(a *apiv1.Association) string { return LimitsText(a.GetMaxTresMins()) }, "maxtresminsperjob", "maxtresminspj"),
		{"QOS", 20, []string{"qoslevel"}, func(r *R) string { return strings.Join(r.QOSList, ",") }},
		a("Def QOS", 9, (*apiv1.Association).GetDefaultQos, "defaultqos", "defqos"),
		a("GrpTRESRunMins", 13, func(a *apiv1.Association) string { return LimitsText(a.GetGrpTresRunMins()) }),
	}
}

// hiddenAssocFields are columns that only format= shows.
func hiddenAssocFields() []PolicyField {
	a := func(head string, width int, get func(a *apiv1.Association) string, names ...string) PolicyField {
		return PolicyField{head, width, names, func(r *PolicyRow) string { return get(r.Assoc) }}
	}
	return []PolicyField{
		a(
			"ID",
			6,
			func(a *apiv1.Association) string { return tool.Itoa(a.GetId()) },
		), a("ParentID", 8, func(a *apiv1.Association) string { return tool.Itoa(a.GetParent()) }),
		a("Comment", 20, (*apiv1.Association).GetComment),
		a(
			"GrpJobsAccrue",
			13,
			func(a *apiv1.Association) string { return OptionalInt(a.GetGrpJobsAccrue()) },
		),
		a(
			"MaxJobsAccrue",
			13,
			func(a *apiv1.Association) string { return OptionalInt(a.GetMaxJobsAccrue()) },
		),
		a(
			"GuaranteedTRES",
			14,
			func(a *apiv1.Association) string { return LimitsText(a.GetGuaranteedTres()) },
			"guaranteed",
		),
		a(
			"OverQuotaWeight",
			15,
			func(a *apiv1.Association) string { return OptionalInt(a.GetOverQuota()) },
			"overquota",
		),
		a(
			"MinPrioThres",
			12,
			func(a *apiv1.Association) string { return OptionalInt(a.GetMinPrio()) },
			"minpriothreshold",
			"minprio",
		),
		{
			"ParentName",
			10,
			nil,
			func(r *PolicyRow) string { return r.parent },
		}, {"Lineage", 20, nil, func(r *PolicyRow) string { return r.lineage }},
		a(
			"GrpCPUs",
			8,
			func(a *apiv1.Association) string { return limitOf(a.GetGrpTres(), "cpu") },
		), a("GrpMem", 7, func(a *apiv1.Association) string { return limitOf(a.GetGrpTres(), "mem") }),
		a(
			"GrpNodes",
			8,
			func(a *apiv1.Association) string { return limitOf(a.GetGrpTres(), "node") },
		), a("MaxCPUs", 8, func(a *apiv1.Association) string { return limitOf(a.GetMaxTresPerJob(), "cpu") }),
		a(
			"MaxNodes",
			8,
			func(a *apiv1.Association) string { return limitOf(a.GetMaxTresPerJob(), "node") },
		),
	}
}

func userFields() []PolicyField {
	return []PolicyField{
		{
			"User",
			10,
			[]string{"users", "name"},
			func(r *PolicyRow) string { return r.user.GetName() },
		},
		{
			"Def Acct",
			10,
			[]string{"defaultaccount", "defacct"},
			func(r *PolicyRow) string { return r.user.GetDefaultAccount() },
		},
		{
			"Admin",
			9,
			[]string{"adminlevel"},
			func(r *PolicyRow) string { return cmp.Or(r.user.GetAdminLevel(), "None") },
		},
	}
}

// hiddenUserFields are columns that only format= or withcoordinator shows.
func hiddenUserFields(view *PolicyView) []PolicyField {
	return []PolicyField{
		{
			"Def WCKey",
			10,
			[]string{"defaultwckey"},
			func(r *PolicyRow) string { return r.user.GetDefaultWckey() },
		},
		{
			"Coord Accounts",
			20,
			[]string{"coordinators", "coordaccounts"},
			func(row *PolicyRow) string {
				var of []string
				for _, account := range view.Policy.GetAccounts() {
					if slices.Contains(account.GetCoordinators(), row.user.GetName()) {
						of = append(of, account.GetName())
					}
				}
				return strings.Join(of, ",")
			},
		},
	}
}

func accountFields() []PolicyField {
	return []PolicyField{
		{
			"Account",
			10,
			[]string{"acct", "name"},
			func(r *PolicyRow) string { return r.account.GetName() },
		},
		{
			"Descr",
			20,
			[]string{"description"},
			func(r *PolicyRow) string { return r.account.GetDescription() },
		},
		{
			"Org",
			20,
			[]string{"organization"},
			func(r *PolicyRow) string { return r.account.GetOrganization() },
		},
	}
}

func clusterFields() []PolicyField {
	fields := []PolicyField{
		{
			"Cluster",
			10,
			[]string{"clusters", "name"},
			func(r *PolicyRow) string { return r.cluster },
		},
		{
			"ControlHost",
			15,
			nil,
			func(r *PolicyRow) string { return r.host },
		}, {"ControlPort", 12, nil, func(r *PolicyRow) string { return r.port }},
		{"RPC", 5, nil, func(*PolicyRow) string { return "" }},
	}
	for _, name := range [...]string{"Share", "GrpJobs", "GrpTRES", "GrpSubmit", "MaxJobs", "MaxTRES", "MaxSubmit", "MaxWall", "QOS", "Def QOS"} {
		for _, field := range assocFields() {
			if field.head == name {
				fields = append(fields, field)
			}
		}
	}
	return fields
}

//muster:table one row for each column
func QOSFields() []PolicyField {
	q := func(head string, width int, get func(q *apiv1.Qos) string, names ...string) PolicyField {
		return PolicyField{head, width, names, func(r *PolicyRow) string { return get(r.QOS) }}
	}
	return []PolicyField{
		q("Name", 10, (*apiv1.Qos).GetName), q("Priority", 10, func(q *apiv1.Qos) string { return tool.Itoa(q.GetPriority()) }),
		q("GraceTime", 10, func(q *apiv1.Qos) string { return format.Duration(q.GetGraceTime() / tool.Second) }),
		q("Preempt", 10, func(q *apiv1.Qos) string { return strings.Join(q.GetPreempt(), ",") }), q("PreemptExemptTime", 19, func(qos *apiv1.Qos) string {
			if qos.GetPreemptExempt() == 0 {
				return ""
			}
			return format.Duration(qos.GetPreemptExempt() / tool.Second)
		}),
		q("PreemptMode", 11, func(q *apiv1.Qos) string { return cmp.Or(strings.ToLower(q.GetPreemptMode()), "cluster") }),
		q("Flags", 20, func(q *apiv1.Qos) string { return strings.Join(q.GetFlags(), ",") }), q("UsageThres", 10, func(qos *apiv1.Qos) string {
			if qos.GetUsageThreshold() == nil {
				return ""
			}
			return formatMillionths(qos.GetUsageThreshold().GetValue())
		}, "usagethreshold"),
		q("UsageFactor", 11, func(q *apiv1.Qos) string { return formatUsageFactor(q.GetUsageFactor()) }),
		q("GrpTRES", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetGrpTres()) }), q("GrpTRESMins", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetGrpTresMins()) }),
		q("GrpTRESRunMins", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetGrpTresRunMins()) }),
		q("GrpJobs", 7, func(q *apiv1.Qos) string { return OptionalInt(q.GetGrpJobs()) }), q("GrpSubmit", 9, func(q *apiv1.Qos) string { return OptionalInt(q.GetGrpSubmitJobs()) }, "grpsubmitjobs"),
		q("GrpWall", 11, func(q *apiv1.Qos) string { return formatWall(q.GetGrpWall()) }),
		q("MaxTRES", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetMaxTresPerJob()) }, "maxtresperjob", "maxtrespj"),
		q("MaxTRESPerNode", 14, func(q *apiv1.Qos) string { return LimitsText(q.GetMaxTresPerNode()) }, "maxtrespn"), q("MaxTRESMins", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetMaxTresMins()) }, "maxtresminsperjob", "maxtresminspj"),
		q("MaxWall", 11, func(q *apiv1.Qos) string { return formatWall(q.GetMaxWall()) }, "maxwalldurationperjob"),
		q("MaxTRESPU", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetMaxTresPerUser()) }, "maxtresperuser"),
		q("MaxJobsPU", 9, func(q *apiv1.Qos) string { return OptionalInt(q.GetMaxJobsPerUser()) }, "maxjobsperuser", "maxjobs"),
		q("MaxSubmitPU", 11, func(q *apiv1.Qos) string { return OptionalInt(q.GetMaxSubmitPerUser()) }, "maxsubmitjobsperuser", "maxsubmitjobspu"),
		q("MaxTRESPA", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetMaxTresPerAccount()) }, "maxtresperaccount"),
		q("MaxJobsPA", 9, func(q *apiv1.Qos) string { return OptionalInt(q.GetMaxJobsPerAccount()) }, "maxjobsperaccount"),
		q("MaxSubmitPA", 11, func(q *apiv1.Qos) string { return OptionalInt(q.GetMaxSubmitPerAccount()) }, "maxsubmitjobsperaccount", "maxsubmitjobspa"),
		q("MinTRES", 13, func(q *apiv1.Qos) string { return LimitsText(q.GetMinTresPerJob()) }, "mintresperjob"),
	}
}

// hiddenQOSFields are columns that only format= shows.
func hiddenQOSFields() []PolicyField {
	q := func(head string, width int, get func(q *apiv1.Qos) string, names ...string) PolicyField {
		return PolicyField{head, width, names, func(r *PolicyRow) string { return get(r.QOS) }}
	}
	return []PolicyField{
		q(
			"ID",
			6,
			func(q *apiv1.Qos) string { return tool.Itoa(q.GetId()) },
		), q("Descr", 20, (*apiv1.Qos).GetDescription, "description"),
		q(
			"MaxTRESRunMinsPA",
			17,
			func(q *apiv1.Qos) string { return LimitsText(q.GetMaxRunMinsAccount()) },
			"maxtresrunminsperaccount",
		),
		q(
			"MaxTRESRunMinsPU",
			17,
			func(q *apiv1.Qos) string { return LimitsText(q.GetMaxRunMinsUser()) },
			"maxtresrunminsperuser",
		),
		q(
			"GrpJobsAccrue",
			13,
			func(q *apiv1.Qos) string { return OptionalInt(q.GetGrpJobsAccrue()) },
		),
		q(
			"MaxJobsAccruePA",
			15,
			func(q *apiv1.Qos) string { return OptionalInt(q.GetMaxAccruePerAccount()) },
			"maxjobsaccrueperaccount",
		),
		q(
			"MaxJobsAccruePU",
			15,
			func(q *apiv1.Qos) string { return OptionalInt(q.GetMaxAccruePerUser()) },
			"maxjobsaccrueperuser",
		),
		q(
			"MinPrioThres",
			12,
			func(q *apiv1.Qos) string { return OptionalInt(q.GetMinPrio()) },
			"minpriothreshold",
			"minprio",
		),
		q("LimitFactor", 11, func(qos *apiv1.Qos) string {
			if qos.GetLimitFactor() == 0 {
				return ""
			}
			return formatMillionths(qos.GetLimitFactor())
		}),
	}
}

func TRESFields() []PolicyField {
	return []PolicyField{
		{
			"Type",
			8,
			nil,
			func(r *PolicyRow) string { return r.TRES[0] },
		}, {"Name", 15, nil, func(r *PolicyRow) string { return r.TRES[1] }},
		{"ID", 6, nil, func(r *PolicyRow) string { return r.TRES[2] }},
	}
}
