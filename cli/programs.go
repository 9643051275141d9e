package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// handOver replaces this process by a program that lies beside it.
func handOver(e *Env, cmd *command, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fail(1, "muster: error: "+err.Error())
	}
	path := filepath.Join(filepath.Dir(self), cmd.program[0])
	argv := append(append([]string{path}, cmd.program[1:]...), args...)
	err = syscall.Exec(path, argv, e.Environ)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(1, fmt.Sprintf("muster: error: %s is not installed beside muster (%s)", cmd.program[0], path))
	}
	return fail(1, fmt.Sprintf("muster: error: %s: %v", path, err))
}

// beside runs a program that lies beside this one; its error is what it said.
func beside(ctx context.Context, stdin io.Reader, program string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(self), program), args...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return fmt.Errorf("%s: %w", text, err)
	}
	return err
}

func initCommand() *command {
	return &command{name: "init", summary: "make what a new cluster needs: configuration and certificates", usage: []string{"[--dir DIR] [OPTION...]"},
		about:   "Writes muster.yaml, slurm.conf (unless there is one), the certificate authority and this controller's certificate. Nothing that exists is overwritten. `muster init --help` lists the options.",
		example: []example{{"muster init --dir lab --nodes 2 --gpus 8", "makes a lab in one folder"}}, program: []string{"musterd", "init"}}
}

func upCommand() *command {
	return &command{name: "up", summary: "start a cluster on this machine", usage: []string{"[--dir DIR | --config FILE]"},
		about:   "Starts the controller with accounting, and an agent for each node that slurm.conf places here. What already runs is left alone.",
		example: []example{{"muster up --dir lab", "starts the lab that muster init made"}}, program: []string{"musterd", "up"}}
}

func downCommand() *command {
	return &command{name: "down", summary: "stop the cluster on this machine; jobs go on", usage: []string{"[--dir DIR | --config FILE] [--jobs]"},
		about:   "Stops the agents and the controller. Jobs go on unless --jobs cancels them first.",
		example: []example{{"muster down --dir lab --jobs", "cancels all jobs and stops the lab"}}, program: []string{"musterd", "down"}}
}

func benchCommand() *command {
	return &command{name: "bench", summary: "measure a cluster: submissions, jobs end to end, restarts, scheduling passes", usage: []string{"submit|run|restart|array|scheduler|passes|accounting|gpu|command [OPTION...]"},
		about: "Runs muster-bench, which loads the cluster for as long as it measures. `muster bench --help` lists what it measures.",
		example: []example{{"muster bench submit --clients 64 --jobs 100000 --stream", "measures durable submissions"},
			{"muster bench scheduler --nodes 5000 --pending 50000", "measures a scheduling pass in memory, without a cluster"},
			{"muster bench passes --nodes 5000 --pending 50000", "measures submissions while a controller makes such passes, on a cluster of its own"}}, program: []string{"muster-bench"}}
}

func alertsCommand() *command {
	return &command{name: "alerts", summary: "make, check and try the alerting of a cluster", usage: []string{"init|check|generate|test [OPTION...]"},
		about:   "Makes alert rules, Alertmanager's configuration and Grafana's contact points from one file of receivers and thresholds, and sends test notifications. `muster alerts --help` lists the options.",
		example: []example{{"muster alerts generate --config alerts.yaml --out DIR", "writes what Prometheus, vmalert and Alertmanager read"}, {"muster alerts test --config alerts.yaml --receiver slack", "sends a test notification"}}, program: []string{"musterd", "alerts"}}
}

func dashboardsCommand() *command {
	return &command{name: "dashboards", summary: "write Grafana's dashboards, or draw them without Grafana", usage: []string{"generate|preview --out PATH [OPTION...]"},
		about:   "Writes the dashboards as Grafana's JSON, or draws every panel on one HTML page from live data. `muster dashboards --help` lists the options.",
		example: []example{{"muster dashboards preview --prometheus http://localhost:9090 --out cluster.html", "draws all dashboards on one page"}}, program: []string{"musterd", "dashboards"}}
}

func importCommand() *command {
	return &command{name: "import", summary: "bring the history of another cluster into the accounting store", usage: []string{"sacct --file DUMP --cluster NAME [OPTION...]", "slurm --cluster NAME [OPTION...]"},
		about:   "Reads a dump of sacct, or a live Slurm through its commands or its slurmrestd (--slurmrestd ADDRESS), once or as a service. Reading the same again adds nothing. sacct, sreport, muster kpi and muster report show the cluster with -M NAME. `muster import --help` lists the options.",
		example: []example{{"muster import sacct --file dump.gz --cluster old", "reads a dump"}, {"muster import slurm --cluster peer --every 1m", "follows a live Slurm"}}, program: []string{"musterd", "import"}}
}

func whatifCommand() *command {
	return &command{name: "whatif", summary: "replay this site's own history under another configuration", usage: []string{"--from TIME [--to TIME] [--conf slurm.conf] [--qos \"NAME KEY=VALUE...\"]", "--cluster NAME --old slurm.conf --from TIME [...]"},
		about: "Replays what the archive holds twice, under the configuration that was in force and under another one, and prints the figures of both replays side by side. With --cluster the history is that of a cluster whose sacct was imported (`muster import`), and --old the configuration that was in force there: a site can ask what it would gain before it moves. It shares every line with `muster simulate`. `muster whatif --help` lists the options.",
		example: []example{{"muster whatif --from 2026-11-01 --to 2026-11-08 --conf new/slurm.conf", "compares a week under two configurations"},
			{"muster whatif --cluster old --old /etc/slurm/slurm.conf --conf new/slurm.conf --from 2026-10-01 --to 2026-11-01", "compares a month of an imported cluster"}}, program: []string{"musterd", "whatif"}}
}
