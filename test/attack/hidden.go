package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/query"
)

// absent is a number that no job has.
const absent = "3999999"

// attackHidden compares the answers about another's job with those about no job,
// and looks for traces of it in whatever a user can list.
func attackHidden(ctx context.Context, l *lab, r *report) error {
	running, err := l.submitJob(
		ctx,
		victim,
		"-J",
		secret,
		"--comment",
		secret,
		"--gres=gpu:1",
		"--wrap",
		"sleep 600 # "+
			secret,
	)
	if err != nil {
		return err
	}
	array, err := l.submitJob(ctx, victim, "-J", secret, "-H", "--array=1-3", "--wrap", "true")
	if err != nil {
		return err
	}
	ended, err := l.submitJob(ctx, victim, "-J", secret, "--wrap", "true")
	if err != nil {
		return err
	}
	own, err := l.submitJob(ctx, attacker, "-H", "--wrap", "true")
	if err != nil {
		return err
	}
	if err := l.awaitAnswer(ctx, "R", "squeue", "-h", "-j", running, "-o", "%t"); err != nil {
		return err
	}
	if err := l.awaitAnswer(ctx, "COMPLETED", "sacct", "-n", "-X", "-P", "-j", ended, "-o", "State"); err != nil {
		return err
	}
	for _, hidden := range []string{running, array, ended} {
		suffixes := []string{"", "_1", "_[1-2]", "+0", ".0", ".batch"}
		if l.o.short {
			suffixes = suffixes[:2]
		}
		for _, suffix := range suffixes {
			for _, command := range questionsAboutJob(own) {
				l.compare(ctx, r, command, hidden+suffix, absent+suffix)
			}
		}
	}
	// The answer must not depend on what else is wrong with a request.
	for _, command := range []string{"sbatch -p nosuch -d afterok:JOB --wrap true", "sbatch -N 99 -d afterok:JOB --wrap true", "sbatch --test-only -d afterok:JOB --wrap true",
		"sbatch -d afterok:JOB:2 --wrap true", "sbatch -d singleton,afterok:JOB --wrap true", "srun -d afterok:JOB true", "sbatch -d aftercorr:JOB_1 --array=1-2 --wrap true",
		"scontrol update jobid=JOB nosuch=1", "scontrol update jobid=JOB dependency=afterok:JOB", "scancel -s 99 JOB", "scancel -u " +
			strconv.Itoa(victim) + " JOB", "scancel -t PD JOB"} {
		l.compare(ctx, r, command, array, absent)
		l.compare(ctx, r, command, running, absent)
	}
	for _, command := range listings() {
		out := l.runAs(ctx, attacker, strings.Fields(command)...)
		r.countTry(
			showsVictim(out.allText()),
			"muster %s shows another's job:\n%s",
			command,
			linesOfVictim(out.allText()),
		)
	}
	for _, view := range query.Views() {
		out := l.runAs(ctx, attacker, "sql", "-f", "json", "SELECT * FROM "+view.Name)
		r.countTry(
			showsVictim(out.allText()),
			"the view %s shows another's job:\n%s",
			view.Name,
			linesOfVictim(out.allText()),
		)
	}
	for _, port := range []int{portMetrics, portAgentMetrics} {
		body, err := fetch(ctx, "http://"+l.portAddress(port)+"/metrics")
		if err != nil {
			return err
		}
		r.countTry(
			showsVictim(body),
			"the metrics at %s show another's job:\n%s",
			l.portAddress(port),
			linesOfVictim(body),
		)
		job := regexp.MustCompile(`(slurm_job_id|job|jobid|hpc_job)="` + running + `"`).
			FindString(body)
		r.countTry(
			job != "",
			"the metrics at %s show the number of another's job: %s",
			l.portAddress(port),
			job,
		)
	}
	for _, id := range []string{running, array, own} {
		l.runAs(ctx, 0, "scancel", id)
	}
	return nil
}

