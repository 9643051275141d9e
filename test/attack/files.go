package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// attackFiles tries to read and to write what is root's or another user's, by
// way of jobs, whose files a process of root opens, and directly.
func attackFiles(ctx context.Context, l *lab, r *report) error {
	target, err := os.ReadFile(l.rootFile)
	if err != nil {
		return err
	}
	others := filepath.Join(l.home[victim], "notes")
	if err := os.WriteFile(others, []byte(secret+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.Chown(others, victim, victim); err != nil {
		return err
	}
	l.attackByOptions(ctx, r, others)
	if err := l.attackByOutput(ctx, r); err != nil {
		return err
	}
	if err := l.attackByLink(ctx, r); err != nil {
		return err
	}
	if err := l.attackByEnvironment(ctx, r); err != nil {
		return err
	}
	if err := l.attackOthersJob(ctx, r); err != nil {
		return err
	}
	after, err := os.ReadFile(l.rootFile)
	r.countTry(
		err != nil || string(after) != string(target),
		"a file of root was changed: %q, %v",
		after,
		err,
	)
	return l.attackFolders(ctx, r)
}

// attackByOptions names files of others wherever an option takes a file. Both
// sbatch programs are asked: the small one has the controller read its options.
func (l *lab) attackByOptions(ctx context.Context, r *report, others string) {
	for _, file := range []string{l.rootFile, others, filepath.Join(l.dir, "state", "user-token.key"), filepath.Join(l.dir, "state", "tls", "ca.key"), "/etc/shadow", "/proc/1/environ"} {
		for _, args := range [][]string{
			{file}, {"--wrap", "true", "--export-file=" + file}, {"--wrap", "true", "-F", file}, {"--wrap", "true", "-w", file}, {"--wrap", "true", "-x", file}, {"--bb-file=" +
				file, "--wrap", "true"},
			{"--bbf", file, "--wrap", "true"}, {"--container=" + file, "--wrap", "true"}, {"--multi-prog", file},
		} {
			for _, program := range []string{"muster", "muster-sbatch"} {
				full := append([]string{}, args...)
				if program == "muster" {
					full = append([]string{"sbatch"}, args...)
				}
				out := l.runProgram(ctx, attacker, "", filepath.Join(l.o.bin, program), full...)
				r.countTry(
					strings.Contains(out.allText(), secret),
					"%s %s shows a file of another: %s",
					program,
					strings.Join(full, " "),
					out.allText(),
				)
			}
		}
		for _, args := range [][]string{{"srun", "-i", file, "cat"}, {"srun", "--multi-prog", file}, {"srun", "--bcast=/tmp/x", file}, {"sql", file}, {"sacctmgr", "load", "file=" +
			file}, {"scontrol", "create", "file=" + file}} {
			out := l.runAs(ctx, attacker, args...)
			r.countTry(
				strings.Contains(out.allText(), secret),
				"muster %s shows a file of another: %s",
				strings.Join(args, " "),
				out.allText(),
			)
		}
	}
}

// attackByOutput lets jobs write to, and read from, files of root.
func (l *lab) attackByOutput(ctx context.Context, r *report) error {
	mine := l.home[attacker]
	fresh := filepath.Join(l.dir, "made-by-a-job")
	for _, link := range []string{"link-to-root", "link-to-folder"} {
		if err := os.Remove(filepath.Join(mine, link)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := errors.Join(os.Symlink(l.rootFile, filepath.Join(mine, "link-to-root")), os.Symlink(filepath.Join(l.dir, "state"), filepath.Join(mine, "link-to-folder"))); err != nil {
		return err
	}
	if err := os.Link(l.rootFile, filepath.Join(mine, "hard-link")); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return err
	}
	// What a job may do must work, or the refusals below say nothing.
	id, err := l.submitJob(
		ctx,
		attacker,
		"-i",
		l.o.bin+"/muster-sbatch",
		"-o",
		"own-output",
		"--wrap",
		"head -c 4 >/dev/null; echo written",
	)
	if err != nil {
		return err
	}
	if err := l.ended(ctx, id); err != nil {
		return err
	}
	if own, err := os.ReadFile(filepath.Join(mine, "own-output")); err != nil ||
		string(own) != "written\n" {
		return fmt.Errorf("a job cannot write to a file of its own: %q, %w", own, err)
	}
	script := []string{"--wrap", "cat; echo written"}
	for _, args := range [][]string{
		{"-o", l.rootFile}, {"-e", l.rootFile, "-o", "/dev/null"}, {"-o", "link-to-root"}, {"-o", "hard-link"}, {"-o", l.rootFile, "--open-mode=append"}, {"-o", "link-to-root", "--open-mode=append"},
		{"-o", fresh}, {"-o", "../../" + filepath.Base(fresh)}, {"-o", filepath.Join(l.dir, "%x"), "-J", filepath.Base(fresh)}, {"-o", "%x", "-J", "../../" +
			filepath.Base(fresh)}, {"-o", "link-to-folder/" + filepath.Base(fresh)},
		{"-D", filepath.Join(l.dir, "state", "tls"), "-o", filepath.Base(fresh)}, {"-D", l.dir, "-o", filepath.Base(fresh)}, {"-D", "/root", "-o", filepath.Base(fresh)},
		{"-i", l.rootFile, "-o", "read-%j"}, {"-i", "link-to-root", "-o", "read-%j"}, {"-i", "hard-link", "-o", "read-%j"}, {"-i", filepath.Join(l.dir, "state", "tls", "ca.key"), "-o", "read-%j"},
		{"-o", "/proc/self/environ"}, {"-o", "/proc/1/oom_score_adj"}, {"-o", "/dev/mem"}, {"-o", "/proc/self/fd/9"},
	} {
		id, err := l.submitJob(ctx, attacker, append(args, script...)...)
		if err != nil {
			r.countTry(false, "") // refused at once
			continue
		}
		if err := l.ended(ctx, id); err != nil {
			return err
		}
		shown, err := os.ReadFile(filepath.Join(mine, "read-"+id))
		leaked := err == nil &&
			(strings.Contains(string(shown), secret) || strings.Contains(string(shown), "PRIVATE KEY"))
		_, made := os.Stat(fresh)
		r.countTry(
			leaked || made == nil,
			"a job with %s reaches files of root: read %q, file in root's folder: %v",
			strings.Join(args, " "),
			shown,
			made == nil,
		)
		if made == nil {
			if err := os.Remove(fresh); err != nil {
				return err
			}
		}
	}
	return l.attackByFIFO(ctx, r)
}

// attackByFIFO gives a job an output that blocks whoever opens it, and sees
// whether another's job starts beside it.
func (l *lab) attackByFIFO(ctx context.Context, r *report) error {
	fifo := filepath.Join(l.home[attacker], "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chown(fifo, attacker, attacker); err != nil {
		return err
	}
	for _, args := range [][]string{{"-o", "fifo"}, {"-i", "fifo", "-o", "/dev/null"}, {"-o", "/dev/null", "-e", "fifo"}} {
		blocked, err := l.submitJob(ctx, attacker, append(args, "--wrap", "true")...)
		if err != nil {
			r.countTry(false, "")
			continue
		}
		id, err := l.submitJob(ctx, neighbour, "--wrap", "true")
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		err = l.ended(limited, id)
		cancel()
		r.countTry(
			err != nil,
			"while a job opens a FIFO (%s), another's job does not run: %v",
			strings.Join(args, " "),
			err,
		)
		l.runAs(ctx, 0, "scancel", blocked)
	}
	return nil
}

// attackByLink changes a link between a file of one's own and one of root while
// jobs open it.
func (l *lab) attackByLink(ctx context.Context, r *report) error {
	mine := l.home[attacker]
	link, own := filepath.Join(mine, "changing"), filepath.Join(mine, "own")
	if err := errors.Join(os.WriteFile(own, nil, 0o644), os.Chown(own, attacker, attacker)); err != nil {
		return err
	}
	jobs := 60
	if l.o.short {
		jobs = 10
	}
	changing, stop := context.WithCancel(ctx)
	changed := make(chan error, 1)
	go func() { changed <- changeLink(changing, link, own, l.rootFile) }()
	before, err := os.Stat(l.rootFile)
	if err != nil {
		stop()
		return err
	}
	var last string
	for range jobs {
		id, err := l.submitJob(
			ctx,
			attacker,
			"-o",
			"changing",
			"-e",
			"changing",
			"--wrap",
			"echo written",
		)
		if err == nil {
			last = id
		}
		r.countTry(false, "")
	}
	err = l.ended(ctx, last)
	stop()
	err = errors.Join(err, <-changed)
	after, statErr := os.Stat(l.rootFile)
	if err := errors.Join(err, statErr); err != nil {
		return err
	}
	r.countTry(
		after.Size() != before.Size() || after.ModTime() != before.ModTime(),
		"a file of root was written through a link that changes",
	)
	return nil
}

// changeLink points a link to one file and to the other by turns.
func changeLink(ctx context.Context, link string, targets ...string) error {
	for turn := 0; ctx.Err() == nil; turn++ {
		next := link + ".next"
		if err := errors.Join(os.Symlink(targets[turn%len(targets)], next), os.Rename(next, link)); err != nil {
			return err
		}
		time.Sleep(50 * time.Microsecond)
	}
	return nil
}

// attackByEnvironment gives jobs variables that make programs run something else:
// they must not reach what runs as root for the job.
func (l *lab) attackByEnvironment(ctx context.Context, r *report) error {
	mine := l.home[attacker]
	trace := filepath.Join(mine, "ran-as")
	evil := filepath.Join(mine, "evil.sh")
	if err := errors.Join(os.WriteFile(evil, []byte("id -u >> "+trace+"\n"), 0o755), os.WriteFile(trace, nil, 0o666), os.Chmod(trace, 0o666)); err != nil {
		return err
	}
	for _, variable := range []string{"BASH_ENV=" + evil, "ENV=" + evil, "PROMPT_COMMAND=. " +
		evil, "BASH_FUNC_true%%=() { . " + evil + "; }", "SLURM_CONF=" + evil, "SLURM_JOB_USER=root", "SLURM_JOB_UID=0", "PATH=" +
		mine,
		"LD_LIBRARY_PATH=" + mine, "LD_PRELOAD=" + filepath.Join(mine, "none.so"), "IFS=/", "SHELLOPTS=xtrace", "PS4=$(id -u >> " +
			trace + ")", "MUSTER_SOCKET=" + trace, "TMPDIR=/root"} {
		id, err := l.submitJob(
			ctx,
			attacker,
			"--export=ALL,"+variable,
			"-o",
			"/dev/null",
			"--wrap",
			"true",
		)
		if err != nil {
			r.countTry(false, "")
			continue
		}
		if err := l.ended(ctx, id); err != nil {
			return err
		}
		ran, err := os.ReadFile(trace)
		if err != nil {
			return err
		}
		r.countTry(
			strings.Contains("\n"+string(ran), "\n0\n"),
			"a job's %s makes root's prolog run what the user says",
			variable,
		)
	}
	return nil
}

// attackOthersJob tries to look into a job of the victim, and to run in it.
func (l *lab) attackOthersJob(ctx context.Context, r *report) error {
	id, err := l.submitJob(ctx, victim, "-J", secret, "-o", "out", "--wrap", "echo "+secret+"; "+
		l.o.bin+"/muster srun --overlap sh -c 'echo "+secret+"; sleep 600'")
	if err != nil {
		return err
	}
	defer l.runAs(ctx, 0, "scancel", id)
	if err := l.awaitAnswer(ctx, "R", "squeue", "-h", "-j", id, "-o", "%t"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"srun", "--jobid=" + id, "--overlap", "id"}, {"srun", "--jobid", id, "-w", "node1", "cat", filepath.Join(l.home[victim], "out")}, {"sattach", id +
			".0"}, {"sattach", id + ".batch"},
		{"sacct", "-B", "-j", id}, {"sacct", "--env-vars", "-j", id}, {"sstat", "-j", id}, {"sbcast", "-j", id, filepath.Join(l.home[attacker], "evil.sh"), "/tmp/x"}, {"gpu", "job", id},
		{"scontrol", "show", "job", id}, {"scontrol", "-dd", "show", "job", id},
	} {
		out := l.runAs(ctx, attacker, args...)
		r.countTry(
			out.code == 0 && strings.Contains(out.out, secret) || strings.Contains(out.out, "uid="),
			"muster %s: %s",
			strings.Join(args, " "),
			out.allText(),
		)
	}
	return nil
}

// attackFolders opens every file of the cluster's folder as a user. The sockets
// of the API are for everybody; what daemons keep is for nobody.
func (l *lab) attackFolders(ctx context.Context, r *report) error {
	open := map[string]bool{l.socketPath(): true, l.restSocket(): true, l.stepSocket(): true}
	return filepath.WalkDir(l.dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // of a job that has ended meanwhile
		}
		if err != nil || strings.HasPrefix(path, filepath.Join(l.dir, "home")) {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		own := info.Sys().(*syscall.Stat_t).Uid == attacker // such as the script of a job of his
		switch {
		case info.Mode()&fs.ModeSymlink != 0, own:
			return nil
		case info.Mode()&fs.ModeSocket != 0:
			conn, err := l.dialAs(ctx, path, attacker)
			if err == nil {
				conn.Close()
			}
			alias := strings.HasSuffix(path, "/steps.sock") // of each node's folder
			r.countTry(
				err == nil && !open[path] && !alias,
				"the socket %s takes a user's connection",
				path,
			)
		default:
			kept := strings.HasPrefix(path, filepath.Join(l.dir, "state")) && !info.IsDir()
			may := l.allowed(ctx, path)
			r.countTry(may.write, "a user can write to %s", path)
			r.countTry(may.read && kept && !public(path), "a user can read %s", path)
		}
		return nil
	})
}

// public are files of daemons that are no secret.
func public(path string) bool {
	return filepath.Ext(path) == ".crt" || filepath.Base(path) == "host.pem"
}

// access is what a user may do with a file or folder.
type access struct{ read, write bool }

// allowed asks the kernel, as the attacker.
func (l *lab) allowed(ctx context.Context, path string) access {
	out := l.runProgram(
		ctx,
		attacker,
		"",
		"/bin/sh",
		"-c",
		`[ -r "$1" ] && echo r; [ -w "$1" ] && echo w; true`,
		"sh",
		path,
	)
	return access{read: strings.Contains(out.out, "r"), write: strings.Contains(out.out, "w")}
}

// ended waits until a job is over.
func (l *lab) ended(ctx context.Context, id string) error {
	if _, err := strconv.Atoi(id); err != nil {
		return fmt.Errorf("%q is not a job number", id)
	}
	return l.awaitAnswer(ctx, "", "squeue", "-h", "-j", id, "-t", "PD,CF,R,CG,S")
}
