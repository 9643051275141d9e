package slurmconf

// The words of keys whose value is a list of words.

func storeFlags() []option {
	const why = "accounting keeps the job's own fields; scripts and environments stay in the ledger's blobs"
	return []option{
		{"job_comment", implemented, ""},
		{"job_env", unsupported, why},
		{"job_extra", unsupported, why},
		{"job_script", unsupported, why},
		{"no_stdio", unsupported, "the paths of a job's files are always recorded"},
	}
}

func gatherParams() []option {
	return []option{
		{"DisableGPUAcct", unsupported, "GPU use is always measured"},
		{"NoOverMemoryKill", meaningless, "it is the default"},
		{"NoShared", meaningless, "memory is what the cgroup is charged for"},
		{"OverMemoryKill", implemented, ""},
		{"UsePss", meaningless, "memory is what the cgroup is charged for"},
		{"UsePSS", meaningless, "memory is what the cgroup is charged for"},
	}
}

func launchParams() []option {
	return []option{
		{"batch_step_set_cpu_freq", unsupported, whyFreq},
		{"cray_net_exclusive", unsupported, "no network is set up for jobs"},
		{"disable_send_gids", meaningless, "agents look groups up on the node"},
		{"enable_nss_slurm", unsupported, "jobs use the node's own name service"},
		{"interactive_step_set_cpu_freq", unsupported, whyFreq},
		{"lustre_no_flush", meaningless, "nothing is flushed between jobs"},
		{"mem_sort", unsupported, "memory is not sorted before a job"},
		{"mpir_use_nodeaddr", unsupported, whySteps},
		{"send_gids", meaningless, "agents look groups up on the node"},
		{"slurmstepd_memlock", meaningless, "the shepherd's memory is small and its own"},
		{"slurmstepd_memlock_all", meaningless, "the shepherd's memory is small and its own"},
		{"test_exec", unsupported, "a missing program is found when the job starts"},
		{"ulimit_pam_adopt", unsupported, "there is no pam_slurm_adopt"},
		{"use_interactive_step", unsupported, whySteps},
	}
}

func privateData() []option {
	const whole = "sacctmgr shows the tree of accounts and users to everyone"
	return []option{
		{"accounts", refused, whole},
		{"events", meaningless, "no command lists them"},
		{"jobs", implemented, ""},
		{"nodes", implemented, ""},
		{"partitions", implemented, ""},
		{"reservations", implemented, ""},
		{"usage", implemented, ""},
		{"users", refused, whole},
	}
}

func prologFlags() []option {
	return []option{
		{"Alloc", meaningless, "the prolog always runs on every node of a job when it starts"},
		{"Contain", implemented, ""},
		{"DeferBatch", implemented, ""},
		{"ForceRequeueOnFail", implemented, ""},
		{"NoHold", meaningless, whySteps},
		{"NoInterruptOnFail", unsupported, "a prolog ends with its job"},
		{"ReportAbortedJob", unsupported, "a job whose prolog failed is requeued, held"},
		{"RunInJob", implemented, ""},
		{"Serial", implemented, ""},
		{"X11", implemented, ""},
	}
}

func priorityFlags() []option {
	return []option{
		{"ACCRUE_ALWAYS", implemented, ""},
		{"CALCULATE_RUNNING", implemented, ""},
		{"DEPTH_OBLIVIOUS", implemented, ""},
		{"FAIR_TREE", meaningless, "it is the default"},
		{"INCR_ONLY", unsupported, "a priority may go down as well as up"},
		{"MAX_TRES", implemented, ""},
		{"MAX_TRES_GRES", implemented, ""},
		{"NO_FAIR_TREE", implemented, ""},
		{"NO_NORMAL_ALL", implemented, ""},
		{"NO_NORMAL_ASSOC", implemented, ""},
		{"NO_NORMAL_PART", implemented, ""},
		{"NO_NORMAL_QOS", implemented, ""},
		{"NO_NORMAL_TRES", implemented, ""},
		{"SMALL_RELATIVE_TO_TIME", implemented, ""},
	}
}

