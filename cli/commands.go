package cli

// commands lists every command. To add one, write a function that makes its
// row and name it here.
func commands() []entry {
	return []entry{
		{"sbatch", sbatchCommand},
		{"srun", srunCommand},
		{"salloc", sallocCommand},
		{"sattach", sattachCommand},
		{"sbcast", sbcastCommand},
		{"squeue", squeueCommand},
		{"sinfo", sinfoCommand},
		{"scancel", scancelCommand},
		{"scontrol", scontrolCommand},
		{"sacct", sacctCommand},
		{"sreport", sreportCommand},
		{"seff", seffCommand},
		{"sstat", sstatCommand},
		{"sacctmgr", sacctmgrCommand},
		{"sprio", sprioCommand},
		{"sshare", sshareCommand},
		{"sdiag", sdiagCommand},
		{"why", whyCommand},
		{"kpi", kpiCommand},
		{"report", reportCommand},
		{"import", importCommand},
		{"gpu", gpuCommand},
		{"gpu-bind", gpuBindCommand},
		{"sql", sqlCommand},
		{"accounting", accountingCommand},
		{"token", tokenCommand},
		{"hosts", hostsCommand},
		{"init", initCommand},
		{"up", upCommand},
		{"down", downCommand},
		{"alerts", alertsCommand},
		{"dashboards", dashboardsCommand},
		{"bench", benchCommand},
		{"simulate", simulateCommand},
		{"whatif", whatifCommand},
		{"completion", completionCommand},
		{"man", manCommand},
		{"links", linksCommand},
		{"help", helpCommand},
		{"version", versionCommand},
	}
}

// notYet says why a command of Slurm is not in this release, or "".
func notYet(name string) string {
	switch name {
	case "strigger", "scrontab", "sgather", "smail":
		return "it is still to come"
	}
	return ""
}
