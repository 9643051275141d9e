CREATE TABLE IF NOT EXISTS `muster`.events (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`kind` LowCardinality(String),
	`actor_kind` LowCardinality(String),
	`actor_uid` UInt32 CODEC(ZSTD(1)),
	`actor` LowCardinality(String),
	`host` LowCardinality(String),
	`command` LowCardinality(String),
	`cause_seq` UInt64 CODEC(ZSTD(1)),
	`uid` UInt64 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`node` LowCardinality(String),
	`body` String CODEC(ZSTD(1)),
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, seq)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'the ledger, event by event: the audit trail';

CREATE TABLE IF NOT EXISTS `muster`.jobs (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`array_uid` UInt64 CODEC(ZSTD(1)),
	`array_job_id` UInt32 CODEC(ZSTD(1)),
	`array_task` Int64 CODEC(ZSTD(1)),
	`array_tasks` String CODEC(ZSTD(1)),
	`count` UInt64 CODEC(ZSTD(1)),
	`name` String CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`user_id` UInt32 CODEC(ZSTD(1)),
	`group` LowCardinality(String),
	`group_id` UInt32 CODEC(ZSTD(1)),
	`account` LowCardinality(String),
	`assoc` UInt32 CODEC(ZSTD(1)),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`wckey` LowCardinality(String),
	`comment` String CODEC(ZSTD(1)),
	`state` LowCardinality(String),
	`exit_code` Int32 CODEC(ZSTD(1)),
	`exit_signal` Int32 CODEC(ZSTD(1)),
	`derived_code` Int32 CODEC(ZSTD(1)),
	`derived_signal` Int32 CODEC(ZSTD(1)),
	`cancelled_by` Nullable(UInt32) CODEC(ZSTD(1)),
	`reason` LowCardinality(String),
	`end_reason` LowCardinality(String),
	`submit` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`eligible` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`start` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`limit_us` Int64 CODEC(ZSTD(1)),
	`suspended_us` Int64 CODEC(ZSTD(1)),
	`elapsed_us` Int64 CODEC(ZSTD(1)),
	`req_cpus` Int64 CODEC(ZSTD(1)),
	`req_mem_mib` Int64 CODEC(ZSTD(1)),
	`req_nodes` Int64 CODEC(ZSTD(1)),
	`req_gpus` Int64 CODEC(ZSTD(1)),
	`req_billing` Int64 CODEC(ZSTD(1)),
	`req_tres` Map(LowCardinality(String), Int64),
	`alloc_cpus` Int64 CODEC(ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(ZSTD(1)),
	`alloc_nodes` Int64 CODEC(ZSTD(1)),
	`alloc_gpus` Int64 CODEC(ZSTD(1)),
	`alloc_billing` Int64 CODEC(ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`req_nodes_min` UInt32 CODEC(ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`node_list` String CODEC(ZSTD(1)),
	`constraint` LowCardinality(String),
	`reservation` LowCardinality(String),
	`licenses` LowCardinality(String),
	`priority` UInt32 CODEC(ZSTD(1)),
	`backfill` Bool,
	`batch` Bool,
	`work_dir` String CODEC(ZSTD(1)),
	`submit_line` String CODEC(ZSTD(1)),
	`stdin` String CODEC(ZSTD(1)),
	`stdout` String CODEC(ZSTD(1)),
	`stderr` String CODEC(ZSTD(1)),
	`gpu_uuids` Array(String) CODEC(ZSTD(1)),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	`gpu_measured_us` Int64 CODEC(ZSTD(1)),
	`gpu_util_us` Int64 CODEC(ZSTD(1)),
	`gpu_no_process_us` Int64 CODEC(ZSTD(1)),
	`gpu_idle_us` Int64 CODEC(ZSTD(1)),
	`gpu_busy_us` Int64 CODEC(ZSTD(1)),
	INDEX ix_submit submit TYPE minmax GRANULARITY 1,
	INDEX ix_ids [job_id, array_job_id] TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, end, uid, restarts)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'one row for each run of a job that is over; never changed';

CREATE TABLE IF NOT EXISTS `muster`.live (
	`gen` UInt32,
	`final` Bool,
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`array_uid` UInt64 CODEC(ZSTD(1)),
	`array_job_id` UInt32 CODEC(ZSTD(1)),
	`array_task` Int64 CODEC(ZSTD(1)),
	`array_tasks` String CODEC(ZSTD(1)),
	`count` UInt64 CODEC(ZSTD(1)),
	`name` String CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`user_id` UInt32 CODEC(ZSTD(1)),
	`group` LowCardinality(String),
	`group_id` UInt32 CODEC(ZSTD(1)),
	`account` LowCardinality(String),
	`assoc` UInt32 CODEC(ZSTD(1)),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`wckey` LowCardinality(String),
	`comment` String CODEC(ZSTD(1)),
	`state` LowCardinality(String),
	`exit_code` Int32 CODEC(ZSTD(1)),
	`exit_signal` Int32 CODEC(ZSTD(1)),
	`derived_code` Int32 CODEC(ZSTD(1)),
	`derived_signal` Int32 CODEC(ZSTD(1)),
	`cancelled_by` Nullable(UInt32) CODEC(ZSTD(1)),
	`reason` LowCardinality(String),
	`end_reason` LowCardinality(String),
	`submit` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`eligible` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`start` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`end` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`limit_us` Int64 CODEC(ZSTD(1)),
	`suspended_us` Int64 CODEC(ZSTD(1)),
	`elapsed_us` Int64 CODEC(ZSTD(1)),
	`req_cpus` Int64 CODEC(ZSTD(1)),
	`req_mem_mib` Int64 CODEC(ZSTD(1)),
	`req_nodes` Int64 CODEC(ZSTD(1)),
	`req_gpus` Int64 CODEC(ZSTD(1)),
	`req_billing` Int64 CODEC(ZSTD(1)),
	`req_tres` Map(LowCardinality(String), Int64),
	`alloc_cpus` Int64 CODEC(ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(ZSTD(1)),
	`alloc_nodes` Int64 CODEC(ZSTD(1)),
	`alloc_gpus` Int64 CODEC(ZSTD(1)),
	`alloc_billing` Int64 CODEC(ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`req_nodes_min` UInt32 CODEC(ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`node_list` String CODEC(ZSTD(1)),
	`constraint` LowCardinality(String),
	`reservation` LowCardinality(String),
	`licenses` LowCardinality(String),
	`priority` UInt32 CODEC(ZSTD(1)),
	`backfill` Bool,
	`batch` Bool,
	`work_dir` String CODEC(ZSTD(1)),
	`submit_line` String CODEC(ZSTD(1)),
	`stdin` String CODEC(ZSTD(1)),
	`stdout` String CODEC(ZSTD(1)),
	`stderr` String CODEC(ZSTD(1)),
	`gpu_uuids` Array(String) CODEC(ZSTD(1)),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	`gpu_measured_us` Int64 CODEC(ZSTD(1)),
	`gpu_util_us` Int64 CODEC(ZSTD(1)),
	`gpu_no_process_us` Int64 CODEC(ZSTD(1)),
	`gpu_idle_us` Int64 CODEC(ZSTD(1)),
	`gpu_busy_us` Int64 CODEC(ZSTD(1)),
	`held_nodes` Array(String) CODEC(ZSTD(1)),
	`held_cpus` Array(Int64) CODEC(ZSTD(1)),
	`held_mem_mib` Array(Int64) CODEC(ZSTD(1)),
	`held_gpus` Array(Int64) CODEC(ZSTD(1)),
	`held_to` Array(DateTime64(6, 'UTC')) CODEC(ZSTD(1)),
	`step_ids` Array(Int32) CODEC(ZSTD(1)),
	`step_names` Array(String) CODEC(ZSTD(1)),
	`step_starts` Array(DateTime64(6, 'UTC')) CODEC(ZSTD(1)),
	`step_tasks` Array(UInt32) CODEC(ZSTD(1)),
	`step_nodes` Array(String) CODEC(ZSTD(1))
) ENGINE = ReplacingMergeTree(seq)
PARTITION BY (ledger, gen)
ORDER BY (ledger, gen, uid, restarts)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'runs that are open, newest form wins; see the position for the generation in force';

CREATE TABLE IF NOT EXISTS `muster`.steps (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`step` Int32 CODEC(ZSTD(1)),
	`name` LowCardinality(String),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`state` LowCardinality(String),
	`exit_code` Int32 CODEC(ZSTD(1)),
	`exit_signal` Int32 CODEC(ZSTD(1)),
	`start` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`node_list` String CODEC(ZSTD(1)),
	`alloc_cpus` Int64 CODEC(ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(ZSTD(1)),
	`alloc_nodes` Int64 CODEC(ZSTD(1)),
	`alloc_gpus` Int64 CODEC(ZSTD(1)),
	`alloc_billing` Int64 CODEC(ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, end, uid, restarts, step)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'one row for each step that is over; batch is the script itself';

CREATE TABLE IF NOT EXISTS `muster`.job_nodes (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`node` LowCardinality(String),
	`from` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`to` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`cpus` Int64 CODEC(ZSTD(1)),
	`mem_mib` Int64 CODEC(ZSTD(1)),
	`gpus` Int64 CODEC(ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`lost` Bool,
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	INDEX ix_from from TYPE minmax GRANULARITY 1,
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, to, uid, restarts, node)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what each run held and used on each of its nodes';

CREATE TABLE IF NOT EXISTS `muster`.job_gpus (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`node` LowCardinality(String),
	`from` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`to` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`gpu_uuid` LowCardinality(String),
	`gpu_index` UInt32 CODEC(ZSTD(1)),
	`gpu_type` LowCardinality(String),
	`measured` Bool,
	`no_process_us` Int64 CODEC(ZSTD(1)),
	`idle_us` Int64 CODEC(ZSTD(1)),
	`busy_us` Int64 CODEC(ZSTD(1)),
	`util_us` Int64 CODEC(ZSTD(1)),
	`sm_us` Int64 CODEC(ZSTD(1)),
	`tensor_us` Int64 CODEC(ZSTD(1)),
	`peak_mem` Int64 CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`energy_mj` Int64 CODEC(ZSTD(1)),
	`throttled_us` Int64 CODEC(ZSTD(1)),
	`xids` Int64 CODEC(ZSTD(1)),
	INDEX ix_from from TYPE minmax GRANULARITY 1,
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, to, uid, restarts, gpu_uuid)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'which run held which device, from when to when';

CREATE TABLE IF NOT EXISTS `muster`.node_states (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`node` LowCardinality(String),
	`state` LowCardinality(String),
	`class` LowCardinality(String),
	`restated` Bool,
	`cpus` Int64 CODEC(ZSTD(1)),
	`mem_mib` Int64 CODEC(ZSTD(1)),
	`gpus` Int64 CODEC(ZSTD(1)),
	`tres` Map(LowCardinality(String), Int64),
	`partitions` Array(LowCardinality(String)) CODEC(ZSTD(1)),
	`reason` LowCardinality(String),
	`by` LowCardinality(String),
	`by_uid` UInt32 CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, at, node, seq)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what holds for a node from an instant on; said again at each midnight UTC (restated)';

CREATE TABLE IF NOT EXISTS `muster`.pending_reasons (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`count` UInt64 CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`code` LowCardinality(String),
	`tres` LowCardinality(String),
	`limit` Int64 CODEC(ZSTD(1)),
	`in_use` Int64 CODEC(ZSTD(1)),
	`asked` Int64 CODEC(ZSTD(1)),
	`subject` LowCardinality(String),
	`blocker` UInt64 CODEC(ZSTD(1)),
	`detail` String CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, uid, restarts, at, seq)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'why a run waits from an instant on, until its next reason, start or end';

CREATE TABLE IF NOT EXISTS `muster`.associations (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`id` UInt32 CODEC(ZSTD(1)),
	`account` LowCardinality(String),
	`user` LowCardinality(String),
	`partition` LowCardinality(String),
	`parent` UInt32 CODEC(ZSTD(1)),
	`shares` Int64 CODEC(ZSTD(1)),
	`removed` Bool
) ENGINE = MergeTree
ORDER BY (ledger, id, seq)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'associations as they were made and changed; the newest row of an id holds';

CREATE TABLE IF NOT EXISTS `muster`.ingest (
	`ledger` UUID,
	`phase` LowCardinality(String),
	`n` UInt64,
	`writer` UUID,
	`first` UInt64,
	`last` UInt64,
	`at` DateTime64(6, 'UTC'),
	`gen` UInt32,
	`written` DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ReplacingMergeTree(n)
ORDER BY (ledger, phase)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'where the writer is: one row for each phase, newest n wins';

CREATE TABLE IF NOT EXISTS `muster`.tally_snapshots (
	`ledger` UUID,
	`seq` UInt64,
	`part` UInt32,
	`parts` UInt32,
	`data` String CODEC(ZSTD(3))
) ENGINE = MergeTree
ORDER BY (ledger, seq, part)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'the counting state, from which the writer resumes';

CREATE TABLE IF NOT EXISTS `muster`.events_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`kind` LowCardinality(String),
	`actor_kind` LowCardinality(String),
	`actor_uid` UInt32 CODEC(ZSTD(1)),
	`actor` LowCardinality(String),
	`host` LowCardinality(String),
	`command` LowCardinality(String),
	`cause_seq` UInt64 CODEC(ZSTD(1)),
	`uid` UInt64 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`node` LowCardinality(String),
	`body` String CODEC(ZSTD(1)),
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/events', '{replica}')
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, seq)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'the ledger, event by event: the audit trail';

CREATE TABLE IF NOT EXISTS `muster`.events ON CLUSTER `c` AS `muster`.events_local ENGINE = Distributed(`c`, `muster`, events_local, intDiv(seq, 100000));

CREATE TABLE IF NOT EXISTS `muster`.jobs_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`array_uid` UInt64 CODEC(ZSTD(1)),
	`array_job_id` UInt32 CODEC(ZSTD(1)),
	`array_task` Int64 CODEC(ZSTD(1)),
	`array_tasks` String CODEC(ZSTD(1)),
	`count` UInt64 CODEC(ZSTD(1)),
	`name` String CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`user_id` UInt32 CODEC(ZSTD(1)),
	`group` LowCardinality(String),
	`group_id` UInt32 CODEC(ZSTD(1)),
	`account` LowCardinality(String),
	`assoc` UInt32 CODEC(ZSTD(1)),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`wckey` LowCardinality(String),
	`comment` String CODEC(ZSTD(1)),
	`state` LowCardinality(String),
	`exit_code` Int32 CODEC(ZSTD(1)),
	`exit_signal` Int32 CODEC(ZSTD(1)),
	`derived_code` Int32 CODEC(ZSTD(1)),
	`derived_signal` Int32 CODEC(ZSTD(1)),
	`cancelled_by` Nullable(UInt32) CODEC(ZSTD(1)),
	`reason` LowCardinality(String),
	`end_reason` LowCardinality(String),
	`submit` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`eligible` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`start` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`limit_us` Int64 CODEC(ZSTD(1)),
	`suspended_us` Int64 CODEC(ZSTD(1)),
	`elapsed_us` Int64 CODEC(ZSTD(1)),
	`req_cpus` Int64 CODEC(ZSTD(1)),
	`req_mem_mib` Int64 CODEC(ZSTD(1)),
	`req_nodes` Int64 CODEC(ZSTD(1)),
	`req_gpus` Int64 CODEC(ZSTD(1)),
	`req_billing` Int64 CODEC(ZSTD(1)),
	`req_tres` Map(LowCardinality(String), Int64),
	`alloc_cpus` Int64 CODEC(ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(ZSTD(1)),
	`alloc_nodes` Int64 CODEC(ZSTD(1)),
	`alloc_gpus` Int64 CODEC(ZSTD(1)),
	`alloc_billing` Int64 CODEC(ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`req_nodes_min` UInt32 CODEC(ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`node_list` String CODEC(ZSTD(1)),
	`constraint` LowCardinality(String),
	`reservation` LowCardinality(String),
	`licenses` LowCardinality(String),
	`priority` UInt32 CODEC(ZSTD(1)),
	`backfill` Bool,
	`batch` Bool,
	`work_dir` String CODEC(ZSTD(1)),
	`submit_line` String CODEC(ZSTD(1)),
	`stdin` String CODEC(ZSTD(1)),
	`stdout` String CODEC(ZSTD(1)),
	`stderr` String CODEC(ZSTD(1)),
	`gpu_uuids` Array(String) CODEC(ZSTD(1)),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	`gpu_measured_us` Int64 CODEC(ZSTD(1)),
	`gpu_util_us` Int64 CODEC(ZSTD(1)),
	`gpu_no_process_us` Int64 CODEC(ZSTD(1)),
	`gpu_idle_us` Int64 CODEC(ZSTD(1)),
	`gpu_busy_us` Int64 CODEC(ZSTD(1)),
	INDEX ix_submit submit TYPE minmax GRANULARITY 1,
	INDEX ix_ids [job_id, array_job_id] TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/jobs', '{replica}')
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, end, uid, restarts)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'one row for each run of a job that is over; never changed';

CREATE TABLE IF NOT EXISTS `muster`.jobs ON CLUSTER `c` AS `muster`.jobs_local ENGINE = Distributed(`c`, `muster`, jobs_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.live_local ON CLUSTER `c` (
	`gen` UInt32,
	`final` Bool,
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`array_uid` UInt64 CODEC(ZSTD(1)),
	`array_job_id` UInt32 CODEC(ZSTD(1)),
	`array_task` Int64 CODEC(ZSTD(1)),
	`array_tasks` String CODEC(ZSTD(1)),
	`count` UInt64 CODEC(ZSTD(1)),
	`name` String CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`user_id` UInt32 CODEC(ZSTD(1)),
	`group` LowCardinality(String),
	`group_id` UInt32 CODEC(ZSTD(1)),
	`account` LowCardinality(String),
	`assoc` UInt32 CODEC(ZSTD(1)),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`wckey` LowCardinality(String),
	`comment` String CODEC(ZSTD(1)),
	`state` LowCardinality(String),
	`exit_code` Int32 CODEC(ZSTD(1)),
	`exit_signal` Int32 CODEC(ZSTD(1)),
	`derived_code` Int32 CODEC(ZSTD(1)),
	`derived_signal` Int32 CODEC(ZSTD(1)),
	`cancelled_by` Nullable(UInt32) CODEC(ZSTD(1)),
	`reason` LowCardinality(String),
	`end_reason` LowCardinality(String),
	`submit` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`eligible` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`start` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`end` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`limit_us` Int64 CODEC(ZSTD(1)),
	`suspended_us` Int64 CODEC(ZSTD(1)),
	`elapsed_us` Int64 CODEC(ZSTD(1)),
	`req_cpus` Int64 CODEC(ZSTD(1)),
	`req_mem_mib` Int64 CODEC(ZSTD(1)),
	`req_nodes` Int64 CODEC(ZSTD(1)),
	`req_gpus` Int64 CODEC(ZSTD(1)),
	`req_billing` Int64 CODEC(ZSTD(1)),
	`req_tres` Map(LowCardinality(String), Int64),
	`alloc_cpus` Int64 CODEC(ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(ZSTD(1)),
	`alloc_nodes` Int64 CODEC(ZSTD(1)),
	`alloc_gpus` Int64 CODEC(ZSTD(1)),
	`alloc_billing` Int64 CODEC(ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`req_nodes_min` UInt32 CODEC(ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`node_list` String CODEC(ZSTD(1)),
	`constraint` LowCardinality(String),
	`reservation` LowCardinality(String),
	`licenses` LowCardinality(String),
	`priority` UInt32 CODEC(ZSTD(1)),
	`backfill` Bool,
	`batch` Bool,
	`work_dir` String CODEC(ZSTD(1)),
	`submit_line` String CODEC(ZSTD(1)),
	`stdin` String CODEC(ZSTD(1)),
	`stdout` String CODEC(ZSTD(1)),
	`stderr` String CODEC(ZSTD(1)),
	`gpu_uuids` Array(String) CODEC(ZSTD(1)),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	`gpu_measured_us` Int64 CODEC(ZSTD(1)),
	`gpu_util_us` Int64 CODEC(ZSTD(1)),
	`gpu_no_process_us` Int64 CODEC(ZSTD(1)),
	`gpu_idle_us` Int64 CODEC(ZSTD(1)),
	`gpu_busy_us` Int64 CODEC(ZSTD(1)),
	`held_nodes` Array(String) CODEC(ZSTD(1)),
	`held_cpus` Array(Int64) CODEC(ZSTD(1)),
	`held_mem_mib` Array(Int64) CODEC(ZSTD(1)),
	`held_gpus` Array(Int64) CODEC(ZSTD(1)),
	`held_to` Array(DateTime64(6, 'UTC')) CODEC(ZSTD(1)),
	`step_ids` Array(Int32) CODEC(ZSTD(1)),
	`step_names` Array(String) CODEC(ZSTD(1)),
	`step_starts` Array(DateTime64(6, 'UTC')) CODEC(ZSTD(1)),
	`step_tasks` Array(UInt32) CODEC(ZSTD(1)),
	`step_nodes` Array(String) CODEC(ZSTD(1))
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/muster/live', '{replica}', seq)
PARTITION BY (ledger, gen)
ORDER BY (ledger, gen, uid, restarts)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'runs that are open, newest form wins; see the position for the generation in force';

CREATE TABLE IF NOT EXISTS `muster`.live ON CLUSTER `c` AS `muster`.live_local ENGINE = Distributed(`c`, `muster`, live_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.steps_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`step` Int32 CODEC(ZSTD(1)),
	`name` LowCardinality(String),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`state` LowCardinality(String),
	`exit_code` Int32 CODEC(ZSTD(1)),
	`exit_signal` Int32 CODEC(ZSTD(1)),
	`start` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`node_list` String CODEC(ZSTD(1)),
	`alloc_cpus` Int64 CODEC(ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(ZSTD(1)),
	`alloc_nodes` Int64 CODEC(ZSTD(1)),
	`alloc_gpus` Int64 CODEC(ZSTD(1)),
	`alloc_billing` Int64 CODEC(ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/steps', '{replica}')
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, end, uid, restarts, step)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'one row for each step that is over; batch is the script itself';

CREATE TABLE IF NOT EXISTS `muster`.steps ON CLUSTER `c` AS `muster`.steps_local ENGINE = Distributed(`c`, `muster`, steps_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.job_nodes_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`node` LowCardinality(String),
	`from` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`to` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`cpus` Int64 CODEC(ZSTD(1)),
	`mem_mib` Int64 CODEC(ZSTD(1)),
	`gpus` Int64 CODEC(ZSTD(1)),
	`tasks` UInt32 CODEC(ZSTD(1)),
	`lost` Bool,
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(ZSTD(1)),
	`system_cpu_us` Int64 CODEC(ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`read_bytes` Int64 CODEC(ZSTD(1)),
	`write_bytes` Int64 CODEC(ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(ZSTD(1)),
	`maj_faults` Int64 CODEC(ZSTD(1)),
	INDEX ix_from from TYPE minmax GRANULARITY 1,
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/job_nodes', '{replica}')
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, to, uid, restarts, node)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what each run held and used on each of its nodes';

CREATE TABLE IF NOT EXISTS `muster`.job_nodes ON CLUSTER `c` AS `muster`.job_nodes_local ENGINE = Distributed(`c`, `muster`, job_nodes_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.job_gpus_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`node` LowCardinality(String),
	`from` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`to` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`gpu_uuid` LowCardinality(String),
	`gpu_index` UInt32 CODEC(ZSTD(1)),
	`gpu_type` LowCardinality(String),
	`measured` Bool,
	`no_process_us` Int64 CODEC(ZSTD(1)),
	`idle_us` Int64 CODEC(ZSTD(1)),
	`busy_us` Int64 CODEC(ZSTD(1)),
	`util_us` Int64 CODEC(ZSTD(1)),
	`sm_us` Int64 CODEC(ZSTD(1)),
	`tensor_us` Int64 CODEC(ZSTD(1)),
	`peak_mem` Int64 CODEC(ZSTD(1)),
	`mem_mib_s` Int64 CODEC(ZSTD(1)),
	`energy_mj` Int64 CODEC(ZSTD(1)),
	`throttled_us` Int64 CODEC(ZSTD(1)),
	`xids` Int64 CODEC(ZSTD(1)),
	INDEX ix_from from TYPE minmax GRANULARITY 1,
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/job_gpus', '{replica}')
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, to, uid, restarts, gpu_uuid)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'which run held which device, from when to when';

CREATE TABLE IF NOT EXISTS `muster`.job_gpus ON CLUSTER `c` AS `muster`.job_gpus_local ENGINE = Distributed(`c`, `muster`, job_gpus_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.node_states_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`node` LowCardinality(String),
	`state` LowCardinality(String),
	`class` LowCardinality(String),
	`restated` Bool,
	`cpus` Int64 CODEC(ZSTD(1)),
	`mem_mib` Int64 CODEC(ZSTD(1)),
	`gpus` Int64 CODEC(ZSTD(1)),
	`tres` Map(LowCardinality(String), Int64),
	`partitions` Array(LowCardinality(String)) CODEC(ZSTD(1)),
	`reason` LowCardinality(String),
	`by` LowCardinality(String),
	`by_uid` UInt32 CODEC(ZSTD(1))
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/node_states', '{replica}')
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, at, node, seq)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what holds for a node from an instant on; said again at each midnight UTC (restated)';

CREATE TABLE IF NOT EXISTS `muster`.node_states ON CLUSTER `c` AS `muster`.node_states_local ENGINE = Distributed(`c`, `muster`, node_states_local, cityHash64(node));

CREATE TABLE IF NOT EXISTS `muster`.pending_reasons_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`count` UInt64 CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`qos` LowCardinality(String),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`code` LowCardinality(String),
	`tres` LowCardinality(String),
	`limit` Int64 CODEC(ZSTD(1)),
	`in_use` Int64 CODEC(ZSTD(1)),
	`asked` Int64 CODEC(ZSTD(1)),
	`subject` LowCardinality(String),
	`blocker` UInt64 CODEC(ZSTD(1)),
	`detail` String CODEC(ZSTD(1))
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/pending_reasons', '{replica}')
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, uid, restarts, at, seq)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'why a run waits from an instant on, until its next reason, start or end';

CREATE TABLE IF NOT EXISTS `muster`.pending_reasons ON CLUSTER `c` AS `muster`.pending_reasons_local ENGINE = Distributed(`c`, `muster`, pending_reasons_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.associations ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`at` DateTime64(6, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
	`id` UInt32 CODEC(ZSTD(1)),
	`account` LowCardinality(String),
	`user` LowCardinality(String),
	`partition` LowCardinality(String),
	`parent` UInt32 CODEC(ZSTD(1)),
	`shares` Int64 CODEC(ZSTD(1)),
	`removed` Bool
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/all/muster/associations', '{replica}')
ORDER BY (ledger, id, seq)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'associations as they were made and changed; the newest row of an id holds';

CREATE TABLE IF NOT EXISTS `muster`.ingest ON CLUSTER `c` (
	`ledger` UUID,
	`phase` LowCardinality(String),
	`n` UInt64,
	`writer` UUID,
	`first` UInt64,
	`last` UInt64,
	`at` DateTime64(6, 'UTC'),
	`gen` UInt32,
	`written` DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/all/muster/ingest', '{replica}', n)
ORDER BY (ledger, phase)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'where the writer is: one row for each phase, newest n wins';

CREATE TABLE IF NOT EXISTS `muster`.tally_snapshots ON CLUSTER `c` (
	`ledger` UUID,
	`seq` UInt64,
	`part` UInt32,
	`parts` UInt32,
	`data` String CODEC(ZSTD(3))
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/all/muster/tally_snapshots', '{replica}')
ORDER BY (ledger, seq, part)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'the counting state, from which the writer resumes';

