package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster/test/chaos/acked"
)

// A scenario is a fault with a way back that people walk: it is played once, under the
// same load as the kills and after them. The checker judges all of it together.
type scenario struct {
	name string
	play func(*killer, context.Context) error
}

// scenarios are in the order in which they are played: what was taken back comes last,
// because the jobs of the others are judged in full.
func scenarios() []scenario {
	return []scenario{
		{"silence", (*killer).silence},
		{"flip", (*killer).flip},
		{"restore", (*killer).restore},
	}
}

// chosen reads the scenarios of the command line.
func (o *options) chosen() ([]scenario, error) {
	names := strings.FieldsFunc(o.scenarios, func(r rune) bool { return r == ',' })
	var out []scenario
	for _, one := range scenarios() {
		if i := slices.Index(names, one.name); i >= 0 {
			out = append(out, one)
			names = slices.Delete(names, i, i+1)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf(
			"-scenarios: unknown or repeated scenario %q: silence, flip and restore are there",
			names[0],
		)
	}
	return out, nil
}

// play plays the scenarios one after the other.
func (k *killer) play(ctx context.Context, list []scenario) error {
	for _, one := range list {
		began := time.Now()
		if err := one.play(k, ctx); err != nil {
			return fmt.Errorf("scenario %s: %w", one.name, err)
		}
		fmt.Fprintf(
			k.out,
			"scenario %s took %.0f s; %d submissions acknowledged\n",
			one.name,
			time.Since(began).Seconds(),
			k.acked(),
		)
	}
	return nil
}

// longJob is the name of jobs that outlive a lease.
const longJob = "chaos-long"

// silence loses a node whose jobs have leases: agent and shepherd are stopped, or killed,
// and nobody asks the node's jobs anything. They must be gone when the lease is over, for
// then they start elsewhere. Only afterwards is the node heard again.
func (k *killer) silence(ctx context.Context) error {
	for range 4 {
		k.load.send(ctx, job{kind: acked.OK, seconds: "40", name: longJob})
	}
	lost, jobs, err := k.nodeOfLongJobs(ctx)
	if err != nil {
		return err
	}
	how := "stopped"
	back := func() error { return nil }
	if k.rng.IntN(2) == 0 {
		back, err = k.o.stop(ctx, death{role: agent, node: lost}, death{role: shepherd, node: lost})
		if err != nil {
			return err
		}
	} else {
		how = "killed"
		_, err = k.kill(ctx, death{role: roleNode, node: lost})
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(
		k.out,
		"agent and shepherd of %s are %s under jobs %s\n",
		lost,
		how,
		strings.Join(jobs, " "),
	)
	werr := k.eventually(
		ctx,
		"its jobs start elsewhere, or wait for nothing but a place",
		func() error {
			text, err := k.o.command(
				ctx,
				"squeue",
				"-h",
				"-j",
				strings.Join(jobs, ","),
				"-o",
				"%i|%t|%N|%r",
			)
			if err != nil {
				return err
			}
			if strings.Contains(text, "|"+lost+"|") || strings.Contains(text, "FencingWait") {
				return fmt.Errorf(
					"squeue says %s",
					strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "),
				)
			}
			return nil
		},
	)
	if err := errors.Join(werr, back()); err != nil {
		return err
	}
	return k.o.runCluster(ctx, "up")
}

// nodeOfLongJobs waits for long jobs that run, and gives one of their nodes with its own.
func (k *killer) nodeOfLongJobs(ctx context.Context) (name string, jobs []string, err error) {
	err = k.eventually(ctx, "a long job runs", func() error {
		text, err := k.o.command(ctx, "squeue", "-h", "-n", longJob, "-t", "R", "-o", "%i|%N")
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			id, at, _ := strings.Cut(strings.TrimSpace(line), "|")
			if name == "" {
				name = at
			}
			if at == name {
				jobs = append(jobs, id)
			}
		}
		if len(jobs) == 0 {
			return errors.New("none of them runs")
		}
		return nil
	})
	return name, jobs, err
}

// flip damages one byte of the ledger's log while the controller is down. The damage must
// be said and refused, and the rebuilt ledger must have lost nothing; damage that is not
// noticed must not matter.
func (k *killer) flip(ctx context.Context) error {
	if err := k.endController(ctx); err != nil {
		return err
	}
	place, err := k.flipByte(filepath.Join(k.o.dir, "state", "ledger", "raft"))
	if err != nil {
		return err
	}
	if _, err := k.o.musterd(ctx, "ledger", "verify"); err == nil {
		fmt.Fprintf(k.out, "%s is flipped, which is in no record: the log is whole\n", place)
		return k.o.runCluster(ctx, "up")
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	_, err = k.o.musterd(limited)
	over := limited.Err()
	cancel()
	if over != nil || err == nil {
		return errors.Join(
			fmt.Errorf(
				"%s is flipped, verify says so, and the controller starts nevertheless",
				place,
			),
			err,
		)
	}
	rebuilt, err := k.o.musterd(ctx, "ledger", "rebuild")
	if err != nil {
		return err
	}
	for line := range strings.Lines(rebuilt) {
		if strings.HasPrefix(line, "rebuilt:") {
			fmt.Fprintf(k.out, "%s is flipped: %s", place, line)
		}
	}
	return k.o.runCluster(ctx, "up")
}

// endController kills the controller and waits until it is gone: threads that are in
// the middle of a write live behind the signal, and with them the process's sockets.
func (k *killer) endController(ctx context.Context) error {
	if _, err := k.kill(ctx, death{role: controller}); err != nil {
		return err
	}
	return k.eventually(ctx, "the killed controller is gone", func() error {
		if pid, err := k.o.clusterOut(ctx, "pid", string(controller)); err == nil {
			return fmt.Errorf("process %s is there", strings.TrimSpace(pid))
		}
		if c, err := net.Dial("unix", filepath.Join(k.o.dir, "run", "muster.sock")); err == nil {
			return errors.Join(errors.New("its socket takes connections"), c.Close())
		}
		return nil
	})
}

// flipByte changes one byte that was written: files are longer than what is in them.
func (k *killer) flipByte(folder string) (place string, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.wal"))
	if err != nil || len(files) == 0 {
		return "", errors.Join(fmt.Errorf("no log in %s", folder), err)
	}
	path := files[k.rng.IntN(len(files))]
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var written []int
	for i, b := range data {
		if b != 0 {
			written = append(written, i)
		}
	}
	if len(written) == 0 {
		return "", fmt.Errorf("nothing is written in %s", path)
	}
	at := written[k.rng.IntN(len(written))]
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = file.WriteAt([]byte{data[at] ^ byte(1<<k.rng.IntN(8))}, int64(at))
	return fmt.Sprintf("byte %d of %s", at, filepath.Base(path)), errors.Join(err, file.Close())
}

// historyParts are what a controller's disk takes with it, in its state folder.
var historyParts = []string{"ledger", "archive", "content", "credential.keys", "tls"}

// restore loses the controller's disk some seconds after a backup. What was acknowledged
// since is taken back, which the list of losses says; its runs go on where they are, and
// may neither be given to other jobs nor live beside a new run of the same job. An
// administrator ends them, and then all nodes take jobs again.
func (k *killer) restore(ctx context.Context) error {
	backups := filepath.Join(k.o.dir, "backups")
	from := time.Now()
	if _, err := k.o.musterd(ctx, "backup", "--to", backups); err != nil {
		return err
	}
	if err := pauseFor(ctx, time.Duration(2000+k.rng.IntN(4000))*time.Millisecond); err != nil {
		return err
	}
	if err := k.endController(ctx); err != nil {
		return err
	}
	aside := filepath.Join(k.o.dir, "lost")
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	for _, part := range historyParts {
		if err := os.Rename(filepath.Join(k.o.dir, "state", part), filepath.Join(aside, part)); err != nil {
			return err
		}
	}
	if _, err := k.o.musterd(ctx, "restore", "--from", backups); err != nil {
		return err
	}
	lost := fmt.Sprintf("%d %d\n", from.UnixNano(), time.Now().UnixNano())
	if err := os.WriteFile(filepath.Join(k.o.out, "losses"), []byte(lost), 0o644); err != nil {
		return err
	}
	if _, err := k.o.command(ctx, "musterd", "up", "--dir", k.o.dir); err != nil {
		return err
	}
	killed := map[string]bool{}
	err := k.eventually(ctx, "every node takes jobs again", func() error {
		if err := k.killUnknown(ctx, killed); err != nil {
			return err
		}
		text, err := k.o.command(ctx, "sinfo", "-h", "-N", "-t", "idle,mix,alloc", "-o", "%N")
		if err == nil && len(strings.Fields(text)) < k.o.nodes {
			err = fmt.Errorf("only these do: %s", strings.Join(strings.Fields(text), " "))
		}
		return err
	})
	fmt.Fprintf(
		k.out,
		"a backup is restored %.1f s after it was begun; %d runs of the lost history are ended\n",
		time.Since(from).Seconds(),
		len(killed),
	)
	return err
}

// killUnknown ends the runs that the ledger does not know.
func (k *killer) killUnknown(ctx context.Context, killed map[string]bool) error {
	text, err := k.o.command(ctx, "muster", "runs", "--json")
	if err != nil {
		return err
	}
	var answer struct {
		Runs []struct {
			Run string `json:"run"`
		} `json:"runs"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return fmt.Errorf("muster runs --json: %w", err)
	}
	for _, one := range answer.Runs {
		if killed[one.Run] {
			continue
		}
		// It may have ended by itself since.
		if _, err := k.o.command(ctx, "muster", "runs", "kill", "--grace=1", one.Run); err == nil {
			killed[one.Run] = true
		}
	}
	return nil
}

// eventually asks until the answer is right.
func (k *killer) eventually(ctx context.Context, what string, request func() error) error {
	for deadline := time.Now().Add(2 * patience); ; {
		err := request()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s until %s: %w", 2*patience, what, err)
		}
		if perr := pauseFor(ctx, 200*time.Millisecond); perr != nil {
			return perr
		}
	}
}

// musterd runs a command of musterd on the cluster's own files.
func (o *options) musterd(ctx context.Context, args ...string) (string, error) {
	return o.command(
		ctx,
		"musterd",
		append(args, "--config", filepath.Join(o.dir, "muster.yaml"))...)
}

// needs tells which programs are missing.
func (o *options) needs(programs ...string) error {
	var all error
	for _, name := range programs {
		if _, err := exec.LookPath(filepath.Join(o.bin, name)); err != nil {
			all = errors.Join(all, fmt.Errorf("-bin: %w", err))
		}
	}
	return all
}