// cronParams are the options of ScronParameters.
func cronParams() []option {
	return []option{{"enable", implemented, ""}, {"explicit_scancel", implemented, ""}}
}

func controllerParams() []option {
	const (
		rpc  = "gRPC has its own limits"
		conf = "agents get what they need from the controller"
		dial = "agents dial the controller, wherever they are"
		tick = "power is looked at every second"
	)
	return []option{
		{"allow_user_triggers", implemented, ""},
		{"cloud_dns", meaningless, dial},
		{"cloud_reg_addrs", meaningless, dial},
		{"conmgr_connect_timeout", meaningless, rpc},
		{"conmgr_max_connections", meaningless, rpc},
		{"conmgr_quiesce_timeout", meaningless, rpc},
		{"conmgr_read_timeout", meaningless, rpc},
		{"conmgr_threads", meaningless, rpc},
		{"conmgr_use_poll", meaningless, rpc},
		{"conmgr_wait_write_delay", meaningless, rpc},
		{"conmgr_write_timeout", meaningless, rpc},
		{"disable_triggers", implemented, ""},
		{"enable_async_reply", meaningless, rpc},
		{"enable_configless", meaningless, conf},
		{"enable_expedited_requeue", unsupported, "a requeued job waits like any other"},
		{"enable_job_state_cache", meaningless, "reads never wait for the writer"},
		{"enable_rpc_queue", meaningless, rpc},
		{"enable_stepmgr", unsupported, whySteps},
		{"idle_on_node_suspend", implemented, ""},
		{"max_dbd_msg_action", meaningless, "the ledger is the buffer while accounting is away"},
		{"max_powered_nodes", implemented, ""},
		{
			"no_quick_restart",
			meaningless,
			"a second controller cannot take the data folder of the first",
		},
		{"node_reg_mem_percent", unsupported, "a node with less memory than configured is drained"},
		{"power_save_interval", meaningless, tick},
		{"power_save_min_interval", meaningless, tick},
		{"preempt_send_user_signal", unsupported, "preempted jobs get SIGCONT and SIGTERM"},
		{"reboot_from_controller", unsupported, "the agent of a node runs RebootProgram"},
		{"reconfig_on_restart", meaningless, "a start reads the configuration"},
		{"requeue_unfenced", implemented, ""},
		{"rl_bucket_size", implemented, ""},
		{"rl_enable", implemented, ""},
		{
			"rl_log_freq",
			meaningless,
			"refused calls are counted in muster_api_refused_total, not logged",
		},
		{"rl_refill_period", implemented, ""},
		{"rl_refill_rate", implemented, ""},
		{"rl_table_size", implemented, ""},
		{"user_resv_delete", unsupported, "users do not delete reservations"},
		{"validate_nodeaddr_threads", meaningless, "agents dial the controller"},
	}
}

func agentParams() []option {
	const why = "cores are as the kernel shows them"
	return []option{
		{"allow_ecores", unsupported, why},
		{"config_overrides", implemented, ""},
		{"contain_spank", unsupported, "SPANK plugins are not loaded"},
		{"l3cache_as_socket", unsupported, why},
		{"numa_node_as_socket", unsupported, why},
		{
			"shutdown_on_reboot",
			unsupported,
			"an agent that was told to reboot its node goes on until it is ended",
		},
	}
}

