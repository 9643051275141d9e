package submit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

func Sgather() *tool.Command {
	return &tool.Command{
		Name: "sgather", Slurm: true,
		Summary: "copy a file from each of the job's nodes to this host",
		Usage:   []string{"[OPTIONS] SOURCE DESTINATION"},
		About: `In a batch script or in the shell of salloc: copies SOURCE from each of the job's nodes to
DESTINATION.NODE on this host, with a step for each node, and then removes SOURCE from the node unless --keep is given. A
copy appears under its name only once it is whole. A node that fails does not stop the others.`,
		Options: []opt.Option{
			{
				Long:   "compress",
				Short:  "C",
				Help:   "compress what is sent",
				Always: "nodes send what they read",
			},
			{
				Long:   "fanout",
				Short:  "F",
				Arg:    "<number>",
				Help:   "fan-out of messages",
				Always: "each node sends to this host",
			},
			{Long: "force", Short: "f", Help: "replace files that exist here"},
			{Long: "keep", Short: "k", Help: "keep the file on the nodes"},
			{Long: "preserve", Short: "p", Help: "preserve permissions and modification times"},
			{
				Long:    "recursive",
				Short:   "r",
				Refused: "folders are not copied: pack them with tar first",
			},
			{
				Long:   "timeout",
				Short:  "t",
				Arg:    "<seconds>",
				Help:   "time to wait for an answer of the nodes",
				Always: "it waits as long as the nodes need",
			},
		},
		Example: []tool.Example{
			{
				Line: "sgather -k /tmp/profile.out profiles/run1",
				What: "makes profiles/run1.n1, profiles/run1.n2 and so on",
			},
		},
		Run: runSgather,
	}
}

func runSgather(call *tool.Call) error {
	if len(call.Operands) != 2 {
		return call.Errorf(
			"name the file on the nodes and the file here: sgather SOURCE DESTINATION",
		)
	}
	source, dest := call.Operands[0], call.Operands[1]
	if !filepath.IsAbs(dest) {
		dest = filepath.Join(call.Dir, dest)
	}
	if call.Getenv("SLURM_JOB_ID") == "" {
		return call.Errorf("Command must be run in a job: SLURM_JOB_ID is not set")
	}
	nodes, err := hostlist.Expand(call.Getenv("SLURM_JOB_NODELIST"))
	if err != nil || len(nodes) == 0 {
		return call.Errorf(
			"SLURM_JOB_NODELIST=%s names no nodes",
			call.Getenv("SLURM_JOB_NODELIST"),
		)
	}
	failed := 0
	for _, node := range nodes {
		if err := gatherFrom(call, node, source, dest+"."+node); err != nil {
			fmt.Fprintf(call.Stderr, "sgather: error: %s: %v\n", node, err)
			failed++
		}
	}
	if failed > 0 {
		return call.Errorf("%d of %s failed", failed, format.Plural(len(nodes), "node", "nodes"))
	}
	return nil
}

// gatherFrom copies the file of one node, and removes it there once it is safe here.
func gatherFrom(call *tool.Call, node, source, dest string) error {
	if _, err := os.Lstat(dest); err == nil && !call.Opts.On("force") {
		return fmt.Errorf("%s exists; -f replaces it", dest)
	}
	file, err := os.CreateTemp(filepath.Dir(dest), "."+filepath.Base(dest)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // it is gone where all went well
	err = onNode(call, node, file, "cat", "--", source)
	if err == nil {
		err = file.Sync()
	}
	closeErr := file.Close()
	if err == nil {
		err = closeErr
	}
	if err == nil {
		err = setAttributes(call, node, source, file.Name())
	}
	if err == nil {
		err = os.Rename(file.Name(), dest)
	}
	if err != nil || call.Opts.On("keep") {
		return err
	}
	return onNode(call, node, call.Stdout, "rm", "-f", "--", source)
}

// setAttributes gives the copy the permissions that files are created with, or with
// --preserve those and the modification time of the file on the node.
func setAttributes(call *tool.Call, node, source, path string) error {
	if !call.Opts.On("preserve") {
		return os.Chmod(path, 0o666&^os.FileMode(currentUmask(call)))
	}
	var out bytes.Buffer
	if err := onNode(call, node, &out, "stat", "-L", "-c", "%a %Y", "--", source); err != nil {
		return err
	}
	mode, modified, _ := strings.Cut(strings.TrimSpace(out.String()), " ")
	bits, err := strconv.ParseUint(mode, 8, 12)
	if err != nil {
		return fmt.Errorf("the node reports the mode %q", mode)
	}
	seconds, err := strconv.ParseInt(modified, 10, 64)
	if err != nil {
		return fmt.Errorf("the node reports the time %q", modified)
	}
	if err := os.Chmod(path, os.FileMode(bits&0o777)); err != nil {
		return err
	}
	at := time.Unix(seconds, 0)
	return os.Chtimes(path, at, at)
}

// onNode runs a command on one of the job's nodes, in a step beside the others, and
// sends its output to out.
func onNode(call *tool.Call, node string, out io.Writer, argv ...string) error {
	env := *call.Env
	env.Stdout = out
	env.Terminal = func(any) bool { return false } // the bytes as they are
	env.Args = append(
		[]string{
			"srun",
			"--overlap",
			"--quiet",
			"--input=none",
			"--mpi=none",
			"--nodes=1",
			"--ntasks=1",
			"--nodelist=" +
				node,
			"--",
		},
		argv...)
	err := tool.Execute(call.Ctx, &env, Srun(), env.Args[1:])
	var code tool.ExitCode
	if errors.As(err, &code) {
		return fmt.Errorf("%s: exit code %d", argv[0], int(code))
	}
	return err
}
