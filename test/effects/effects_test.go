package effects

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/ports"
)

// lab is the cluster in which all checks run.
type lab struct {
	dir   string
	links string   // the folder with Slurm's names, first in PATH
	words string   // the beginning of every script
	env   []string // numbers of jobs that checks refer to
}

// patience bounds one script, so that a command that waits for ever has a name.
const patience = 3 * time.Minute

// startLab brings up two nodes of two sockets with 8 CPUs and 8 simulated GPUs each, that
// differ in their features, with what the options of jobs refer to.
func startLab(t *testing.T) *lab {
	t.Helper()
	programs, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	muster := filepath.Join(programs, "muster")
	if _, err := os.Stat(muster); err != nil {
		leaveOut := t.Skipf
		if os.Getenv("MUSTER_REQUIRE_ENGINE") != "" {
			leaveOut = t.Fatalf
		}
		leaveOut("%v: run `make build` first (`make e2e` does)", err)
	}
	if os.Getuid() != 0 {
		t.Skip("not run as root: jobs of other users need it")
	}
	dir, err := os.MkdirTemp("", "effects") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	words, err := os.ReadFile("checks/words.sh")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{dir: dir, links: filepath.Join(dir, "names"), words: string(words)}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Logf("%v", err)
		}
	})
	conf := ""
	for _, line := range []string{
		"KillWait=2", "Licenses=lic:4", "TrackWCKey=yes", "DefMemPerCPU=100", "MailProg=/bin/true",
		"PartitionName=night Nodes=ALL MaxTime=60",
		"PartitionName=shared Nodes=ALL OverSubscribe=YES:2 DefaultTime=60", // node1 is reserved tomorrow
	} {
		conf += " --conf '" + line + "'"
	}
	const sockets = "Boards=1 SocketsPerBoard=2 CoresPerSocket=2 ThreadsPerCore=2"
	for _, line := range []string{
		muster + " init --dir . --nodes 2 --gpus 8 --port " + strconv.Itoa(freePorts(t)) + conf,
		`sed -i 's/^NodeName=node\[1-2\] \(.*\)$/NodeName=node1 \1 ` + sockets +
			` TmpDisk=2000 Feature=left\nNodeName=node2 \1 ` + sockets + ` TmpDisk=2000 Feature=right/' slurm.conf`,
		"chmod 755 .",
		muster + " up --dir .",
		"mkdir names && " + muster + " links names",
		"sacctmgr -i add account lab,other",
		"sacctmgr -i add qos high",
		"sacctmgr -i add user root account=lab,other",
		"sacctmgr -i modify user root set defaultaccount=lab qos=normal,high",
		"scontrol create reservation reservationname=later starttime=now+1day duration=60 user=root nodes=node1",
	} {
		if out, err := l.bash(dir, line, nil); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := l.bash(dir, muster+" down --dir . --jobs", nil); err != nil {
			t.Errorf("muster down: %v\n%s", err, out)
		}
	})
	// What runs all the time is on node2, so that checks may take node1 whole.
	for _, job := range []struct{ name, line string }{
		{"HELD", "sbatch --parsable -H -o /dev/null --wrap true"},
		{"RUNNING", "sbatch --parsable -n1 -w node2 -o /dev/null --wrap 'sleep 100000'"},
		{"RICH", "cd /usr && sbatch --parsable -N1 -n2 -c2 -w node2 -t 45 -p night -A other --qos=high --wckey=key -J rich --comment=said" +
			" --extra=more --gres=gpu:2 --mem=400 -L lic:1 --nice=9 --prefer=right -x node1 -C right --mincpus=4 --tmp=100 --deadline=now+9hours" +
			" --time-min=20 --mail-user=none -o /tmp/rich-%j.out -e /tmp/rich-%j.err -i /dev/null --no-requeue --wrap 'sleep 100000'"},
		{"WAITS", "sbatch --parsable -n3 -N1-2 -w node1 --reservation=later --switches=1@5 --dependency=afterany:$HELD --begin=now+1hour" +
			" --contiguous --sockets-per-node=2 --cores-per-socket=2 --threads-per-core=2 --gpus=3 --gpus-per-task=1" +
			" --mem-per-gpu=50 --ntasks-per-socket=2 -a 4-6%2 -o /dev/null --wrap true"},
		{"DONE", "sbatch --parsable -W -o /dev/null --wrap true"},
		{"FAILED", "sbatch --parsable -W -o /dev/null --wrap false || true"},
	} {
		out, err := l.bash(dir, job.line, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", job.line, err, out)
		}
		l.env = append(l.env, job.name+"="+strings.TrimSpace(out))
	}
	return l
}

// freePorts finds ports for a lab.
func freePorts(t *testing.T) int {
	t.Helper()
	start, err := new(ports.Finder).Free(ports.Lab)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

// bash runs a script and gives all that it printed.
func (l *lab) bash(dir, script string, env []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(l.dir, "run", "muster.sock"),
		"PATH="+l.links+":"+os.Getenv("PATH"), "USER=root")
	cmd.Env = append(append(cmd.Env, l.env...), env...)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not over after %s: %w", patience, err)
	}
	return out.String(), err
}

// answer runs a check's script with some words. What a script says counts, not its exit code:
// a refusal can be what it is about.
func (l *lab) answer(t *testing.T, check *Check, command, words string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := check.Script
	if script == "" {
		script = `column "$@"` + "\n"
	}
	out, err := l.bash(dir, l.words+"set -- "+words+"\n"+script, []string{"COMMAND=" + command, "KIND=" + check.Kind})
	if err != nil && strings.HasPrefix(err.Error(), "not over") {
		t.Fatalf("%s: %s %s: %v\n%s", check.At, command, words, err, out)
	}
	return out
}

// TestEffects runs every check with its option and without it.
//
//muster:table one check for each name in the files of checks/
func TestEffects(t *testing.T) {
	checks, err := Read("checks")
	if err != nil {
		t.Fatal(err)
	}
	l := startLab(t)
	for i := range checks {
		check := &checks[i]
		for _, command := range check.Commands {
			t.Run(check.Kind+"/"+command+"/"+check.Name, func(t *testing.T) {
				if !check.Alone { // the others wait until those alone are over
					t.Parallel()
				}
				with := l.answer(t, check, command, check.With)
				if !check.Want.MatchString(with) {
					t.Fatalf("%s: %s %s\n%sdoes not match %s", check.At, command, check.With, with, check.Want)
				}
				if check.Kind != "option" && check.Kind != "update" && check.Versus == "" {
					return
				}
				if without := l.answer(t, check, command, check.Versus); check.Want.MatchString(without) {
					t.Errorf("%s: %s has no effect: with %q it prints the same:\n%s", check.At, check.With, check.Versus, without)
				}
			})
		}
	}
}
