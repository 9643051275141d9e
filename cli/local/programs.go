package local

import (
	"github.com/musterhpc/muster/cli/tool"
)

func Init() *tool.Command {
	return &tool.Command{
		Name:    "init",
		Summary: "create the configuration and certificates of a new cluster",
		Usage:   []string{"[--dir DIR] [OPTION...]"},
		About:   "Writes muster.yaml, slurm.conf (unless it exists), the certificate authority and this controller's certificate. Existing files are not overwritten. `muster init --help` lists the options.",
		Example: []tool.Example{
			{Line: "muster init --dir lab --nodes 2 --gpus 8", What: "makes a lab in one folder"},
		},
		Program: []string{"musterd", "init"},
	}
}

func Up() *tool.Command {
	return &tool.Command{
		Name:    "up",
		Summary: "start a cluster on this machine",
		Usage:   []string{"[--dir DIR | --config FILE]"},
		About:   "Starts the controller with accounting, and an agent for each node that slurm.conf places on this machine. Daemons that are already running are left alone.",
		Example: []tool.Example{
			{Line: "muster up --dir lab", What: "starts the lab that muster init made"},
		},
		Program: []string{"musterd", "up"},
	}
}

func Down() *tool.Command {
	return &tool.Command{
		Name:    "down",
		Summary: "stop the cluster on this machine; jobs keep running",
		Usage:   []string{"[--dir DIR | --config FILE] [--jobs]"},
		About:   "Stops the agents and the controller. Jobs keep running unless --jobs cancels them first. With the controller gone, --jobs kills the jobs that run on this machine, and pending jobs stay in the queue.",
		Example: []tool.Example{
			{Line: "muster down --dir lab --jobs", What: "cancels all jobs and stops the lab"},
		},
		Program: []string{"musterd", "down"},
	}
}

func Ledger() *tool.Command {
	return &tool.Command{
		Name:    "ledger",
		Summary: "verify the ledger of a stopped controller, or rebuild it",
		Usage:   []string{"verify [--config FILE]", "rebuild [--config FILE]"},
		About:   "verify reads the log, its snapshots, the archive, and scripts and environments, changes nothing, and names file and offset of each damage. rebuild makes a new log from the archive and from what can be read of the old one, which is kept. Run it as the user of the controller, on its host.",
		Example: []tool.Example{{Line: "muster ledger verify", What: "looks for damage"},
			{
				Line: "muster ledger rebuild --config lab/muster.yaml",
				What: "makes a new log",
			}},
		Program: []string{"musterd", "ledger"},
	}
}

func Backup() *tool.Command {
	return &tool.Command{
		Name:    "backup",
		Summary: "copy ledger, scripts, keys, certificates and configuration while the controller runs",
		Usage:   []string{"--to FOLDER [--config FILE] [--json]"},
		About:   "The first backup makes the folder, each further one copies what is new. A backup counts only once the copy folds to the same state as the controller's ledger. The folder holds the cluster's keys and has mode 0700. Run it as the user of the controller, on its host. `muster accounting backup` copies the accounting store.",
		Example: []tool.Example{{Line: "muster backup --to /backup/muster", What: "makes a backup"},
			{
				Line: "muster backup --to /backup/muster --json",
				What: "reports as JSON, for a timer",
			}},
		Program: []string{"musterd", "backup"},
	}
}

func Restore() *tool.Command {
	return &tool.Command{
		Name:    "restore",
		Summary: "restore a backup into an empty state folder, check one, or list them",
		Usage: []string{
			"--from FOLDER [--at NAME|TIME] [--config FILE] [--json]",
			"--from FOLDER --check [--at NAME|TIME] [--json]",
			"--from FOLDER --list [--json]",
		},
		About: "Everything is prepared beside its place, folded, and compared with the state that was backed up, before anything is moved. A state folder that has a ledger is refused. Files of configuration, keys and certificates that are there are kept, and named if they differ. An interrupted restore is ended by the same command, and until then no controller starts.",
		Example: []tool.Example{
			{Line: "muster restore --from /backup/muster", What: "restores the newest backup"},
			{
				Line: "muster restore --from /backup/muster --at 2026-11-20T04:00",
				What: "restores the newest backup of that time or earlier",
			},
			{
				Line: "muster restore --from /backup/muster --check",
				What: "folds the newest backup and restores nothing",
			},
		},
		Program: []string{"musterd", "restore"},
	}
}

func Bench() *tool.Command {
	return &tool.Command{
		Name:    "bench",
		Summary: "measure a cluster: submissions, jobs end to end, restarts, scheduling passes",
		Usage: []string{
			"submit|run|restart|agents|array|scheduler|passes|accounting|boards|gpu|command [OPTION...]",
		},
		About: "Runs muster-bench, which puts load on the cluster while it measures. `muster bench --help` lists what it measures.",
		Example: []tool.Example{
			{
				Line: "muster bench submit --clients 64 --jobs 100000 --stream",
				What: "measures durable submissions",
			},
			{
				Line: "muster bench scheduler --nodes 5000 --pending 50000",
				What: "measures a scheduling pass in memory, without a cluster",
			},
			{
				Line: "muster bench passes --nodes 5000 --pending 50000",
				What: "measures submissions while a controller makes such passes, on a cluster of its own",
			},
			{
				Line: "muster bench agents --agents 2000 --times 2",
				What: "measures how soon agents follow a take-over, on a cluster of its own",
			},
		},
		Program: []string{"muster-bench"},
	}
}

