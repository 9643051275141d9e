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
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, T64, ZSTD(1)),
	`uid` UInt64 CODEC(DoubleDelta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`array_uid` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`array_job_id` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`array_task` Int64 CODEC(GCD, T64, ZSTD(1)),
	`array_tasks` String CODEC(ZSTD(1)),
	`count` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`name` String CODEC(ZSTD(3)),
	`owner` LowCardinality(String) CODEC(ZSTD(3)),
	`partition` LowCardinality(String) CODEC(ZSTD(3)),
	`qos` LowCardinality(String) CODEC(ZSTD(3)),
	`wckey` LowCardinality(String) CODEC(ZSTD(3)),
	`comment` String CODEC(ZSTD(1)),
	`state` LowCardinality(String) CODEC(ZSTD(3)),
	`exit_code` Int32 CODEC(GCD, T64, ZSTD(1)),
	`exit_signal` Int32 CODEC(GCD, T64, ZSTD(1)),
	`derived_code` Int32 CODEC(GCD, T64, ZSTD(1)),
	`derived_signal` Int32 CODEC(GCD, T64, ZSTD(1)),
	`cancelled_by` Nullable(UInt32) CODEC(GCD, T64, ZSTD(1)),
	`reason` LowCardinality(String) CODEC(ZSTD(3)),
	`end_reason` LowCardinality(String) CODEC(ZSTD(3)),
	`submit` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64, ZSTD(1)),
	`eligible_gap_us` Nullable(Int64) CODEC(GCD, T64('bit'), ZSTD(1)),
	`start_gap_us` Nullable(Int64) CODEC(GCD, T64('bit'), ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`limit_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`suspended_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`req_cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_nodes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_billing` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_tres` Map(LowCardinality(String), Int64),
	`alloc_cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_nodes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_billing` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`req_nodes_min` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`tasks` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`node_list` String CODEC(ZSTD(3)),
	`constraint` LowCardinality(String) CODEC(ZSTD(3)),
	`reservation` LowCardinality(String) CODEC(ZSTD(3)),
	`licenses` LowCardinality(String) CODEC(ZSTD(3)),
	`priority` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`backfill` Bool,
	`batch` Bool,
	`work_dir` String CODEC(ZSTD(1)),
	`submit_line` LowCardinality(String) CODEC(ZSTD(3)),
	`stdin` String CODEC(ZSTD(1)),
	`stdout` String CODEC(ZSTD(1)),
	`stderr` String CODEC(ZSTD(1)),
	`gpu_uuids` Array(LowCardinality(String)) CODEC(ZSTD(3)),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`system_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`read_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`write_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`maj_faults` Int64 CODEC(GCD, T64, ZSTD(1)),
	`gpu_measured_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_util_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_no_process_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_idle_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_busy_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(owner, '\x1f', 1),
	`user_id` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(owner, '\x1f', 4), '\x1f', -1)),
	`group` LowCardinality(String) ALIAS substringIndex(substringIndex(owner, '\x1f', 2), '\x1f', -1),
	`group_id` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(owner, '\x1f', 5), '\x1f', -1)),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(owner, '\x1f', 3), '\x1f', -1),
	`assoc` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(owner, '\x1f', 6), '\x1f', -1)),
	`eligible` Nullable(DateTime64(6, 'UTC')) ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`submit`) + eligible_gap_us, 'UTC'),
	`start` Nullable(DateTime64(6, 'UTC')) ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`submit`) + start_gap_us, 'UTC'),
	`elapsed_us` Int64 ALIAS ifNull(toUnixTimestamp64Micro(`end`) - toUnixTimestamp64Micro(`submit`) - start_gap_us - suspended_us, 0),
	`het_job_id` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_offset` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_size` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`admin_comment` String CODEC(ZSTD(3)),
	`system_comment` String CODEC(ZSTD(3)),
	`extra` String CODEC(ZSTD(3)),
	`container` LowCardinality(String) CODEC(ZSTD(3)),
	`mcs_label` LowCardinality(String) CODEC(ZSTD(3)),
	`failed_node` LowCardinality(String) CODEC(ZSTD(3)),
	`segment` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`promised` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`counters` Map(LowCardinality(String), Int64),
	INDEX ix_end end TYPE minmax GRANULARITY 1,
	INDEX ix_submit submit TYPE minmax GRANULARITY 1,
	INDEX ix_new (end, seq) TYPE minmax GRANULARITY 1,
	INDEX ix_near (job_id, if(array_job_id = 0, job_id, array_job_id)) TYPE minmax GRANULARITY 1,
	INDEX ix_ids [job_id, array_job_id] TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, uid, restarts)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
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
	`step_nodes` Array(String) CODEC(ZSTD(1)),
	`het_job_id` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_offset` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_size` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`admin_comment` String CODEC(ZSTD(3)),
	`system_comment` String CODEC(ZSTD(3)),
	`extra` String CODEC(ZSTD(3)),
	`container` LowCardinality(String) CODEC(ZSTD(3)),
	`mcs_label` LowCardinality(String) CODEC(ZSTD(3)),
	`failed_node` LowCardinality(String) CODEC(ZSTD(3)),
	`segment` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`promised` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`step_containers` Array(String) CODEC(ZSTD(1)),
	`counters` Map(LowCardinality(String), Int64)
) ENGINE = ReplacingMergeTree(seq)
PARTITION BY (ledger, gen)
ORDER BY (ledger, gen, uid, restarts)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'runs that are open, newest form wins; see the position for the generation in force';

CREATE TABLE IF NOT EXISTS `muster`.steps (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, T64, ZSTD(1)),
	`uid` UInt64 CODEC(DoubleDelta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`step` Int32 CODEC(GCD, T64, ZSTD(1)),
	`name` LowCardinality(String) CODEC(ZSTD(3)),
	`who` LowCardinality(String) CODEC(ZSTD(3)),
	`state` LowCardinality(String) CODEC(ZSTD(3)),
	`exit_code` Int32 CODEC(GCD, T64, ZSTD(1)),
	`exit_signal` Int32 CODEC(GCD, T64, ZSTD(1)),
	`start` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`tasks` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`node_list` String CODEC(ZSTD(3)),
	`alloc_cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_nodes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_billing` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`system_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`read_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`write_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`maj_faults` Int64 CODEC(GCD, T64, ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(who, '\x1f', 1),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 2), '\x1f', -1),
	`peak_vm` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`cpu_khz` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`container` LowCardinality(String) CODEC(ZSTD(3)),
	`counters` Map(LowCardinality(String), Int64),
	`task_sum` Map(LowCardinality(String), Int64),
	`task_min` Map(LowCardinality(String), Int64),
	`task_max` Map(LowCardinality(String), Int64),
	`task_min_at` Array(LowCardinality(String)) CODEC(ZSTD(3)),
	`task_max_at` Array(LowCardinality(String)) CODEC(ZSTD(3)),
	INDEX ix_end end TYPE minmax GRANULARITY 1,
	INDEX ix_job job_id TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, uid, restarts, step)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
