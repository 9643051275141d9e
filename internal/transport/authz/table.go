package authz

// Grant is what a role gets of a method.
type Grant uint8

// The grants.
const (
	None    Grant = iota // refused before the request reaches the service
	Limited              // the service decides, by what the request is about
	Here                 // everything, but only on the controller's own host
	Full                 // everything
)

// String returns the grant as docs/authorization.md shows it.
func (g Grant) String() string {
	return [...]string{"–", "limited", "here", "yes"}[g]
}

// grants are the grants of all roles; the ones that are not named get None.
type grants [numRoles]Grant

// The rows of the table have few shapes. Each is a function of nothing so that
// no row can change another.

// forUsers is what each user may do with what is his, and coordinators and
// operators with what is in their care.
func forUsers() grants {
	return grants{
		User:          Limited,
		Coordinator:   Limited,
		Operator:      Full,
		Administrator: Full,
		Root:          Full,
	}
}

// forOwners is what concerns the caller's own jobs, whoever he is.
func forOwners() grants {
	return grants{
		User:          Limited,
		Coordinator:   Limited,
		Operator:      Limited,
		Administrator: Limited,
		Root:          Limited,
	}
}

// forReaders is what users may look at, as far as PrivateData lets them.
func forReaders() grants {
	return grants{
		RemoteRoot:    Limited,
		User:          Limited,
		Coordinator:   Limited,
		Operator:      Full,
		Administrator: Full,
		Root:          Full,
	}
}

// forAllReaders is what users may look at whatever is private.
func forAllReaders() grants {
	return grants{
		RemoteRoot:    Full,
		User:          Full,
		Coordinator:   Full,
		Operator:      Full,
		Administrator: Full,
		Root:          Full,
	}
}

// forConnectors is what muster-kube calls, which has a token for nothing else.
func forConnectors() grants {
	return grants{Connector: Full, Operator: Full, Administrator: Full, Root: Full}
}

// forOperators is what operators may see of other schedulers.
func forOperators() grants {
	return grants{Operator: Full, Administrator: Full, Root: Full}
}

// forAdministrators is what changes the cluster itself.
func forAdministrators() grants {
	return grants{Administrator: Full, Root: Full}
}

// row is what one method grants.
type row struct {
	method string // SERVICE/METHOD
	grants grants
	note   string // what "limited" and "here" mean; "" = the caption of the page says it
}

