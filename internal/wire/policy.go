package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Policy writes accounts, users, associations and QOS.
func Policy(p *state.Policy) *apiv1.PolicyReply {
	out := &apiv1.PolicyReply{}
	for i := range p.QOS {
		out.Qos = append(out.Qos, QOS(&p.QOS[i]))
	}
	for i := range p.Accounts {
		a := &p.Accounts[i]
		out.Accounts = append(out.Accounts, &apiv1.Account{Name: a.Name, Description: a.Description, Organization: a.Organization, Parent: a.Parent, Coordinators: a.Coordinators})
	}
	for i := range p.Users {
		u := &p.Users[i]
		out.Users = append(out.Users, &apiv1.AccountingUser{Name: u.Name, DefaultAccount: u.DefaultAccount, DefaultWckey: u.DefaultWCKey, AdminLevel: u.AdminLevel})
	}
	for i := range p.Assocs {
		out.Associations = append(out.Associations, Association(&p.Assocs[i]))
	}
	for _, k := range p.WCKeys {
		out.Wckeys = append(out.Wckeys, &apiv1.WcKey{Id: k.ID, Name: k.Name, User: k.User})
	}
	for i := range p.Resources {
		r := &p.Resources[i]
		out.Resources = append(out.Resources, &apiv1.Resource{Name: r.Name, Server: r.Server, ServerType: r.ServerType, Type: r.Type, Description: r.Description,
			Manager: r.Manager, Count: r.Count, Allowed: r.Allowed, Absolute: r.Absolute, LastConsumed: r.LastConsumed})
	}
	return out
}

// QOS writes a QOS.
func QOS(q *spec.QOS) *apiv1.Qos {
	return &apiv1.Qos{Id: q.ID, Name: q.Name, Description: q.Description, Priority: q.Priority, Flags: q.Flags, MaxWall: int64(q.MaxWall),
		MaxTresPerJob: Limits(q.MaxTRESPerJob), MaxTresPerNode: Limits(q.MaxTRESPerNode), MaxTresPerUser: Limits(q.MaxTRESPerUser),
		MaxTresPerAccount: Limits(q.MaxTRESPerAcct), MinTresPerJob: Limits(q.MinTRESPerJob), GrpTres: Limits(q.GrpTRES),
		GrpTresMins: Limits(q.GrpTRESMins), GrpTresRunMins: Limits(q.GrpTRESRunMins), GrpWall: int64(q.GrpWall), GrpJobs: optionalInt(q.GrpJobs),
		GrpSubmitJobs: optionalInt(q.GrpSubmitJobs), MaxJobsPerUser: optionalInt(q.MaxJobsPerUser), MaxSubmitPerUser: optionalInt(q.MaxSubmitPerUser),
		MaxJobsPerAccount: optionalInt(q.MaxJobsPerAcct), MaxSubmitPerAccount: optionalInt(q.MaxSubmitPerAcct), GraceTime: int64(q.GraceTime),
		Preempt: q.Preempt, PreemptMode: q.PreemptMode, UsageFactor: q.UsageFactor, MinPrio: optionalInt(q.MinPrio),
		MaxTresMins: Limits(q.MaxTRESMins), MaxRunMinsAccount: Limits(q.MaxRunMinsAcct), MaxRunMinsUser: Limits(q.MaxRunMinsUser),
		GrpJobsAccrue: optionalInt(q.GrpJobsAccrue), MaxAccruePerUser: optionalInt(q.MaxAccruePerUser), MaxAccruePerAccount: optionalInt(q.MaxAccruePerAcct),
		LimitFactor: q.LimitFactor, UsageThreshold: optionalInt(q.UsageThreshold), PreemptExempt: int64(q.PreemptExempt)}
}

// Association writes an association.
func Association(a *spec.Association) *apiv1.Association {
	return &apiv1.Association{Id: a.ID, Account: a.Account, User: a.User, Partition: a.Partition, Parent: a.Parent, Shares: a.Shares,
		SharesParent: a.SharesParent, Priority: a.Priority, DefaultQos: a.DefaultQOS, Qos: a.QOS, MaxWall: int64(a.MaxWall),
		MaxTresPerJob: Limits(a.MaxTRESPerJob), MaxTresPerNode: Limits(a.MaxTRESPerNode), MaxTresMins: Limits(a.MaxTRESMins),
		MaxJobs: optionalInt(a.MaxJobs), MaxSubmitJobs: optionalInt(a.MaxSubmitJobs), GrpTres: Limits(a.GrpTRES), GrpTresMins: Limits(a.GroupMinutes()),
		GrpTresRunMins: Limits(a.GrpTRESRunMins), GrpWall: int64(a.GrpWall), GrpJobs: optionalInt(a.GrpJobs), GrpSubmitJobs: optionalInt(a.GrpSubmitJobs), Comment: a.Comment,
		GrpJobsAccrue: optionalInt(a.GrpJobsAccrue), MaxJobsAccrue: optionalInt(a.MaxJobsAccrue), MinPrio: optionalInt(a.MinPrio), GuaranteedTres: Limits(a.Guaranteed),
		OverQuota: optionalInt(a.OverQuota)}
}