COMMENT 'one row for each step that is over; batch is the script itself';

CREATE TABLE IF NOT EXISTS `muster`.job_nodes (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, T64, ZSTD(1)),
	`uid` UInt64 CODEC(DoubleDelta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`who` LowCardinality(String) CODEC(ZSTD(3)),
	`node` LowCardinality(String) CODEC(ZSTD(3)),
	`from` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`to` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`end_gap_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`tasks` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`lost` Bool,
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`system_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`read_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`write_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`maj_faults` Int64 CODEC(GCD, T64, ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(who, '\x1f', 1),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 2), '\x1f', -1),
	`partition` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 3), '\x1f', -1),
	`qos` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 4), '\x1f', -1),
	`end` DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`to`) + end_gap_us, 'UTC'),
	`counters` Map(LowCardinality(String), Int64),
	INDEX ix_to to TYPE minmax GRANULARITY 1,
	INDEX ix_from from TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, uid, restarts, node)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
COMMENT 'what each run held and used on each of its nodes';

CREATE TABLE IF NOT EXISTS `muster`.job_gpus (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`who` LowCardinality(String) CODEC(ZSTD(3)),
	`device` LowCardinality(String) CODEC(ZSTD(3)),
	`from` DateTime64(6, 'UTC') CODEC(GCD, T64, ZSTD(3)),
	`to` DateTime64(6, 'UTC') CODEC(GCD, T64, ZSTD(3)),
	`end_gap_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`measured` Bool,
	`no_process_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`idle_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`rest_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`util_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`sm_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`tensor_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`peak_mem` Int64 CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Int64 CODEC(GCD, T64, ZSTD(1)),
	`throttled_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`xids` Int64 CODEC(GCD, T64, ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(who, '\x1f', 1),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 2), '\x1f', -1),
	`partition` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 3), '\x1f', -1),
	`qos` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 4), '\x1f', -1),
	`node` LowCardinality(String) ALIAS substringIndex(substringIndex(device, '\x1f', 2), '\x1f', -1),
	`end` DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`to`) + end_gap_us, 'UTC'),
	`gpu_uuid` LowCardinality(String) ALIAS substringIndex(device, '\x1f', 1),
	`gpu_index` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(device, '\x1f', 3), '\x1f', -1)),
	`gpu_type` LowCardinality(String) ALIAS substringIndex(substringIndex(device, '\x1f', 4), '\x1f', -1),
	`busy_us` Int64 ALIAS if(measured, toUnixTimestamp64Micro(`to`) - toUnixTimestamp64Micro(`from`), 0) - no_process_us - idle_us - rest_us,
	`method` LowCardinality(String) CODEC(ZSTD(3)),
	`share` Int64 CODEC(GCD, T64, ZSTD(1)),
	INDEX ix_to to TYPE minmax GRANULARITY 1,
	INDEX ix_from from TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, uid, restarts, device)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
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
	`written` DateTime64(6, 'UTC') DEFAULT now64(6),
	`rolled_build` UInt32,
	`rolled_until` DateTime64(6, 'UTC'),
	`rolled_seq` UInt64,
	`shift` UInt64
) ENGINE = ReplacingMergeTree(n)
ORDER BY (ledger, phase)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'where the writer is: one row for each phase, newest n wins';