func selectParams() []option {
	const gres = "GPUs are bound to their near cores"
	return []option{
		{"CR_CORE_DEFAULT_DIST_BLOCK", unsupported, "cores are chosen near the GPUs of the job"},
		{"CR_CPU", implemented, ""},
		{"CR_CPU_Memory", implemented, ""},
		{"CR_Core", implemented, ""},
		{"CR_Core_Memory", implemented, ""},
		{"CR_LLN", implemented, ""},
		{"CR_Memory", implemented, ""},
		{"CR_ONE_TASK_PER_CORE", unsupported, "a task gets the CPUs that it asks for"},
		{"CR_Pack_Nodes", unsupported, "jobs are packed onto the best fitting nodes"},
		{"CR_Socket", refused, "jobs would share sockets"},
		{"CR_Socket_Memory", refused, "jobs would share sockets"},
		{"ENFORCE_BINDING_GRES", unsupported, gres},
		{"LL_SHARED_GRES", implemented, ""},
		{
			"MULTIPLE_SHARING_GRES_PJ",
			unsupported,
			"what a job asks for of shard, mps or vram is of one GPU of each node",
		},
		{"ONE_TASK_PER_SHARING_GRES", unsupported, "all tasks of a job share its part of a GPU"},
	}
}

func topologyParams() []option {
	const (
		routes = "agents keep one stream to the controller: messages take no way over other nodes"
		ranks  = "the nodes of a job are in the order of slurm.conf, whatever connects them"
	)
	return []option{
		{"BlockAsNodeRank", unsupported, ranks},
		{"Dragonfly", implemented, ""},
		{"RoutePart", meaningless, routes},
		{"RouteTree", meaningless, routes},
		{"SwitchAsNodeRank", unsupported, ranks},
		{
			"TopoMaxSizeUnroll",
			unsupported,
			"a job that takes a range of nodes is put into as few blocks as its least number needs",
		},
		{"TopoOptional", implemented, ""},
	}
}

func dependencyParams() []option {
	return []option{
		{"disable_remote_singleton", meaningless, whyFed},
		{"kill_invalid_depend", implemented, ""},
		{"max_depend_depth", unsupported, "circular dependencies are found at any depth"},
	}
}

