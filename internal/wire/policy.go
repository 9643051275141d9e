package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Policy writes accounts, users, associations and QOS.
func Policy(policy *state.Policy) *apiv1.PolicyReply {
	reply := &apiv1.PolicyReply{}
	for i := range policy.QOS {
		reply.Qos = append(reply.Qos, QOS(&policy.QOS[i]))
	}
	for i := range policy.Accounts {
		account := &policy.Accounts[i]
		reply.Accounts = append(
			reply.Accounts,
			&apiv1.Account{
				Name:         account.Name,
				Description:  account.Description,
				Organization: account.Organization,
				Parent:       account.Parent,
				Coordinators: account.Coordinators,
			},
		)
	}
	for i := range policy.Users {
		user := &policy.Users[i]
		reply.Users = append(
			reply.Users,
			&apiv1.AccountingUser{
				Name:           user.Name,
				DefaultAccount: user.DefaultAccount,
				DefaultWckey:   user.DefaultWCKey,
				AdminLevel:     user.AdminLevel,
			},
		)
	}
	for i := range policy.Assocs {
		reply.Associations = append(reply.Associations, Association(&policy.Assocs[i]))
	}
	for _, key := range policy.WCKeys {
		reply.Wckeys = append(
			reply.Wckeys, &apiv1.WcKey{Id: key.ID, Name: key.Name, User: key.User},
		)
	}
	for i := range policy.Resources {
		resource := &policy.Resources[i]
		reply.Resources = append(
			reply.Resources,
			&apiv1.Resource{
				Name:         resource.Name,
				Server:       resource.Server,
				ServerType:   resource.ServerType,
				Type:         resource.Type,
				Description:  resource.Description,
				Manager:      resource.Manager,
				Count:        resource.Count,
				Allowed:      resource.Allowed,
				Absolute:     resource.Absolute,
				LastConsumed: resource.LastConsumed,
			},
		)
	}
	for i := range policy.Clusters {
		reply.Clusters = append(reply.Clusters, KnownCluster(&policy.Clusters[i]))
	}
	return reply
}

// KnownCluster writes another cluster.
func KnownCluster(cluster *spec.KnownCluster) *apiv1.KnownCluster {
	return &apiv1.KnownCluster{
		Name: cluster.Name, Socket: cluster.Socket, Host: cluster.Host, Port: cluster.Port,
	}
}

// QOS writes a QOS.
func QOS(qos *spec.QOS) *apiv1.Qos {
	return &apiv1.Qos{
		Id:          qos.ID,
		Name:        qos.Name,
		Description: qos.Description,
		Priority:    qos.Priority,
		Flags:       qos.Flags,
		MaxWall:     int64(qos.MaxWall),
		MaxTresPerJob: Limits(
			qos.MaxTRESPerJob,
		),
		MaxTresPerNode: Limits(qos.MaxTRESPerNode),
		MaxTresPerUser: Limits(qos.MaxTRESPerUser),
		MaxTresPerAccount: Limits(
			qos.MaxTRESPerAcct,
		),
		MinTresPerJob: Limits(qos.MinTRESPerJob),
		GrpTres:       Limits(qos.GrpTRES),
		GrpTresMins: Limits(
			qos.GrpTRESMins,
		),
		GrpTresRunMins: Limits(qos.GrpTRESRunMins),
		GrpWall:        int64(qos.GrpWall),
		GrpJobs:        optionalInt(qos.GrpJobs),
		GrpSubmitJobs: optionalInt(
			qos.GrpSubmitJobs,
		),
		MaxJobsPerUser:   optionalInt(qos.MaxJobsPerUser),
		MaxSubmitPerUser: optionalInt(qos.MaxSubmitPerUser),
		MaxJobsPerAccount: optionalInt(
			qos.MaxJobsPerAcct,
		),
		MaxSubmitPerAccount: optionalInt(qos.MaxSubmitPerAcct),
		GraceTime:           int64(qos.GraceTime),
		Preempt:             qos.Preempt,
		PreemptMode:         qos.PreemptMode,
		UsageFactor:         qos.UsageFactor,
		MinPrio:             optionalInt(qos.MinPrio),
		MaxTresMins: Limits(
			qos.MaxTRESMins,
		),
		MaxRunMinsAccount: Limits(qos.MaxRunMinsAcct),
		MaxRunMinsUser:    Limits(qos.MaxRunMinsUser),
		GrpJobsAccrue: optionalInt(
			qos.GrpJobsAccrue,
		),
		MaxAccruePerUser:    optionalInt(qos.MaxAccruePerUser),
		MaxAccruePerAccount: optionalInt(qos.MaxAccruePerAcct),
		LimitFactor:         qos.LimitFactor,
		UsageThreshold:      optionalInt(qos.UsageThreshold),
		PreemptExempt:       int64(qos.PreemptExempt),
	}
}

// Association writes an association.
func Association(assoc *spec.Association) *apiv1.Association {
	return &apiv1.Association{
		Id:           assoc.ID,
		Account:      assoc.Account,
		User:         assoc.User,
		Partition:    assoc.Partition,
		Parent:       assoc.Parent,
		Shares:       assoc.Shares,
		SharesParent: assoc.SharesParent,
		Priority:     assoc.Priority,
		DefaultQos:   assoc.DefaultQOS,
		Qos:          assoc.QOS,
		MaxWall:      int64(assoc.MaxWall),
		MaxTresPerJob: Limits(
			assoc.MaxTRESPerJob,
		),
		MaxTresPerNode: Limits(assoc.MaxTRESPerNode),
		MaxTresMins:    Limits(assoc.MaxTRESMins),
		MaxJobs: optionalInt(
			assoc.MaxJobs,
		),
		MaxSubmitJobs: optionalInt(assoc.MaxSubmitJobs),
		GrpTres:       Limits(assoc.GrpTRES),
		GrpTresMins:   Limits(assoc.GroupMinutes()),
		GrpTresRunMins: Limits(
			assoc.GrpTRESRunMins,
		),
		GrpWall:       int64(assoc.GrpWall),
		GrpJobs:       optionalInt(assoc.GrpJobs),
		GrpSubmitJobs: optionalInt(assoc.GrpSubmitJobs),
		Comment:       assoc.Comment,
		GrpJobsAccrue: optionalInt(
			assoc.GrpJobsAccrue,
		),
		MaxJobsAccrue:  optionalInt(assoc.MaxJobsAccrue),
		MinPrio:        optionalInt(assoc.MinPrio),
		GuaranteedTres: Limits(assoc.Guaranteed),
		OverQuota:      optionalInt(assoc.OverQuota),
	}
}