CREATE TABLE IF NOT EXISTS `muster`.histories (
	`ledger` UUID,
	`at` UInt64,
	`epoch` UInt64,
	`event` UInt64,
	`written` DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ReplacingMergeTree(written)
ORDER BY (ledger, at)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'which events stand from a position on: those of an epoch of the ledger, from an event on; 0 = none';

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

CREATE TABLE IF NOT EXISTS `muster`.gpu_samples (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`node` LowCardinality(String),
	`gpu_uuid` LowCardinality(String),
	`at` DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
	`gpu_index` UInt32 CODEC(ZSTD(1)),
	`profile` LowCardinality(String),
	`uid` UInt64 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`seconds` UInt16 CODEC(ZSTD(1)),
	`util` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`mem_util` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`engine` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`sm` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`occupancy` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`tensor` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`dram` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`memory_mib` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`power_w` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`energy_j` Nullable(UInt64) CODEC(DoubleDelta, ZSTD(1)),
	`temp_c` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`mem_temp_c` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`sm_mhz` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`mem_mhz` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`throttle` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`pcie_tx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`pcie_rx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`nvlink_tx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`nvlink_rx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`xid` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`processes` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplacingMergeTree()
PARTITION BY toYYYYMMDD(at)
ORDER BY (ledger, node, gpu_uuid, at)
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'readings of GPUs, with the job that held the device alone';

CREATE TABLE IF NOT EXISTS `muster`.rollup_days (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`build` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`day` Date CODEC(Delta, ZSTD(1)),
	`account` LowCardinality(String) CODEC(ZSTD(3)),
	`user` LowCardinality(String) CODEC(ZSTD(3)),
	`partition` LowCardinality(String) CODEC(ZSTD(3)),
	`qos` LowCardinality(String) CODEC(ZSTD(3)),
	`wckey` LowCardinality(String) CODEC(ZSTD(3)),
	`cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`began` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`carried` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`cpu_us` Int128 CODEC(ZSTD(1)),
	`mem_mib_us` Int128 CODEC(ZSTD(1)),
	`node_us` Int128 CODEC(ZSTD(1)),
	`gpu_us` Int128 CODEC(ZSTD(1)),
	`billing_us` Int128 CODEC(ZSTD(1)),
	`energy_mj` Int64 CODEC(GCD, T64, ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toYYYYMM(day)
ORDER BY (ledger, day, account, user, partition, qos, wckey, cpus, build)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what runs that are over held on each UTC day, by who held it and how many CPUs the run had';

CREATE TABLE IF NOT EXISTS `muster`.rollup_quarters (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`build` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`at` DateTime('UTC') CODEC(Delta, ZSTD(1)),
	`account` LowCardinality(String) CODEC(ZSTD(3)),
	`partition` LowCardinality(String) CODEC(ZSTD(3)),
	`qos` LowCardinality(String) CODEC(ZSTD(3)),
	`waiting` Bool CODEC(ZSTD(1)),
	`cpu_us` Int128 CODEC(ZSTD(1)),
	`mem_mib_us` Int128 CODEC(ZSTD(1)),
	`node_us` Int128 CODEC(ZSTD(1)),
	`gpu_us` Int128 CODEC(ZSTD(1)),
	`billing_us` Int128 CODEC(ZSTD(1))
) ENGINE = MergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, at, account, partition, qos, waiting, build)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what runs that are over held, and what was waited for (waiting), in each quarter of an hour';

CREATE TABLE IF NOT EXISTS `muster`.purges (
	`ledger` UUID,
	`cluster` LowCardinality(String),
	`id` UUID,
	`phase` LowCardinality(String),
	`at` DateTime64(6, 'UTC') DEFAULT now64(6),
	`month` LowCardinality(String),
	`table` LowCardinality(String),
	`upto` UInt64,
	`sums` Array(UInt64) CODEC(ZSTD(1)),
	`rolled` Array(String) CODEC(ZSTD(1))
) ENGINE = MergeTree
ORDER BY (ledger, month, table, at)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what was purged: how many rows, and their sums, which count as if they were there when totals are compared';

CREATE TABLE IF NOT EXISTS `muster`.usage_samples (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`node` LowCardinality(String),
	`step` Int32 CODEC(ZSTD(1)),
	`at` DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`seconds` UInt16 CODEC(ZSTD(1)),
	`cpu` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`rss_kib` UInt64 CODEC(Delta, ZSTD(1))
) ENGINE = ReplacingMergeTree()
PARTITION BY toYYYYMMDD(at)
ORDER BY (ledger, uid, attempt, node, step, at)
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'readings of what runs use of CPU and memory on a node';

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
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, T64, ZSTD(1)),
	`uid` UInt64 CODEC(DoubleDelta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`array_uid` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`array_job_id` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`array_task` Int64 CODEC(GCD, T64, ZSTD(1)),
	`array_tasks` String CODEC(ZSTD(1)),
	`count` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`name` String CODEC(ZSTD(3)),
	`owner` LowCardinality(String) CODEC(ZSTD(3)),
	`partition` LowCardinality(String) CODEC(ZSTD(3)),
	`qos` LowCardinality(String) CODEC(ZSTD(3)),
	`wckey` LowCardinality(String) CODEC(ZSTD(3)),
	`comment` String CODEC(ZSTD(1)),
	`state` LowCardinality(String) CODEC(ZSTD(3)),
	`exit_code` Int32 CODEC(GCD, T64, ZSTD(1)),
	`exit_signal` Int32 CODEC(GCD, T64, ZSTD(1)),
	`derived_code` Int32 CODEC(GCD, T64, ZSTD(1)),
	`derived_signal` Int32 CODEC(GCD, T64, ZSTD(1)),
	`cancelled_by` Nullable(UInt32) CODEC(GCD, T64, ZSTD(1)),
	`reason` LowCardinality(String) CODEC(ZSTD(3)),
	`end_reason` LowCardinality(String) CODEC(ZSTD(3)),
	`submit` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64, ZSTD(1)),
	`eligible_gap_us` Nullable(Int64) CODEC(GCD, T64('bit'), ZSTD(1)),
	`start_gap_us` Nullable(Int64) CODEC(GCD, T64('bit'), ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`limit_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`suspended_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`req_cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_nodes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_billing` Int64 CODEC(GCD, T64, ZSTD(1)),
	`req_tres` Map(LowCardinality(String), Int64),
	`alloc_cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_nodes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_billing` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`req_nodes_min` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`tasks` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`node_list` String CODEC(ZSTD(3)),
	`constraint` LowCardinality(String) CODEC(ZSTD(3)),
	`reservation` LowCardinality(String) CODEC(ZSTD(3)),
	`licenses` LowCardinality(String) CODEC(ZSTD(3)),
	`priority` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`backfill` Bool,
	`batch` Bool,
	`work_dir` String CODEC(ZSTD(1)),
	`submit_line` LowCardinality(String) CODEC(ZSTD(3)),
	`stdin` String CODEC(ZSTD(1)),
	`stdout` String CODEC(ZSTD(1)),
	`stderr` String CODEC(ZSTD(1)),
	`gpu_uuids` Array(LowCardinality(String)) CODEC(ZSTD(3)),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`system_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`read_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`write_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`maj_faults` Int64 CODEC(GCD, T64, ZSTD(1)),
	`gpu_measured_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_util_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_no_process_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_idle_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`gpu_busy_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(owner, '\x1f', 1),
	`user_id` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(owner, '\x1f', 4), '\x1f', -1)),
	`group` LowCardinality(String) ALIAS substringIndex(substringIndex(owner, '\x1f', 2), '\x1f', -1),
	`group_id` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(owner, '\x1f', 5), '\x1f', -1)),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(owner, '\x1f', 3), '\x1f', -1),
	`assoc` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(owner, '\x1f', 6), '\x1f', -1)),
	`eligible` Nullable(DateTime64(6, 'UTC')) ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`submit`) + eligible_gap_us, 'UTC'),
	`start` Nullable(DateTime64(6, 'UTC')) ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`submit`) + start_gap_us, 'UTC'),
	`elapsed_us` Int64 ALIAS ifNull(toUnixTimestamp64Micro(`end`) - toUnixTimestamp64Micro(`submit`) - start_gap_us - suspended_us, 0),
	`het_job_id` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_offset` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_size` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`admin_comment` String CODEC(ZSTD(3)),
	`system_comment` String CODEC(ZSTD(3)),
	`extra` String CODEC(ZSTD(3)),
	`container` LowCardinality(String) CODEC(ZSTD(3)),
	`mcs_label` LowCardinality(String) CODEC(ZSTD(3)),
	`failed_node` LowCardinality(String) CODEC(ZSTD(3)),
	`segment` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`promised` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`counters` Map(LowCardinality(String), Int64),
	INDEX ix_end end TYPE minmax GRANULARITY 1,
	INDEX ix_submit submit TYPE minmax GRANULARITY 1,
	INDEX ix_new (end, seq) TYPE minmax GRANULARITY 1,
	INDEX ix_near (job_id, if(array_job_id = 0, job_id, array_job_id)) TYPE minmax GRANULARITY 1,
	INDEX ix_ids [job_id, array_job_id] TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/jobs', '{replica}')
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, uid, restarts)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
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
	`step_nodes` Array(String) CODEC(ZSTD(1)),
	`het_job_id` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_offset` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`het_size` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`admin_comment` String CODEC(ZSTD(3)),
	`system_comment` String CODEC(ZSTD(3)),
	`extra` String CODEC(ZSTD(3)),
	`container` LowCardinality(String) CODEC(ZSTD(3)),
	`mcs_label` LowCardinality(String) CODEC(ZSTD(3)),
	`failed_node` LowCardinality(String) CODEC(ZSTD(3)),
	`segment` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`promised` Nullable(DateTime64(6, 'UTC')) CODEC(DoubleDelta, ZSTD(1)),
	`step_containers` Array(String) CODEC(ZSTD(1)),
	`counters` Map(LowCardinality(String), Int64)
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/muster/live', '{replica}', seq)
PARTITION BY (ledger, gen)
ORDER BY (ledger, gen, uid, restarts)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'runs that are open, newest form wins; see the position for the generation in force';

CREATE TABLE IF NOT EXISTS `muster`.live ON CLUSTER `c` AS `muster`.live_local ENGINE = Distributed(`c`, `muster`, live_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.steps_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, T64, ZSTD(1)),
	`uid` UInt64 CODEC(DoubleDelta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`step` Int32 CODEC(GCD, T64, ZSTD(1)),
	`name` LowCardinality(String) CODEC(ZSTD(3)),
	`who` LowCardinality(String) CODEC(ZSTD(3)),
	`state` LowCardinality(String) CODEC(ZSTD(3)),
	`exit_code` Int32 CODEC(GCD, T64, ZSTD(1)),
	`exit_signal` Int32 CODEC(GCD, T64, ZSTD(1)),
	`start` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`end` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`tasks` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`node_list` String CODEC(ZSTD(3)),
	`alloc_cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_nodes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_billing` Int64 CODEC(GCD, T64, ZSTD(1)),
	`alloc_tres` Map(LowCardinality(String), Int64),
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`system_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`read_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`write_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`maj_faults` Int64 CODEC(GCD, T64, ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(who, '\x1f', 1),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 2), '\x1f', -1),
	`peak_vm` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`cpu_khz` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`container` LowCardinality(String) CODEC(ZSTD(3)),
	`counters` Map(LowCardinality(String), Int64),
	`task_sum` Map(LowCardinality(String), Int64),
	`task_min` Map(LowCardinality(String), Int64),
	`task_max` Map(LowCardinality(String), Int64),
	`task_min_at` Array(LowCardinality(String)) CODEC(ZSTD(3)),
	`task_max_at` Array(LowCardinality(String)) CODEC(ZSTD(3)),
	INDEX ix_end end TYPE minmax GRANULARITY 1,
	INDEX ix_job job_id TYPE minmax GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/steps', '{replica}')
