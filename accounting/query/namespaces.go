package query

// Namespaces asks what jobs and pods held within the window: namespace, kind, name, account, runs,
// GPUs and thousandths of CPUs times microseconds (Int128). A pod that Muster scheduled is a job
// of the ledger, and its namespace is in the event of its submission; one that it was only told of
// is a hold, which has no account, user or partition by which it could be chosen. Jobs without pods
// are of the namespace "". The pods of one namespace, if it is named, are told by their names; all
// others are added up. They are told too, because how they are rounded depends on all of them.
func (r *Report) Namespaces(scope Scope, one string) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	name := "''"
	if one != "" {
		name = "if(namespace = " + b.bindValue("namespace", "String", one) + ", name, '')"
	}
	filters := r.filterClause(b)
	runs := b.allRuns("uid, name, account, alloc_gpus, alloc_cpus, start, end", ran+filters)
	submitted := "SELECT uid, any(JSONExtractString(body, 'Spec', 'Pods', 'Space')) AS space FROM " + b.qualifyTable("events") +
		" WHERE " + stored + " AND kind = 'JobSubmitted' AND JSONHas(body, 'Spec', 'Pods') GROUP BY uid"
	amount := func(gpus, milli string) string {
		return "toInt128(" + gpus + ") * " + overlap + " AS gpu, toInt128(" + milli + ") * " + overlap + " AS milli"
	}
	holds := ""
	if filters == "" {
		holds = "\n  UNION ALL\n  SELECT namespace, 'hold', concat(namespace, '/', pod), '', " + amount("gpus", "milli_cpu") +
			"\n  FROM (SELECT namespace, pod, gpus, milli_cpu, started AS start, ended AS end FROM (\n" + holdRows(b) + "\n  ))\n  WHERE " + ran
	}
	return b.buildQuery("SELECT namespace, kind, " + name + " AS named, toString(account) AS of_account, toInt64(count()) AS runs, " +
		"toString(sum(gpu)) AS gpu_us, toString(sum(milli)) AS milli_us\nFROM (\n" +
		"  SELECT ifNull(space, '') AS namespace, if(namespace = '', 'job', 'pod') AS kind, toString(name) AS name, toString(account) AS account, " +
		amount("alloc_gpus", "1000 * alloc_cpus") + "\n  FROM " + runs + " AS runs LEFT JOIN (" + submitted + ") AS pods ON runs.uid = pods.uid" + holds +
		"\n)\nGROUP BY namespace, kind, named, of_account\nORDER BY namespace, kind, of_account, named")
}
