package query

// holdRows makes holds of the events: each ForeignHoldTaken with the instant of the
// ForeignHoldReleased that follows it on its node.
func holdRows(b *builder) string {
	return "  SELECT at AS started, ended, node, JSONExtractString(hold, 'ID') AS id, JSONExtractString(hold, 'Space') AS namespace, JSONExtractString(hold, 'Owner') AS pod,\n" +
		"    JSONExtractInt(hold, 'MilliCPU') AS milli_cpu, JSONExtractInt(hold, 'Mem') AS mem_mib, length(gpu_uuids) AS gpus,\n" +
		"    arrayMap(g -> JSONExtractString(g, 'UUID'), JSONExtractArrayRaw(hold, 'GPUs')) AS gpu_uuids, JSONExtractInt(hold, 'Priority') AS priority\n" +
		"  FROM (SELECT kind, at, node, JSONExtractRaw(body, 'Hold') AS hold, leadInFrame(toNullable(at)) OVER (PARTITION BY node, " +
		"if(kind = 'ForeignHoldTaken', JSONExtractString(body, 'Hold', 'ID'), JSONExtractString(body, 'ID')) ORDER BY seq ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS ended\n" +
		"    FROM " + b.qualifyTable("events") + " WHERE " + stored +
		" AND kind IN ('ForeignHoldTaken', 'ForeignHoldReleased')) AS h\n  WHERE kind = 'ForeignHoldTaken'"
}