PARTITION BY toYYYYMM(end)
ORDER BY (ledger, uid, restarts, step)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
COMMENT 'one row for each step that is over; batch is the script itself';

CREATE TABLE IF NOT EXISTS `muster`.steps ON CLUSTER `c` AS `muster`.steps_local ENGINE = Distributed(`c`, `muster`, steps_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.job_nodes_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, T64, ZSTD(1)),
	`uid` UInt64 CODEC(DoubleDelta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`who` LowCardinality(String) CODEC(ZSTD(3)),
	`node` LowCardinality(String) CODEC(ZSTD(3)),
	`from` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`to` DateTime64(6, 'UTC') CODEC(GCD, Delta(8), T64('bit'), ZSTD(1)),
	`end_gap_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`mem_mib` Int64 CODEC(GCD, T64, ZSTD(1)),
	`gpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`tasks` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`lost` Bool,
	`measured` Bool,
	`user_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`system_cpu_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`peak_rss` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`read_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`write_bytes` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Nullable(Int64) CODEC(GCD, T64, ZSTD(1)),
	`maj_faults` Int64 CODEC(GCD, T64, ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(who, '\x1f', 1),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 2), '\x1f', -1),
	`partition` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 3), '\x1f', -1),
	`qos` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 4), '\x1f', -1),
	`end` DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`to`) + end_gap_us, 'UTC'),
	`counters` Map(LowCardinality(String), Int64),
	INDEX ix_to to TYPE minmax GRANULARITY 1,
	INDEX ix_from from TYPE minmax GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/job_nodes', '{replica}')
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, uid, restarts, node)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
COMMENT 'what each run held and used on each of its nodes';

CREATE TABLE IF NOT EXISTS `muster`.job_nodes ON CLUSTER `c` AS `muster`.job_nodes_local ENGINE = Distributed(`c`, `muster`, job_nodes_local, uid);

CREATE TABLE IF NOT EXISTS `muster`.job_gpus_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`seq` UInt64 CODEC(Delta, ZSTD(1)),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`restarts` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`attempt` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`job_id` UInt32 CODEC(DoubleDelta, ZSTD(1)),
	`who` LowCardinality(String) CODEC(ZSTD(3)),
	`device` LowCardinality(String) CODEC(ZSTD(3)),
	`from` DateTime64(6, 'UTC') CODEC(GCD, T64, ZSTD(3)),
	`to` DateTime64(6, 'UTC') CODEC(GCD, T64, ZSTD(3)),
	`end_gap_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`measured` Bool,
	`no_process_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`idle_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`rest_us` Int64 CODEC(GCD, T64('bit'), ZSTD(1)),
	`util_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`sm_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`tensor_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`peak_mem` Int64 CODEC(GCD, T64, ZSTD(1)),
	`mem_mib_s` Int64 CODEC(GCD, T64, ZSTD(1)),
	`energy_mj` Int64 CODEC(GCD, T64, ZSTD(1)),
	`throttled_us` Int64 CODEC(GCD, T64, ZSTD(3)),
	`xids` Int64 CODEC(GCD, T64, ZSTD(1)),
	`user` LowCardinality(String) ALIAS substringIndex(who, '\x1f', 1),
	`account` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 2), '\x1f', -1),
	`partition` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 3), '\x1f', -1),
	`qos` LowCardinality(String) ALIAS substringIndex(substringIndex(who, '\x1f', 4), '\x1f', -1),
	`node` LowCardinality(String) ALIAS substringIndex(substringIndex(device, '\x1f', 2), '\x1f', -1),
	`end` DateTime64(6, 'UTC') ALIAS fromUnixTimestamp64Micro(toUnixTimestamp64Micro(`to`) + end_gap_us, 'UTC'),
	`gpu_uuid` LowCardinality(String) ALIAS substringIndex(device, '\x1f', 1),
	`gpu_index` UInt32 ALIAS toUInt32OrZero(substringIndex(substringIndex(device, '\x1f', 3), '\x1f', -1)),
	`gpu_type` LowCardinality(String) ALIAS substringIndex(substringIndex(device, '\x1f', 4), '\x1f', -1),
	`busy_us` Int64 ALIAS if(measured, toUnixTimestamp64Micro(`to`) - toUnixTimestamp64Micro(`from`), 0) - no_process_us - idle_us - rest_us,
	`method` LowCardinality(String) CODEC(ZSTD(3)),
	`share` Int64 CODEC(GCD, T64, ZSTD(1)),
	INDEX ix_to to TYPE minmax GRANULARITY 1,
	INDEX ix_from from TYPE minmax GRANULARITY 1
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/job_gpus', '{replica}')
PARTITION BY toYYYYMM(to)
ORDER BY (ledger, uid, restarts, device)
SETTINGS replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 33554432
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
	`written` DateTime64(6, 'UTC') DEFAULT now64(6),
	`rolled_build` UInt32,
	`rolled_until` DateTime64(6, 'UTC'),
	`rolled_seq` UInt64,
	`shift` UInt64
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/all/muster/ingest', '{replica}', n)
ORDER BY (ledger, phase)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'where the writer is: one row for each phase, newest n wins';

CREATE TABLE IF NOT EXISTS `muster`.histories ON CLUSTER `c` (
	`ledger` UUID,
	`at` UInt64,
	`epoch` UInt64,
	`event` UInt64,
	`written` DateTime64(6, 'UTC') DEFAULT now64(6)
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/all/muster/histories', '{replica}', written)
ORDER BY (ledger, at)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'which events stand from a position on: those of an epoch of the ledger, from an event on; 0 = none';

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

CREATE TABLE IF NOT EXISTS `muster`.gpu_samples_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`node` LowCardinality(String),
	`gpu_uuid` LowCardinality(String),
	`at` DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
	`gpu_index` UInt32 CODEC(ZSTD(1)),
	`profile` LowCardinality(String),
	`uid` UInt64 CODEC(ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`job_id` UInt32 CODEC(ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`seconds` UInt16 CODEC(ZSTD(1)),
	`util` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`mem_util` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`engine` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`sm` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`occupancy` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`tensor` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`dram` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`memory_mib` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`power_w` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`energy_j` Nullable(UInt64) CODEC(DoubleDelta, ZSTD(1)),
	`temp_c` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`mem_temp_c` Nullable(UInt8) CODEC(Delta, ZSTD(1)),
	`sm_mhz` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`mem_mhz` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`throttle` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`pcie_tx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`pcie_rx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`nvlink_tx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`nvlink_rx_mb` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`xid` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	`processes` Nullable(UInt16) CODEC(Delta, ZSTD(1)),
	INDEX ix_uid uid TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/muster/gpu_samples', '{replica}')
PARTITION BY toYYYYMMDD(at)
ORDER BY (ledger, node, gpu_uuid, at)
SETTINGS replicated_deduplication_window = 0, ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'readings of GPUs, with the job that held the device alone';

CREATE TABLE IF NOT EXISTS `muster`.gpu_samples ON CLUSTER `c` AS `muster`.gpu_samples_local ENGINE = Distributed(`c`, `muster`, gpu_samples_local, cityHash64(node));

CREATE TABLE IF NOT EXISTS `muster`.rollup_days_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`build` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`day` Date CODEC(Delta, ZSTD(1)),
	`account` LowCardinality(String) CODEC(ZSTD(3)),
	`user` LowCardinality(String) CODEC(ZSTD(3)),
	`partition` LowCardinality(String) CODEC(ZSTD(3)),
	`qos` LowCardinality(String) CODEC(ZSTD(3)),
	`wckey` LowCardinality(String) CODEC(ZSTD(3)),
	`cpus` Int64 CODEC(GCD, T64, ZSTD(1)),
	`began` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`carried` UInt64 CODEC(GCD, T64, ZSTD(1)),
	`cpu_us` Int128 CODEC(ZSTD(1)),
	`mem_mib_us` Int128 CODEC(ZSTD(1)),
	`node_us` Int128 CODEC(ZSTD(1)),
	`gpu_us` Int128 CODEC(ZSTD(1)),
	`billing_us` Int128 CODEC(ZSTD(1)),
	`energy_mj` Int64 CODEC(GCD, T64, ZSTD(1))
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/rollup_days', '{replica}')
PARTITION BY toYYYYMM(day)
ORDER BY (ledger, day, account, user, partition, qos, wckey, cpus, build)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what runs that are over held on each UTC day, by who held it and how many CPUs the run had';

CREATE TABLE IF NOT EXISTS `muster`.rollup_days ON CLUSTER `c` AS `muster`.rollup_days_local ENGINE = Distributed(`c`, `muster`, rollup_days_local, cityHash64(account));

CREATE TABLE IF NOT EXISTS `muster`.rollup_quarters_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String) CODEC(ZSTD(3)),
	`build` UInt32 CODEC(GCD, T64, ZSTD(1)),
	`at` DateTime('UTC') CODEC(Delta, ZSTD(1)),
	`account` LowCardinality(String) CODEC(ZSTD(3)),
	`partition` LowCardinality(String) CODEC(ZSTD(3)),
	`qos` LowCardinality(String) CODEC(ZSTD(3)),
	`waiting` Bool CODEC(ZSTD(1)),
	`cpu_us` Int128 CODEC(ZSTD(1)),
	`mem_mib_us` Int128 CODEC(ZSTD(1)),
	`node_us` Int128 CODEC(ZSTD(1)),
	`gpu_us` Int128 CODEC(ZSTD(1)),
	`billing_us` Int128 CODEC(ZSTD(1))
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/rollup_quarters', '{replica}')
PARTITION BY toYYYYMM(at)
ORDER BY (ledger, at, account, partition, qos, waiting, build)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what runs that are over held, and what was waited for (waiting), in each quarter of an hour';

