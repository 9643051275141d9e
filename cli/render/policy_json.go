package render

import (
	"cmp"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// PolicyLimit is where a limit stands in a document of slurmdb, and what sacctmgr calls
// it. One of the functions gets it.
type PolicyLimit[T any] struct {
	Path  string // max/jobs/active
	Key   string // maxjobs
	count func(T) *apiv1.OptionalInt
	tres  func(T) []*apiv1.NamedCount
	wall  func(T) int64 // nanoseconds; in minutes in documents
}

// AssociationLimits are the limits of an association.
//
//muster:table one row for each limit
func AssociationLimits() []PolicyLimit[*apiv1.Association] {
	type a = *apiv1.Association
	return []PolicyLimit[a]{
		{Path: "max/jobs/per/count", Key: "grpjobs", count: a.GetGrpJobs},
		{Path: "max/jobs/per/accruing", Key: "grpjobsaccrue", count: a.GetGrpJobsAccrue},
		{Path: "max/jobs/per/submitted", Key: "grpsubmitjobs", count: a.GetGrpSubmitJobs},
		{Path: "max/jobs/per/wall_clock", Key: "grpwall", wall: a.GetGrpWall},
		{Path: "max/jobs/active", Key: "maxjobs", count: a.GetMaxJobs},
		{Path: "max/jobs/accruing", Key: "maxjobsaccrue", count: a.GetMaxJobsAccrue},
		{Path: "max/jobs/total", Key: "maxsubmitjobs", count: a.GetMaxSubmitJobs},
		{Path: "max/tres/total", Key: "grptres", tres: a.GetGrpTres},
		{Path: "max/tres/group/minutes", Key: "grptresmins", tres: a.GetGrpTresMins},
		{Path: "max/tres/group/active", Key: "grptresrunmins", tres: a.GetGrpTresRunMins},
		{Path: "max/tres/minutes/per/job", Key: "maxtresminsperjob", tres: a.GetMaxTresMins},
		{Path: "max/tres/per/job", Key: "maxtresperjob", tres: a.GetMaxTresPerJob},
		{Path: "max/tres/per/node", Key: "maxtrespernode", tres: a.GetMaxTresPerNode},
		{Path: "max/per/account/wall_clock", Key: "maxwalldurationperjob", wall: a.GetMaxWall},
		{Path: "min/priority_threshold", Key: "minpriothresh", count: a.GetMinPrio},
	}
}

// QOSLimits are the limits of a QOS.
//
//muster:table one row for each limit
func QOSLimits() []PolicyLimit[*apiv1.Qos] {
	type q = *apiv1.Qos
	return []PolicyLimit[q]{
		{Path: "limits/max/active_jobs/accruing", Key: "grpjobsaccrue", count: q.GetGrpJobsAccrue},
		{Path: "limits/max/active_jobs/count", Key: "grpjobs", count: q.GetGrpJobs},
		{Path: "limits/max/jobs/count", Key: "grpsubmitjobs", count: q.GetGrpSubmitJobs},
		{Path: "limits/max/jobs/active_jobs/per/account", Key: "maxjobsperaccount", count: q.GetMaxJobsPerAccount},
		{Path: "limits/max/jobs/active_jobs/per/user", Key: "maxjobsperuser", count: q.GetMaxJobsPerUser},
		{Path: "limits/max/jobs/per/account", Key: "maxsubmitjobsperaccount", count: q.GetMaxSubmitPerAccount},
		{Path: "limits/max/jobs/per/user", Key: "maxsubmitjobsperuser", count: q.GetMaxSubmitPerUser},
		{Path: "limits/max/tres/total", Key: "grptres", tres: q.GetGrpTres},
		{Path: "limits/max/tres/minutes/total", Key: "grptresrunmins", tres: q.GetGrpTresRunMins},
		{Path: "limits/max/tres/minutes/per/qos", Key: "grptresmins", tres: q.GetGrpTresMins},
		{Path: "limits/max/tres/minutes/per/job", Key: "maxtresminsperjob", tres: q.GetMaxTresMins},
		{Path: "limits/max/tres/minutes/per/account", Key: "maxtresrunminsperaccount", tres: q.GetMaxRunMinsAccount},
		{Path: "limits/max/tres/minutes/per/user", Key: "maxtresrunminsperuser", tres: q.GetMaxRunMinsUser},
		{Path: "limits/max/tres/per/account", Key: "maxtresperaccount", tres: q.GetMaxTresPerAccount},
		{Path: "limits/max/tres/per/job", Key: "maxtresperjob", tres: q.GetMaxTresPerJob},
		{Path: "limits/max/tres/per/node", Key: "maxtrespernode", tres: q.GetMaxTresPerNode},
		{Path: "limits/max/tres/per/user", Key: "maxtresperuser", tres: q.GetMaxTresPerUser},
		{Path: "limits/max/wall_clock/per/qos", Key: "grpwall", wall: q.GetGrpWall},
		{Path: "limits/max/wall_clock/per/job", Key: "maxwalldurationperjob", wall: q.GetMaxWall},
		{Path: "limits/max/accruing/per/account", Key: "maxjobsaccrueperaccount", count: q.GetMaxAccruePerAccount},
		{Path: "limits/max/accruing/per/user", Key: "maxjobsaccrueperuser", count: q.GetMaxAccruePerUser},
		{Path: "limits/min/priority_threshold", Key: "minpriothreshold", count: q.GetMinPrio},
		{Path: "limits/min/tres/per/job", Key: "mintresperjob", tres: q.GetMinTresPerJob},
	}
}

// value is a limit as a document has it: no limit is infinite.
func (l PolicyLimit[T]) value(of T) any {
	switch {
	case l.count != nil:
		optionalInt := l.count(of)
		return Number(optionalInt.GetValue(), optionalInt != nil, optionalInt == nil)
	case l.wall != nil:
		ns := l.wall(of)
		return Number(ns/(60*tool.Second), ns > 0, ns <= 0)
	}
	return TRESList(l.tres(of))
}

// putValue places a value at a path of an object.
func putValue(at tree.Object, path string, value any) tree.Object {
	key, rest, deeper := strings.Cut(path, "/")
	for i := range at {
		if at[i].Key == key && deeper {
			inner, _ := at[i].Value.(tree.Object)
			at[i].Value = putValue(inner, rest, value)
			return at
		}
	}
	if deeper {
		value = putValue(nil, rest, value)
	}
	return append(at, tree.Member{Key: key, Value: value})
}

func putLimits[T any](at tree.Object, of T, limits []PolicyLimit[T]) tree.Object {
	for _, limit := range limits {
		at = putValue(at, limit.Path, limit.value(of))
	}
	return at
}

// TRESNumber is the number of a resource that has the same one in every cluster;
// 0 for the others.
func TRESNumber(name string) int {
	for i, fixed := range [...]string{"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"} {
		if name == fixed {
			return i + 1
		}
	}
	return 0
}

// TRESList is a list of counted resources, as documents of slurmdb have it.
func TRESList(list []*apiv1.NamedCount) tree.List {
	out := tree.List{}
	for _, x := range list {
		kind, name, _ := strings.Cut(x.GetName(), "/")
		out = append(
			out,
			tree.Object{
				{Key: "type", Value: kind},
				{Key: "name", Value: name},
				{Key: "id", Value: TRESNumber(x.GetName())},
				{Key: "count", Value: x.GetN()},
			},
		)
	}
	return out
}

// TRESTree is a vector as documents of slurmdb have it.
func TRESTree(tres *apiv1.Tres) tree.List {
	out := tree.List{}
	for i, x := range ToTRES(tres).All() {
		kind, name, _ := strings.Cut(x.Name, "/")
		out = append(
			out,
			tree.Object{
				{Key: "type", Value: kind},
				{Key: "name", Value: name},
				{Key: "id", Value: cmp.Or(TRESNumber(x.Name), i+firstOtherTRES)},
				{Key: "count", Value: x.N},
			},
		)
	}
	return out
}

// firstOtherTRES is the first number of a resource that clusters number as they like.
const firstOtherTRES = 1001

// listCoordinators are those of an account.
func listCoordinators(account *apiv1.Account) tree.List {
	out := tree.List{}
	for _, name := range account.GetCoordinators() {
		out = append(out, tree.Object{{Key: "name", Value: name}, {Key: "direct", Value: true}})
	}
	return out
}

// UserTree is one user.
func (s *PolicyView) UserTree(user *apiv1.AccountingUser) tree.Object {
	over := tree.List{}
	for _, account := range s.Policy.GetAccounts() {
		for _, name := range account.GetCoordinators() {
			if name == user.GetName() {
				over = append(
					over,
					tree.Object{
						{Key: "name", Value: account.GetName()},
						{Key: "direct", Value: true},
					},
				)
			}
		}
	}
	keys := tree.List{}
	for _, key := range s.Policy.GetWckeys() {
		if key.GetUser() == user.GetName() {
			keys = append(keys, s.WCKeyTree(key))
		}
	}
	return tree.Object{
		{Key: "administrator_level", Value: tree.List{cmp.Or(user.GetAdminLevel(), "None")}},
		{
			Key: "associations",
			Value: s.BriefAssocs(
				func(a *apiv1.Association) bool { return a.GetUser() == user.GetName() },
			),
		},
		{Key: "coordinators", Value: over},
		{
			Key: "default",
			Value: tree.Object{
				{Key: "account", Value: user.GetDefaultAccount()},
				{Key: "wckey", Value: user.GetDefaultWckey()},
			},
		},
		{Key: "flags", Value: tree.List{"NONE"}},
		{Key: "name", Value: user.GetName()},
		{Key: "wckeys", Value: keys},
	}
}

// AccountTree is one account.
func (s *PolicyView) AccountTree(account *apiv1.Account) tree.Object {
	return tree.Object{
		{
			Key: "associations",
			Value: s.BriefAssocs(
				func(x *apiv1.Association) bool { return x.GetAccount() == account.GetName() },
			),
		},
		{Key: "coordinators", Value: listCoordinators(account)},
		{Key: "description", Value: account.GetDescription()},
		{Key: "name", Value: account.GetName()},
		{Key: "organization", Value: account.GetOrganization()},
	}
}

// qosFlags are the flags of a QOS as documents have them.
func qosFlags() map[string]string {
	return map[string]string{
		"PartitionMinNodes":     "PARTITION_MINIMUM_NODE",
		"PartitionMaxNodes":     "PARTITION_MAXIMUM_NODE",
		"PartitionTimeLimit":    "PARTITION_TIME_LIMIT",
		"EnforceUsageThreshold": "ENFORCE_USAGE_THRESHOLD",
		"NoReserve":             "NO_RESERVE",
		"RequiresReservation":   "REQUIRED_RESERVATION",
		"DenyOnLimit":           "DENY_LIMIT",
		"OverPartQOS":           "OVERRIDE_PARTITION_QOS",
		"NoDecay":               "NO_DECAY",
		"UsageFactorSafe":       "USAGE_FACTOR_SAFE",
		"Relative":              "RELATIVE",
	}
}

// QOSFlag is a flag of sacctmgr for the word of a document, or empty.
func QOSFlag(word string) string {
	for own, other := range qosFlags() {
		if other == word {
			return own
		}
	}
	return ""
}

// QOSTree is one QOS.
func QOSTree(qos *apiv1.Qos) tree.Object {
	flags := tree.List{}
	words := qosFlags()
	for _, f := range qos.GetFlags() {
		for own, other := range words {
			if strings.EqualFold(own, f) {
				flags = append(flags, other)
			}
		}
	}
	factor := float64(qos.GetUsageFactor()) / 1e6
	switch {
	case qos.GetUsageFactor() == 0:
		factor = 1
	case factor < 0:
		factor = 0
	}
	mode := tree.List{"DISABLED"}
	if word := strings.ToUpper(qos.GetPreemptMode()); word != "" && word != "OFF" &&
		word != "CLUSTER" {
		mode = tree.List{word}
	}
	threshold := Fraction(
		float64(qos.GetUsageThreshold().GetValue())/1e6,
		qos.GetUsageThreshold() == nil,
	)
	object := tree.Object{
		{Key: "description", Value: qos.GetDescription()},
		{Key: "flags", Value: flags},
		{Key: "id", Value: qos.GetId()},
		{Key: "name", Value: qos.GetName()},
		{
			Key: "preempt",
			Value: tree.Object{
				{Key: "list", Value: tree.Strings(qos.GetPreempt())},
				{Key: "mode", Value: mode},
				{Key: "exempt_time", Value: Some(qos.GetPreemptExempt() / tool.Second)},
			},
		},
		{Key: "priority", Value: Number(int64(qos.GetPriority()), true, false)},
		{Key: "usage_factor", Value: Fraction(factor, false)},
		{Key: "usage_threshold", Value: threshold},
		{
			Key: "limits",
			Value: tree.Object{
				{Key: "grace_time", Value: qos.GetGraceTime() / tool.Second},
				{
					Key:   "factor",
					Value: Fraction(float64(qos.GetLimitFactor())/1e6, qos.GetLimitFactor() == 0),
				},
			},
		},
	}
	return putLimits(object, qos, QOSLimits())
}

// AssociationTree is one association.
func (s *PolicyView) AssociationTree(row *PolicyRow) tree.Object {
	assoc := row.Assoc
	parent, lineage := s.Place(assoc)
	usual := false
	for _, user := range s.Policy.GetUsers() {
		usual = usual ||
			(user.GetName() == assoc.GetUser() && user.GetDefaultAccount() == assoc.GetAccount())
	}
	object := append(
		BriefAssoc(s.Policy.GetCluster(), assoc),
		tree.Member{
			Key:   "comment",
			Value: assoc.GetComment(),
		},
		tree.Member{Key: "default", Value: tree.Object{{Key: "qos", Value: assoc.GetDefaultQos()}}},
		tree.Member{
			Key:   "is_default",
			Value: usual,
		},
		tree.Member{Key: "lineage", Value: lineage},
		tree.Member{Key: "parent_account", Value: parent},
		tree.Member{
			Key:   "priority",
			Value: Some(assoc.GetPriority()),
		},
		tree.Member{Key: "qos", Value: tree.Strings(row.QOSList)},
		tree.Member{Key: "shares_raw", Value: RawShares(assoc)},
	)
	return putLimits(object, assoc, AssociationLimits())
}

// ClusterTree is the cluster.
func (s *PolicyView) ClusterTree() tree.Object {
	root := tree.Object{}
	for _, association := range s.Policy.GetAssociations() {
		if association.GetUser() == "" && association.GetParent() == 0 {
			root = BriefAssoc(s.Policy.GetCluster(), association)
		}
	}
	port, err := strconv.Atoi(s.Port)
	if err != nil {
		port = 0 // of a configuration that names a range of ports
	}
	return tree.Object{
		{
			Key:   "controller",
			Value: tree.Object{{Key: "host", Value: s.Host}, {Key: "port", Value: port}},
		},
		{Key: "name", Value: s.Policy.GetCluster()},
		{Key: "associations", Value: tree.Object{{Key: "root", Value: root}}},
	}
}

// otherClusterTree is a cluster that is not this one.
func otherClusterTree(other *apiv1.KnownCluster) tree.Object {
	return tree.Object{
		{
			Key:   "controller",
			Value: tree.Object{{Key: "host", Value: other.GetHost()}, {Key: "port", Value: other.GetPort()}},
		},
		{Key: "name", Value: other.GetName()},
		{Key: "associations", Value: tree.Object{{Key: "root", Value: tree.Object{}}}},
	}
}

// WCKeyTree is one wckey.
func (s *PolicyView) WCKeyTree(key *apiv1.WcKey) tree.Object {
	return tree.Object{
		{Key: "cluster", Value: s.Policy.GetCluster()},
		{Key: "id", Value: key.GetId()},
		{Key: "name", Value: key.GetName()},
		{Key: "user", Value: key.GetUser()},
	}
}

// TRESTree are the resources that are counted.
func (s *PolicyView) TRESTree() tree.List {
	out := tree.List{}
	for _, row := range s.TRESRows() {
		id, err := strconv.Atoi(row.TRES[2])
		if err != nil {
			id = 0
		}
		out = append(
			out,
			tree.Object{
				{Key: "type", Value: row.TRES[0]},
				{Key: "name", Value: row.TRES[1]},
				{Key: "id", Value: id},
				{Key: "count", Value: 0},
			},
		)
	}
	return out
}

// Documents are the lists of a document of slurmdb about an entity: one list, or
// all of them for the whole configuration. matches leaves those that are asked for.
func (s *PolicyView) Documents(what string) (members []tree.Member, schema string) {
	lists := map[string]func() tree.List{
		"users": func() (out tree.List) {
			for _, user := range s.Policy.GetUsers() {
				if s.Named(user.GetName()) &&
					s.matchesConditions(user.GetDefaultAccount(), user.GetName(), "user") {
					out = append(out, s.UserTree(user))
				}
			}
			return out
		},
		"accounts": func() (out tree.List) {
			for _, account := range s.Policy.GetAccounts() {
				if s.Named(account.GetName()) {
					out = append(out, s.AccountTree(account))
				}
			}
			return out
		},
		"qos": func() (out tree.List) {
			for _, qos := range s.Policy.GetQos() {
				if s.Named(qos.GetName()) {
					out = append(out, QOSTree(qos))
				}
			}
			return out
		},
		"associations": func() (out tree.List) {
			for _, row := range s.TreeRows() {
				out = append(out, s.AssociationTree(row))
			}
			return out
		},
		"clusters": func() (out tree.List) {
			if s.Named(s.Policy.GetCluster()) {
				out = append(out, s.ClusterTree())
			}
			for _, other := range s.Policy.GetClusters() {
				if s.Named(other.GetName()) {
					out = append(out, otherClusterTree(other))
				}
			}
			return out
		},
		"wckeys": func() (out tree.List) {
			for _, key := range s.Policy.GetWckeys() {
				if s.Named(key.GetName()) || s.Named(tool.Itoa(key.GetId())) {
					out = append(out, s.WCKeyTree(key))
				}
			}
			return out
		},
		"TRES": s.TRESTree,
	}
	one := func(key string) tree.Member {
		list := lists[key]()
		if list == nil {
			list = tree.List{}
		}
		return tree.Member{Key: key, Value: list}
	}
	switch what {
	case "user":
		return []tree.Member{one("users")}, "openapi_users_resp"
	case "account":
		return []tree.Member{one("accounts")}, "openapi_accounts_resp"
	case "qos":
		return []tree.Member{one("qos")}, "openapi_slurmdbd_qos_resp"
	case "association":
		return []tree.Member{one("associations")}, "openapi_assocs_resp"
	case "cluster":
		return []tree.Member{one("clusters")}, "openapi_clusters_resp"
	case "wckey":
		return []tree.Member{one("wckeys")}, "openapi_wckey_resp"
	case "tres":
		return []tree.Member{one("TRES")}, "openapi_tres_resp"
	case "everything":
		all := []tree.Member{one("clusters"), {Key: "tres", Value: s.TRESTree()}}
		for _, key := range [...]string{"accounts", "users", "qos", "wckeys", "associations"} {
			all = append(all, one(key))
		}
		return all, "openapi_slurmdbd_config_resp"
	}
	return nil, ""
}