// questionsAboutJob are the commands that take the number of a job, with JOB in
// its place. own is a job of the one who asks.
func questionsAboutJob(own string) []string {
	return []string{
		"squeue -j JOB", "squeue -j JOB --json", "squeue -s JOB", "squeue -j JOB -t all", "squeue --start -j JOB", "scontrol show job JOB", "scontrol -d show job JOB", "scontrol show step JOB",
		"sprio -j JOB", "sstat -j JOB", "sacct -j JOB", "sacct -j JOB --json", "sacct -B -j JOB", "sacct --env-vars -j JOB", "seff JOB", "why JOB", "gpu job JOB", "report job JOB",
		"scancel JOB", "scancel -v JOB", "scancel -s USR1 JOB", "scancel -b JOB", "scontrol hold JOB", "scontrol uhold JOB", "scontrol release JOB", "scontrol requeue JOB", "scontrol requeuehold JOB",
		"scontrol suspend JOB", "scontrol resume JOB", "scontrol update jobid=JOB name=x", "scontrol update jobid=JOB timelimit=1", "scontrol update jobid=" +
			own + " dependency=afterany:JOB",
		"sbatch -d afterok:JOB --wrap true", "sbatch -d after:JOB+5 --wrap true", "srun --jobid=JOB true", "srun --overlap --jobid=JOB true", "sattach JOB", "scontrol wait_job JOB", "scontrol listpids JOB",
		"scontrol write batch_script JOB -",
	}
}

// listings are the commands that show many things at once.
func listings() []string {
	return []string{
		"squeue", "squeue -a -t all", "squeue --json", "squeue -o %all", "squeue -u " +
			strconv.Itoa(
				victim,
			), "squeue -A default", "squeue -n " + secret, "squeue -w node1", "squeue -s", "squeue --start",
		"scontrol show job", "scontrol show step", "scontrol show node", "scontrol -d show node", "scontrol show partition", "scontrol show reservation", "scontrol show assoc_mgr", "scontrol show config",
		"sinfo -N -l", "sinfo -R", "sinfo -o %all", "sprio", "sprio -l", "sshare -a -l", "sdiag", "sstat -a", "sacct -a", "sacct -a -l", "sacct -a --json", "sacct -u " +
			strconv.Itoa(victim), "sacct -N node1",
		"sreport cluster accountutilizationbyuser", "sreport user topusage", "sreport cluster userutilizationbyaccount", "sreport job sizesbyaccount", "gpu", "gpu top", "kpi", "report site", "report waste", "report idle", "report user " +
			strconv.Itoa(victim),
		"report chargeback", "report fairshare", "report budget", "runs", "hosts", "why",
	}
}

// compare asks the same of a job that is hidden and of one that does not exist.
func (l *lab) compare(ctx context.Context, r *report, command, hidden, missing string) {
	request := func(job string) output {
		return l.runAs(ctx, attacker, strings.Fields(strings.ReplaceAll(command, "JOB", job))...)
	}
	one, other := request(hidden), request(missing)
	a, b := plain(one, hidden), plain(other, missing)
	r.countTry(a != b, "muster %s: another's job %s: %q, no job: %q", command, hidden, a, b)
}

// changing are parts of answers that differ between any two calls.
var changing = regexp.MustCompile(
	`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|"number": ?1[78]\d{8}|submitted batch job \d+|Submitted batch job \d+|"(pid|last_\w+)": ?[^,\n]*`,
)

// plain is an answer without what differs of itself: the number that was asked
// for, and the time.
func plain(o output, job string) string {
	text := fmt.Sprintf("exit %d: %s%s", o.code, o.out, o.err)
	number, _, _ := strings.Cut(strings.NewReplacer("_", " ", "+", " ", ".", " ").Replace(job), " ")
	text = regexp.MustCompile(`\b`+number+`(\b|_)`).ReplaceAllString(text, "N$1")
	return changing.ReplaceAllString(text, "…")
}

// showsVictim finds traces of the victim.
func showsVictim(text string) bool { return len(tracesOfVictim(text)) > 0 }

func tracesOfVictim(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		// What was asked for comes back in refusals.
		if strings.Contains(line, "error") {
			continue
		}
		if strings.Contains(line, secret) || strings.Contains(line, strconv.Itoa(victim)) {
			out = append(out, strings.TrimRight(line, "\n"))
		}
	}
	return out
}

// linesOfVictim are the first of them, for people.
func linesOfVictim(text string) string {
	lines := tracesOfVictim(text)
	return "    " + strings.Join(lines[:min(len(lines), 3)], "\n    ")
}

// fetch reads a page.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