func Alerts() *tool.Command {
	return &tool.Command{
		Name:    "alerts",
		Summary: "generate, check and test the alerting of a cluster",
		Usage:   []string{"init|check|generate|test [OPTION...]"},
		About:   "Generates alert rules, the Alertmanager configuration and Grafana contact points from one file of receivers and thresholds, and sends test notifications. `muster alerts --help` lists the options.",
		Example: []tool.Example{
			{
				Line: "muster alerts generate --config alerts.yaml --out DIR",
				What: "writes what Prometheus, vmalert and Alertmanager read",
			},
			{
				Line: "muster alerts test --config alerts.yaml --receiver slack",
				What: "sends a test notification",
			},
		},
		Program: []string{"musterd", "alerts"},
	}
}

func Dashboards() *tool.Command {
	return &tool.Command{
		Name:    "dashboards",
		Summary: "generate Grafana dashboards, or render them without Grafana",
		Usage:   []string{"generate|preview --out PATH [OPTION...]"},
		About:   "Writes the dashboards as Grafana JSON, or renders every panel on one HTML page from live data. `muster dashboards --help` lists the options.",
		Example: []tool.Example{
			{
				Line: "muster dashboards preview --prometheus http://localhost:9090 --out cluster.html",
				What: "draws all dashboards on one page",
			},
		},
		Program: []string{"musterd", "dashboards"},
	}
}

func Import() *tool.Command {
	return &tool.Command{
		Name:    "import",
		Summary: "import the history of another cluster into the accounting store",
		Usage: []string{
			"sacct --file DUMP --cluster NAME [OPTION...]",
			"slurm --cluster NAME [OPTION...]",
		},
		About: "Reads a dump of sacct, or a live Slurm through its commands or slurmrestd (--slurmrestd ADDRESS), once or as a service. Reading the same data again adds nothing. sacct, sreport, muster kpi and muster report show the cluster with -M NAME. `muster import --help` lists the options.",
		Example: []tool.Example{
			{Line: "muster import sacct --file dump.gz --cluster old", What: "reads a dump"},
			{Line: "muster import slurm --cluster peer --every 1m", What: "follows a live Slurm"},
		},
		Program: []string{"musterd", "import"},
	}
}

func Whatif() *tool.Command {
	return &tool.Command{
		Name:    "whatif",
		Summary: "replay this site's own history under another configuration",
		Usage: []string{
			"--from TIME [--to TIME] [--conf slurm.conf] [--qos \"NAME KEY=VALUE...\"]",
			"--cluster NAME --old slurm.conf --from TIME [...]",
		},
		About: "Replays the archived history twice, under the configuration that was in force and under another one, and prints the results side by side. With --cluster, the history is that of an imported cluster (`muster import`) and --old is the configuration that was in force there, so that a site can evaluate Muster before it migrates. The scheduler code is that of `muster simulate` and of production. `muster whatif --help` lists the options.",
		Example: []tool.Example{
			{
				Line: "muster whatif --from 2026-11-01 --to 2026-11-08 --conf new/slurm.conf",
				What: "compares a week under two configurations",
			},
			{
				Line: "muster whatif --cluster old --old /etc/slurm/slurm.conf --conf new/slurm.conf --from 2026-10-01 --to 2026-11-01",
				What: "compares a month of an imported cluster",
			},
		},
		Program: []string{"musterd", "whatif"},
	}
}

func Tune() *tool.Command {
	return &tool.Command{
		Name:    "tune",
		Summary: "look for settings of the scheduler that would have served this site better",
		Usage: []string{
			"--from TIME [--to TIME] [--try KEY=VALUE,...]...",
			"--cluster NAME --old slurm.conf --from TIME [...]",
			"--swf FILE --procs N [--in-force KEY=VALUE,...] [...]",
		},
		About: "Replays the archived history, an imported one or a log under several settings of SchedulerParameters. They are compared on the first half; the best one is judged on the second half, which had no part in the choice, with confidence intervals, a list of who would wait longer, and the line of slurm.conf to change if a change is advised. Runs at the lowest priority, on the controller or from a copy of its archive, and continues where it was killed. `muster tune --help` lists the options.",
		Example: []tool.Example{
			{Line: "muster tune --from now-120days", What: "asks the last four months"},
			{
				Line: "muster tune --swf ALCF-Theta-2023.swf.gz --procs 4360 --json",
				What: "asks a published log",
			},
		},
		Program: []string{"musterd", "tune"},
	}
}

func Top() *tool.Command {
	return &tool.Command{
		Name:    "top",
		Summary: "show the queue, nodes and GPUs on a full screen that updates itself",
		Usage:   []string{"[OPTIONS] [FILTER...]"},
		About: `Runs muster-top. The screen is read again when the cluster has changed. ? lists the keys: / filters, s sorts, Enter opens a job with the figures of its GPUs over time, w explains why it waits, c cancels it after a question. A filter is words, or keys such as user:alice, state:pending, reason:priority and is:held; docs/console.md lists them. ` +
			"`muster top --help` lists the options.",
		Example: []tool.Example{
			{Line: "muster top", What: "watches the cluster"},
			{Line: "muster top --me state:pending", What: "watches your jobs that wait"},
		},
		Program: []string{"muster-top"},
	}
}
