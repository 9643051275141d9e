package cli

import (
	"github.com/musterhpc/muster/cli/acct"
	"github.com/musterhpc/muster/cli/local"
	"github.com/musterhpc/muster/cli/query"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/cli/suppose"
	"github.com/musterhpc/muster/cli/tool"
)

// Tables makes the row of every command, for pages that are written from them.
func Tables() []*tool.Command {
	var commands []*tool.Command
	for _, entry := range commandEntries() {
		commands = append(commands, entry.Make())
	}
	return commands
}

// commandEntries lists every command. To add one, write a function that makes its
// row and name it here.
func commandEntries() []tool.Entry {
	return []tool.Entry{
		{Name: "sbatch", Make: submit.Sbatch},
		{Name: "srun", Make: submit.Srun},
		{Name: "salloc", Make: submit.Salloc},
		{Name: "sattach", Make: submit.Sattach},
		{Name: "display", Make: submit.Display},
		{Name: "sbcast", Make: submit.Sbcast},
		{Name: "sgather", Make: submit.Sgather},
		{Name: "scrontab", Make: submit.Scrontab},
		{Name: "squeue", Make: query.Squeue},
		{Name: "sinfo", Make: query.Sinfo},
		{Name: "strigger", Make: query.Strigger},
		{Name: "scancel", Make: query.Scancel},
		{Name: "scontrol", Make: query.Scontrol},
		{Name: "sacct", Make: acct.Sacct},
		{Name: "sreport", Make: acct.Sreport},
		{Name: "seff", Make: acct.Seff},
		{Name: "sjobexitmod", Make: acct.Sjobexitmod},
		{Name: "qsub", Make: submit.Qsub},
		{Name: "qstat", Make: query.Qstat},
		{Name: "qdel", Make: query.Qdel},
		{Name: "slurmd", Make: local.Slurmd},
		{Name: "slurmctld", Make: local.Slurmctld},
		{Name: "slurmdbd", Make: local.Slurmdbd},
		{Name: "slurmrestd", Make: local.Slurmrestd},
		{Name: "sstat", Make: acct.Sstat},
		{Name: "sacctmgr", Make: acct.Sacctmgr},
		{Name: "sprio", Make: query.Sprio},
		{Name: "sshare", Make: query.Sshare},
		{Name: "sdiag", Make: query.Sdiag},
		{Name: "why", Make: query.Why},
		{Name: "events", Make: query.Events},
		{Name: "tail", Make: query.Tail},
		{Name: "traces", Make: query.Traces},
		{Name: "forecast", Make: query.Forecast},
		{Name: "at", Make: query.At},
		{Name: "suppose", Make: suppose.Suppose},
		{Name: "audit", Make: query.Audit},
		{Name: "top", Make: local.Top},
		{Name: "kpi", Make: acct.KPI},
		{Name: "report", Make: acct.Report},
		{Name: "findings", Make: acct.Findings},
		{Name: "import", Make: local.Import},
		{Name: "gpu", Make: query.GPU},
		{Name: "gpu-bind", Make: submit.GPUBind},
		{Name: "sql", Make: acct.SQL},
		{Name: "accounting", Make: acct.Accounting},
		{Name: "token", Make: query.Token},
		{Name: "hosts", Make: query.Hosts},
		{Name: "tokens", Make: query.Tokens},
		{Name: "controllers", Make: query.Controllers},
		{Name: "upgrade", Make: query.Upgrade},
		{Name: "runs", Make: query.Runs},
		{Name: "pods", Make: query.Pods},
		{Name: "init", Make: local.Init},
		{Name: "up", Make: local.Up},
		{Name: "down", Make: local.Down},
		{Name: "ledger", Make: local.Ledger},
		{Name: "backup", Make: local.Backup},
		{Name: "restore", Make: local.Restore},
		{Name: "alerts", Make: local.Alerts},
		{Name: "dashboards", Make: local.Dashboards},
		{Name: "bench", Make: local.Bench},
		{Name: "simulate", Make: local.Simulate},
		{Name: "whatif", Make: local.Whatif},
		{Name: "tune", Make: local.Tune},
		{Name: "completion", Make: completionCommand},
		{Name: "man", Make: manCommand},
		{Name: "links", Make: linksCommand},
		{Name: "help", Make: helpCommand},
		{Name: "version", Make: versionCommand},
	}
}