// schedulerParams lists the options of SchedulerParameters.
//
//muster:table one row for each key
func schedulerParams() []option {
	const (
		passes = "passes run on a snapshot and hold nobody up"
		order  = "every pending job is planned, in order"
	)
	return []option{
		{"allow_zero_lic", unsupported, "a job must ask for at least one of a licence"},
		{"assoc_limit_stop", unsupported, "a job over a limit does not stop those behind it"},
		{"batch_sched_delay", meaningless, passes},
		{"bb_array_stage_cnt", unsupported, whyBurst},
		{"bf_allow_magnetic_slot", meaningless, "a job that a magnetic reservation lets in starts in it wherever that is earliest"},
		{"bf_busy_nodes", unsupported, "nodes are chosen by fit"},
		{"bf_continue", meaningless, passes},
		{"bf_firm", implemented, ""},          // Muster's own: see spec.SchedConfig.Firm
		{"bf_promise", implemented, ""},       // Muster's own: see spec.SchedConfig.PredictRuns
		{"bf_promise_slack", implemented, ""}, // Muster's own: see spec.SchedConfig.PromiseSlack
		{"bf_hetjob_immediate", meaningless, "a heterogeneous job starts in the pass that finds room for all of its components"},
		{"bf_hetjob_prio", unsupported, "a heterogeneous job has the priority of its first component"},
		{"bf_interval", meaningless, "a pass runs when something has changed"},
		{"bf_job_part_count_reserve", unsupported, order},
		{"bf_licenses", unsupported, "licences are counted when a job starts, not planned"},
		{"bf_max_job_array_resv", implemented, ""},
		{"bf_max_job_assoc", unsupported, order},
		{"bf_max_job_part", unsupported, order},
		{"bf_max_job_start", unsupported, order},
		{"bf_max_job_test", implemented, ""},
		{"bf_max_job_user", unsupported, order},
		{"bf_max_job_user_part", unsupported, order},
		{"bf_max_time", meaningless, passes},
		{"bf_min_age_reserve", unsupported, order},
		{"bf_min_prio_reserve", unsupported, order},
		{"bf_node_space_size", meaningless, "the plan grows as it needs"},
		{"bf_one_resv_per_job", unsupported, order},
		{"bf_resolution", implemented, ""},
		{"bf_running_job_reserve", unsupported, order},
		{"bf_topopt_enable", unsupported, "backfill uses the placement that topology.conf and the job require"},
		{"bf_topopt_iterations", unsupported, "backfill uses the placement that topology.conf and the job require"},
		{"bf_window", meaningless, "jobs are planned however far ahead"},
		{"bf_window_linear", meaningless, passes},
		{"bf_yield_interval", meaningless, passes},
		{"bf_yield_rpc_cnt", meaningless, passes},
		{"bf_yield_sleep", meaningless, passes},
		{"build_queue_timeout", meaningless, passes},
		{"correspond_after_task_cnt", unsupported, "aftercorr follows its task at any size"},
		{"default_gbytes", unsupported, "a memory size without a unit is MiB; write G"},
		{"default_queue_depth", meaningless, "every job is looked at"},
		{"defer", meaningless, passes},
		{"defer_batch", meaningless, passes},
		{"delay_boot", unsupported, "nodes are not rebooted for a job's features"},
		{"disable_hetjob_steps", unsupported, whySteps},
		{"disable_job_shrink", unsupported, "jobs keep their size"},
		{"disable_user_top", meaningless, "users reorder their jobs only with enable_user_top"},
		{"enable_hetjob_steps", unsupported, whySteps},
		{"enable_job_state_cache", meaningless, "reads never wait for the writer"},
		{"enable_user_top", implemented, ""},
		{"extra_constraints", unsupported, "jobs are placed by features, not by the nodes' extra text"},
		{"Ignore_NUMA", unsupported, "GPUs are chosen near their cores"},
		{"ignore_prefer_validation", unsupported, "--prefer is checked like --constraint"},
		{"inventory_interval", unsupported, "agents report changes at once"},
		{"max_array_tasks", unsupported, "MaxArraySize alone limits arrays"},
		{"max_rpc_cnt", meaningless, passes},
		{"max_sched_time", meaningless, passes},
		{"max_script_size", implemented, ""},
		{"max_submit_line_size", unsupported, "the command line is stored up to 64 KiB"},
		{"max_switch_wait", implemented, ""},
		{"max_user_share", implemented, ""}, // Muster's own: see spec.JobLimits.UserShare
		{"no_backup_scheduling", meaningless, "only the leader schedules"},
		{"nohold_on_prolog_fail", implemented, ""},
		{"pack_mix", implemented, ""}, // Muster's own: see spec.SchedConfig.PackMix
		{"pack_serial_at_end", unsupported, "nodes are chosen by fit"},
		{"partition_job_depth", unsupported, order},
		{"permit_job_expansion", unsupported, "jobs keep their size"},
		{"preempt_reorder_count", unsupported, "it is reorder_count of PreemptParameters"},
		{"preempt_strict_order", unsupported, "it is strict_order of PreemptParameters"},
		{"preempt_youngest_first", unsupported, "it is youngest_first of PreemptParameters"},
		{"reduce_completing_frag", unsupported, "freed nodes are used at once"},
		{"requeue_on_resume_failure", meaningless, "a job whose node does not come up is queued again in any case: nothing of it ran"},
		{"requeue_setup_env_fail", unsupported, "a job that cannot start fails"},
		{"salloc_wait_nodes", meaningless, "a job begins when all its nodes are up"},
		{"sbatch_wait_nodes", meaningless, "a job begins when all its nodes are up"},
		{"sched_interval", implemented, ""},
		{"sched_max_job_start", meaningless, passes},
		{"sched_min_interval", meaningless, passes},
		{"spec_cores_first", unsupported, "the cores kept for the system are the last ones"},
		{"step_retry_count", unsupported, whySteps},
		{"step_retry_time", unsupported, whySteps},
		{"time_min_as_soft_limit", unsupported, "--time-min only helps a job start"},
		{"whole_hetjob", meaningless, "a heterogeneous job is held, cancelled and queued again as a whole"},
		{"whole_pack", meaningless, "a heterogeneous job is held, cancelled and queued again as a whole"},
	}
}
