package slurmapi

import (
	"github.com/musterhpc/muster/cli/acct"
	"github.com/musterhpc/muster/cli/query"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// route is how a path is answered: one of its functions is set, or it says why it
// is refused.
type route struct {
	// show gives the command whose document is the answer.
	show func(q *request) ([]string, error)
	// do makes a request of the services and gives the members of the answer.
	do func(q *request) (tree.Object, error)
	// reads tells that do changes nothing, as show never does.
	reads bool
	// refused says why Muster does not answer this path.
	refused string
	// params are the parameters of the query that it obeys. Others that are given
	// are named in a warning.
	params []string
	// note is what docs/rest.md says of the path beyond the command.
	note string
}

// documentCommands are those whose documents are answers.
func documentCommands() map[string]func() *tool.Command {
	return map[string]func() *tool.Command{
		"squeue": query.Squeue, "scontrol": query.Scontrol, "sdiag": query.Sdiag, "sshare": query.Sshare,
		"sacct": acct.Sacct, "sacctmgr": acct.Sacctmgr,
	}
}

// firsts are the first of each pair.
func firsts(pairs [][2]string) []string {
	out := make([]string, len(pairs))
	for i, p := range pairs {
		out[i] = p[0]
	}
	return out
}

// mootParams are parameters that ask for what every answer has, or for what only their
// client must know.
func mootParams() []string {
	return []string{
		"update_time",
		"flags",
		"with_assocs",
		"with_coords",
		"with_wckeys",
		"WithAssociations",
		"WithCoordinators",
		"format",
		"disable_truncate_usage_time",
		"whole_hetjob",
		"disable_wait_for_result",
		"usage_time_as_submit_time",
	}
}

// fixedRoute is a path that shows the same whatever its parameters are.
func fixedRoute(words ...string) route {
	return route{show: func(*request) ([]string, error) { return words, nil }}
}

// namedRoute is a path whose parameter is the last word of the command.
func namedRoute(param string, words ...string) route {
	return route{show: func(q *request) ([]string, error) {
		name, err := plainName(param, q.given[param])
		return append(words[:len(words):len(words)], name), err
	}}
}

// routeTable says for each path of the table how it is answered.
//
//muster:table one row for each path
func routeTable() map[string]route {
	return map[string]route{
		"GET /slurm/*/conf":                              {do: showConfig, reads: true, note: "slurm.conf, as far as Slurm's document has the same form"},
		"GET /slurm/*/diag/":                             fixedRoute("sdiag"),
		"POST /slurm/*/job/allocate":                     {do: allocateJob, note: "as salloc --no-shell"},
		"POST /slurm/*/job/submit":                       {do: submitJob, note: "as sbatch; #SBATCH lines of the script are not read"},
		"DELETE /slurm/*/job/{job_id}":                   {do: cancelOne, params: []string{"signal"}, note: "as scancel"},
		"GET /slurm/*/job/{job_id}":                      {show: showJob},
		"POST /slurm/*/job/{job_id}":                     {do: updateJob, note: "as scontrol update; hold: true and false as scontrol hold and release"},
		"GET /slurm/*/job/{job_id}/requeue":              {do: requeueOne, params: []string{"Hold", "SpecialExit", "Incomplete"}, note: "as scontrol requeue"},
		"DELETE /slurm/*/jobs/":                          {do: cancelSeveral, note: "as scancel with options"},
		"GET /slurm/*/jobs/":                             fixedRoute("squeue", "--states=all", "--all"),
		"POST /slurm/*/jobs/requeue":                     {do: requeueSeveral, note: "as scontrol requeue"},
		"GET /slurm/*/jobs/state/":                       {show: showStates, params: []string{"job_id"}},
		"GET /slurm/*/licenses/":                         fixedRoute("scontrol", "show", "licenses"),
		"POST /slurm/*/new/node/":                        {do: createNode, note: "as scontrol create"},
		"DELETE /slurm/*/node/{node_name}":               {do: deleteNode, note: "as scontrol delete: nodes that were added while the cluster ran"},
		"GET /slurm/*/node/{node_name}":                  namedRoute("node_name", "scontrol", "show", "node"),
		"POST /slurm/*/node/{node_name}":                 {do: updateNode, note: "as scontrol update"},
		"GET /slurm/*/nodes/":                            {show: showNodes},
		"POST /slurm/*/nodes/":                           {do: updateNodes, note: "as scontrol update"},
		"DELETE /slurm/*/partition/{partition_name}":     {do: deletePartition, note: "as scontrol delete: partitions that were added while the cluster ran"},
		"GET /slurm/*/partition/{partition_name}":        namedRoute("partition_name", "scontrol", "show", "partition"),
		"GET /slurm/*/partitions/":                       fixedRoute("scontrol", "--all", "show", "partition"),
		"POST /slurm/*/partitions/":                      {refused: "its body is the document of a partition, most of which follows from the configuration: use scontrol create and update"},
		"GET /slurm/*/ping/":                             fixedRoute("scontrol", "ping"),
		"GET /slurm/*/reconfigure/":                      {do: getReconfigure, note: "as scontrol reconfigure"},
		"POST /slurm/*/reservation":                      {do: setReservation, note: "as scontrol create, or update where the reservation exists"},
		"DELETE /slurm/*/reservation/{reservation_name}": {do: deleteReservation, note: "as scontrol delete"},
		"GET /slurm/*/reservation/{reservation_name}":    namedRoute("reservation_name", "scontrol", "show", "reservation"),
		"GET /slurm/*/reservations/":                     fixedRoute("scontrol", "show", "reservation"),
		"POST /slurm/*/reservations/":                    {do: setReservations, note: "as scontrol create, or update where the reservation exists"},
		"GET /slurm/*/resources/{job_id}":                {do: getLayout, reads: true, note: "what the job holds on each node"},
		"GET /slurm/*/shares":                            {show: showShares, params: []string{"accounts", "users"}},

		"DELETE /slurmdb/*/account/{account_name}": {do: removeEntity("account", "account_name", "removed_accounts"), note: "as sacctmgr delete"},
		"GET /slurmdb/*/account/{account_name}":    namedRoute("account_name", "sacctmgr", "show", "account"),
		"GET /slurmdb/*/accounts/":                 entityRoute("account", nil),
		"POST /slurmdb/*/accounts/":                {do: setAccounts, note: "as sacctmgr add, or modify where the account exists"},
		"POST /slurmdb/*/accounts_association/":    {do: addAccounts, note: "as sacctmgr add account"},
		"DELETE /slurmdb/*/association/":           {do: removeAssociations, params: []string{"account", "user", "partition"}, note: "as sacctmgr delete"},
		"GET /slurmdb/*/association/":              associationRoute(),
		"DELETE /slurmdb/*/associations/":          {do: removeAssociations, params: []string{"account", "user", "partition"}, note: "as sacctmgr delete"},
		"GET /slurmdb/*/associations/":             associationRoute(),
		"POST /slurmdb/*/associations/":            {do: setAssociations, note: "as sacctmgr add, or modify where the association exists"},
		"DELETE /slurmdb/*/cluster/{cluster_name}": {refused: "Muster's accounting is of one cluster, which is not deleted"},
		"GET /slurmdb/*/cluster/{cluster_name}":    namedRoute("cluster_name", "sacctmgr", "show", "cluster"),
		"GET /slurmdb/*/clusters/":                 fixedRoute("sacctmgr", "show", "cluster"),
		"POST /slurmdb/*/clusters/":                {refused: "Muster's accounting is of one cluster, whose name is ClusterName of slurm.conf"},
		"GET /slurmdb/*/conf":                      {refused: "accounting has no slurmdbd.conf: it is configured in muster.yaml"},
		"GET /slurmdb/*/config":                    fixedRoute("sacctmgr", "show", "configuration"),
		"POST /slurmdb/*/config":                   {refused: "use sacctmgr load, which checks the whole before it changes anything, or the paths of each entity"},
		"GET /slurmdb/*/diag/":                     {refused: "Muster has no slurmdbd whose calls and rollups could be counted: accounting's metrics are at /metrics"},
		"GET /slurmdb/*/instance/":                 {refused: "Muster does not record instances of a cloud"},
		"GET /slurmdb/*/instances/":                {refused: "Muster does not record instances of a cloud"},
		"GET /slurmdb/*/job/{job_id}":              {show: showPastJob},
		"POST /slurmdb/*/job/{job_id}":             {refused: "what accounting recorded follows from the ledger and is not edited: change the job with POST /slurm/*/job/{job_id} while it is known"},
		"GET /slurmdb/*/jobs/":                     {show: showPast, params: append(firsts(pastParams()), "show_duplicates", "skip_steps"), note: "without start_time, since midnight, as sacct"},
		"POST /slurmdb/*/jobs/":                    {refused: "what accounting recorded follows from the ledger and is not edited"},
		"GET /slurmdb/*/ping/":                     {do: pingPast, reads: true, note: "whether the accounting store answers"},
		"GET /slurmdb/*/qos/":                      entityRoute("qos", map[string]string{"name": "name"}),
		"POST /slurmdb/*/qos/":                     {do: setQOS, note: "as sacctmgr add, or modify where the QOS exists"},
		"DELETE /slurmdb/*/qos/{qos}":              {do: removeEntity("qos", "qos", "removed_qos"), note: "as sacctmgr delete"},
		"GET /slurmdb/*/qos/{qos}":                 namedRoute("qos", "sacctmgr", "show", "qos"),
		"GET /slurmdb/*/tres/":                     fixedRoute("sacctmgr", "show", "tres"),
		"POST /slurmdb/*/tres/":                    {refused: "what is counted is AccountingStorageTRES of slurm.conf"},
		"DELETE /slurmdb/*/user/{name}":            {do: removeEntity("user", "name", ""), note: "as sacctmgr delete"},
		"GET /slurmdb/*/user/{name}":               namedRoute("name", "sacctmgr", "show", "user"),
		"GET /slurmdb/*/users/":                    entityRoute("user", map[string]string{"default_account": "defaultaccount"}),
		"POST /slurmdb/*/users/":                   {do: setUsers, note: "as sacctmgr add, or modify where the user exists"},
		"POST /slurmdb/*/users_association/":       {do: addUsers, note: "as sacctmgr add user"},
		"DELETE /slurmdb/*/wckey/{id}":             {do: removeWCKey, note: "as sacctmgr delete"},
		"GET /slurmdb/*/wckey/{id}":                namedRoute("id", "sacctmgr", "show", "wckey"),
		"GET /slurmdb/*/wckeys/":                   entityRoute("wckey", map[string]string{"name": "name"}),
		"POST /slurmdb/*/wckeys/":                  {do: setWCKeys, note: "as sacctmgr add"},

		"POST /util/*/hostlist":  {do: foldHosts, note: "as scontrol show hostlist"},
		"POST /util/*/hostnames": {do: expandHosts, note: "as scontrol show hostnames"},
	}
}
