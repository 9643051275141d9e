package cli

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// oldQOSFields are the columns of QOS of the time before TRES, which scripts
// still ask for.
func oldQOSFields() []policyField {
	type list = func(q *apiv1.Qos) []*apiv1.NamedCount
	one := func(head, tres string, of list, names ...string) policyField {
		return policyField{head, max(len(head), 8), names, func(r *policyRow) string { return limitOf(of(r.qos), tres) }}
	}
	return []policyField{
		one("GrpCPUs", "cpu", (*apiv1.Qos).GetGrpTres), one("GrpMem", "mem", (*apiv1.Qos).GetGrpTres, "grpmemory"), one("GrpNodes", "node", (*apiv1.Qos).GetGrpTres),
		one("GrpCPUMins", "cpu", (*apiv1.Qos).GetGrpTresMins), one("GrpCPURunMins", "cpu", (*apiv1.Qos).GetGrpTresRunMins),
		one("MaxCPUs", "cpu", (*apiv1.Qos).GetMaxTresPerJob, "maxcpusperjob"), one("MaxNodes", "node", (*apiv1.Qos).GetMaxTresPerJob, "maxnodesperjob"),
		one("MaxCPUMins", "cpu", (*apiv1.Qos).GetMaxTresMins, "maxcpuminsperjob"), one("MaxCPUsPU", "cpu", (*apiv1.Qos).GetMaxTresPerUser, "maxcpusperuser"),
		one("MaxNodesPU", "node", (*apiv1.Qos).GetMaxTresPerUser, "maxnodesperuser"), one("MinCPUs", "cpu", (*apiv1.Qos).GetMinTresPerJob, "mincpusperjob"),
	}
}

// furtherAssocFields are columns of associations that hang together with other
// entities, and those of the time before TRES.
func furtherAssocFields(s *policyShow) []policyField {
	one := func(head, tres string, of func(a *apiv1.Association) []*apiv1.NamedCount, names ...string) policyField {
		return policyField{head, max(len(head), 8), names, func(r *policyRow) string { return limitOf(of(r.assoc), tres) }}
	}
	return []policyField{
		one("GrpCPUMins", "cpu", (*apiv1.Association).GetGrpTresMins), one("GrpCPURunMins", "cpu", (*apiv1.Association).GetGrpTresRunMins),
		one("MaxCPUMins", "cpu", (*apiv1.Association).GetMaxTresMins, "maxcpuminsperjob"),
		{"QOS_RAW", 20, []string{"qosraw", "qosrawlevel"}, func(r *policyRow) string {
			var ids []string
			for _, name := range r.qosList {
				for _, q := range s.policy.GetQos() {
					if q.GetName() == name {
						ids = append(ids, itoa(q.GetId()))
					}
				}
			}
			return strings.Join(ids, ",")
		}},
		{"Is Default", 10, nil, func(r *policyRow) string {
			for _, u := range s.policy.GetUsers() {
				if r.assoc.GetUser() != "" && u.GetName() == r.assoc.GetUser() {
					return yesNo(u.GetDefaultAccount() == r.assoc.GetAccount())
				}
			}
			return ""
		}},
	}
}

// hiddenClusterFields are the columns that say what the cluster is made of.
func hiddenClusterFields(s *policyShow) []policyField {
	return []policyField{
		{"NodeCount", 9, nil, func(*policyRow) string { return itoa(len(s.nodes)) }},
		{"Cluster Nodes", 20, []string{"nodenames"}, func(*policyRow) string {
			names := make([]string, len(s.nodes))
			for i, n := range s.nodes {
				names[i] = n.GetName()
			}
			return hostlist.FoldSorted(names)
		}},
		{"TRES", 20, nil, func(*policyRow) string {
			var all spec.TRES
			for _, n := range s.nodes {
				all = all.Add(toTRES(n.GetCfgTres()))
			}
			return all.String()
		}},
	}
}

// aliases gives columns made by cells further names: the head, then they.
func aliases(fields []policyField, of ...[]string) []policyField {
	for _, a := range of {
		if i := findPolicyField(fields, a[0]); i >= 0 {
			fields[i].names = append(fields[i].names, a[1:]...)
		}
	}
	return fields
}