CREATE TABLE IF NOT EXISTS `muster`.rollup_quarters ON CLUSTER `c` AS `muster`.rollup_quarters_local ENGINE = Distributed(`c`, `muster`, rollup_quarters_local, cityHash64(account));

CREATE TABLE IF NOT EXISTS `muster`.purges ON CLUSTER `c` (
	`ledger` UUID,
	`cluster` LowCardinality(String),
	`id` UUID,
	`phase` LowCardinality(String),
	`at` DateTime64(6, 'UTC') DEFAULT now64(6),
	`month` LowCardinality(String),
	`table` LowCardinality(String),
	`upto` UInt64,
	`sums` Array(UInt64) CODEC(ZSTD(1)),
	`rolled` Array(String) CODEC(ZSTD(1))
) ENGINE = ReplicatedMergeTree('/clickhouse/tables/all/muster/purges', '{replica}')
ORDER BY (ledger, month, table, at)
SETTINGS replicated_deduplication_window = 0, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'what was purged: how many rows, and their sums, which count as if they were there when totals are compared';

CREATE TABLE IF NOT EXISTS `muster`.usage_samples_local ON CLUSTER `c` (
	`ledger` UUID CODEC(ZSTD(1)),
	`cluster` LowCardinality(String),
	`uid` UInt64 CODEC(Delta, ZSTD(1)),
	`attempt` UInt32 CODEC(ZSTD(1)),
	`node` LowCardinality(String),
	`step` Int32 CODEC(ZSTD(1)),
	`at` DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
	`job_id` UInt32 CODEC(Delta, ZSTD(1)),
	`user` LowCardinality(String),
	`account` LowCardinality(String),
	`partition` LowCardinality(String),
	`seconds` UInt16 CODEC(ZSTD(1)),
	`cpu` Nullable(UInt32) CODEC(Delta, ZSTD(1)),
	`rss_kib` UInt64 CODEC(Delta, ZSTD(1))
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/muster/usage_samples', '{replica}')
PARTITION BY toYYYYMMDD(at)
ORDER BY (ledger, uid, attempt, node, step, at)
SETTINGS replicated_deduplication_window = 0, ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = 134217728
COMMENT 'readings of what runs use of CPU and memory on a node';

CREATE TABLE IF NOT EXISTS `muster`.usage_samples ON CLUSTER `c` AS `muster`.usage_samples_local ENGINE = Distributed(`c`, `muster`, usage_samples_local, cityHash64(node));