// table has a row for every method, in the order of the services' definition.
var table = []row{
	{"Cluster/Submit", forOwners(), "own jobs, administrators for others too; priority and negative nice are for operators, --reboot for administrators; an administrator's certificate names no user to run jobs as"},
	{"Cluster/SubmitStream", forOwners(), "as Submit"},
	{"Cluster/ListJobs", forReaders(), "PrivateData=jobs"},
	{"Cluster/StreamJobs", forReaders(), "PrivateData=jobs"},
	{"Cluster/WatchJob", forReaders(), "PrivateData=jobs"},
	{"Cluster/PutCrontab", forOwners(), "one's own; that of another user for administrators"},
	{"Cluster/GetCliFilter", forAllReaders(), ""},
	{"Cluster/GetCrontab", forOwners(), "one's own; that of another user for operators"},
	{"Cluster/SetTriggers", forOwners(), "programs that run as the caller; for others than administrators only with SlurmctldParameters=allow_user_triggers"},
	{"Cluster/ListTriggers", forOwners(), "operators see all triggers, others their own"},
	{"Cluster/ClearTriggers", forOwners(), "one's own; operators clear any"},
	{"Cluster/Cancel", forUsers(), "own jobs, and those of accounts that the caller coordinates"},
	{"Cluster/ControlJobs", forUsers(), "as Cancel; suspend and resume are for operators"},
	{"Cluster/NoteJobs", forUsers(), "own jobs that the controller still shows: the comment and the derived exit code"},
	{"Cluster/Why", forReaders(), "PrivateData=jobs and nodes"},
	{"Cluster/Suppose", forReaders(), "each change by the rule of its own method, further nodes for operators; PrivateData=jobs and nodes"},
	{"Cluster/ListNodes", forReaders(), "PrivateData=nodes"},
	{"Cluster/UpdateNode", forAdministrators(), ""},
	{"Cluster/ListPartitions", forReaders(), "PrivateData=partitions"},
	{"Cluster/GetConfig", forAllReaders(), ""},
	{"Cluster/Reconfigure", forAdministrators(), ""},
	{"Cluster/ChangePolicy", grants{Coordinator: Limited, Operator: Limited, Administrator: Full, Root: Full},
		"coordinators: users of their accounts; operators: everything but admin levels"},
	{"Cluster/GetPolicy", forAllReaders(), ""},
	{"Cluster/Transactions", grants{Operator: Full, Administrator: Full, Root: Full}, ""},
	{"Cluster/Shares", forReaders(), "PrivateData=usage"},
	{"Cluster/LimitUsage", forReaders(), "PrivateData=usage"},
	{"Cluster/Priorities", forReaders(), "PrivateData=jobs"},
	{"Cluster/Diag", forAllReaders(), "PrivateData=jobs and usage: whose calls"},
	{"Cluster/Ping", grants{RemoteRoot: Full, User: Full, Coordinator: Full, Operator: Full, Administrator: Full, Root: Full, Controller: Full}, ""},
	{"Cluster/CreateToken", grants{Administrator: Here, Root: Full}, "a machine vouches for its users, so it is not added from another machine, except with an administrator's certificate"},
	{"Cluster/ListHosts", grants{RemoteRoot: Limited, User: Limited, Coordinator: Limited, Operator: Limited, Administrator: Full, Root: Full}, "without the serial numbers of certificates, which are for administrators"},
	{"Cluster/RevokeHost", grants{Administrator: Here, Root: Full}, "as CreateToken"},
	{"Cluster/ListOrphans", grants{Administrator: Here, Root: Full}, "as CreateToken"},
	{"Cluster/KillOrphans", grants{Administrator: Here, Root: Full}, "as CreateToken"},
	{"Cluster/AdoptOrphans", grants{Administrator: Here, Root: Full}, "as CreateToken"},
	{"Cluster/CreateUserToken", grants{User: Limited, Coordinator: Limited, Operator: Limited, Administrator: Full, Root: Full},
		"a token of one's own; not inside a job on a compute node; never with a token"},
	{"Cluster/ListUserTokens", grants{User: Limited, Coordinator: Limited, Operator: Limited, Administrator: Full, Root: Full}, "one's own tokens"},
	{"Cluster/RevokeUserTokens", grants{User: Limited, Coordinator: Limited, Operator: Limited, Administrator: Full, Root: Full}, "one's own tokens"},
	{"Cluster/Shutdown", forAdministrators(), ""},
	{"Cluster/SetLog", forAdministrators(), ""},
	{"Cluster/StepUsage", forReaders(), "own jobs, and those of accounts that the caller coordinates"},
	{"Cluster/ListReservations", forReaders(), "PrivateData=reservations"},
	{"Cluster/ChangeReservation", forUsers(), "deletion of a reservation with USER_DELETE that names the caller"},
	{"Cluster/RunStep", forOwners(), "steps of one's own jobs"},
	{"Cluster/EndStep", forUsers(), "steps of one's own jobs"},
	{"Cluster/AttachStep", forOwners(), "steps of one's own jobs; root attaches to any"},
	{"Cluster/EndJob", forUsers(), "own jobs"},
	{"Cluster/ChangeNodes", forAdministrators(), ""},
	{"Cluster/ChangePartition", forAdministrators(), ""},
	{"Cluster/ListControllers", forAllReaders(), ""},
	{"Cluster/ChangeControllers", grants{Administrator: Here, Root: Full}, "as CreateToken"},
	{"Cluster/HoldNode", forConnectors(), ""},
	{"Cluster/ReleaseHold", forConnectors(), ""},
	{"Cluster/ListHolds", forOperators(), ""},
	{"Cluster/WatchHolds", forConnectors(), ""},
	{"Cluster/SubmitPods", forConnectors(), ""},
	{"Cluster/AdmitPods", forConnectors(), ""},
	{"Cluster/PodsOver", forConnectors(), ""},
	{"Cluster/Events", forReaders(), "PrivateData, as each event's own list has it; changes of the policy are for operators, tokens and certificates for administrators"},
	{"Cluster/ReadOutput", forOwners(), "own jobs; root reads those of any user, with that user's rights"},

	{"Shell/Sbatch", forOwners(), "as Submit"},

	{"Agents/Enrol", grants{Anonymous: Limited, RemoteRoot: Limited, User: Limited, Coordinator: Limited, Operator: Limited,
		Administrator: Limited, Root: Limited, Node: Limited, LoginHost: Limited, Controller: Limited}, "whoever holds an enrolment token that has not been used"},
	{"Agents/Renew", grants{Node: Limited, LoginHost: Limited}, "a certificate of the same name"},
	{"Agents/Configuration", grants{Root: Full, Node: Full}, ""},
	{"Agents/Connect", grants{Root: Full, Node: Limited}, "for the node that the certificate names"},
	{"Agents/Holds", grants{Root: Full, Node: Limited}, "of the node that the certificate names"},

	{"Ledger/Subscribe", grants{Root: Full, Controller: Full}, ""},
	{"Ledger/Content", grants{Root: Full, Controller: Full}, ""},
	{"Ledger/Confirm", grants{Root: Full, Controller: Full}, ""},
	{"Ledger/State", grants{Root: Full, Controller: Full}, ""},

	{"Accounting/Jobs", forReaders(), "PrivateData=jobs"},
	{"Accounting/JobRows", forReaders(), "PrivateData=jobs"},
	{"Accounting/Scripts", forReaders(), "scripts of one's own jobs"},
	{"Accounting/Sql", forUsers(), "rows of one's own jobs, and of accounts that the caller coordinates"},
	{"Accounting/Maintain", grants{Root: Full}, ""},
	{"Accounting/Report", forReaders(), "PrivateData=usage"},
	{"Accounting/Reasons", forReaders(), "PrivateData=jobs"},
	{"Accounting/JobReport", forReaders(), "PrivateData=jobs"},
	{"Accounting/PutGpuSamples", grants{Root: Full, Node: Limited}, "samples of the node that the certificate names"},
	{"Accounting/GpuHistory", forReaders(), "PrivateData=jobs"},
	{"Accounting/Advise", forReaders(), "PrivateData=jobs"},
	{"Accounting/Status", forAllReaders(), ""},
}
