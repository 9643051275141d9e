package submit

import (
	"cmp"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

func Sbcast() *tool.Command {
	return &tool.Command{
		Name: "sbcast", Slurm: true, OwnVerbose: true,
		Summary: "copy a file to the nodes of a job",
		Usage:   []string{"[OPTIONS] SOURCE DESTINATION"},
		About: `Copies a file of this host to all nodes of the current job, or of --jobid. On each node the file
is written as the job's user, in a step that allocates no resources; it is renamed to its destination after
its checksum has been verified. A DESTINATION that ends with / is a folder. Files of any size are sent
uncompressed and are not removed when the job ends.`,
		Options: sbcastOptions(),
		Exits: []tool.Variable{
			{
				Name: "1",
				Help: "the file is not on all nodes: what each of the others says is printed",
			},
		},
		Example: []tool.Example{
			{
				Line: "sbcast --preserve model.bin /tmp/model.bin",
				What: "in a batch script: each of the job's nodes has the file",
			},
			{
				Line: "sbcast -f -j 12 -w n[1-2] a.out /tmp/",
				What: "copies it to two nodes of job 12, overwriting existing files",
			},
		},
		Run: runSbcast,
	}
}

const oneStream = "the file is sent as one stream to each node"

func sbcastOptions() []opt.Option {
	const noLibraries = "shared libraries are not searched for; copy them by name"
	return []opt.Option{
		compressOption("SBCAST_COMPRESS"),
		{Long: "exclude", Arg: "<path>", Env: "SBCAST_EXCLUDE", Refused: noLibraries},
		{Long: "force", Short: "f", Env: "SBCAST_FORCE", Help: "overwrite an existing file"},
		{Long: "jobid", Short: "j", Arg: "<job>", Help: "job or step whose nodes receive the file"},
		{
			Long:    "no-allocation",
			Short:   "Z",
			Refused: "everything that runs on a node requires an allocation",
		},
		{
			Long:  "nodelist",
			Short: "w",
			Arg:   "<hostlist>",
			Help:  "restrict to these nodes of the job",
		},
		{
			Long:  "preserve",
			Short: "p",
			Env:   "SBCAST_PRESERVE",
			Help:  "preserve permissions and times",
		},
		{
			Long:    "send-libs",
			Arg:     "yes|no",
			Maybe:   true,
			Env:     "SBCAST_SEND_LIBS",
			Refused: noLibraries,
		},
		{
			Long:   "size",
			Short:  "s",
			Arg:    "<bytes>",
			Env:    "SBCAST_SIZE",
			Help:   "size of the blocks to send",
			Always: oneStream,
		},
		{
			Long:   "timeout",
			Short:  "t",
			Arg:    "<seconds>",
			Env:    "SBCAST_TIMEOUT",
			Help:   "time to wait for an answer of the nodes",
			Always: "it waits as long as the nodes need",
		},
		{
			Long:   "treewidth",
			Also:   "fanout",
			Short:  "F",
			Arg:    "<number>",
			Env:    "SBCAST_TREE_WIDTH SBCAST_FANOUT",
			Help:   "fan-out of messages",
			Always: oneStream,
		},
	}
}

// compressLetter is the short name that only sbcast has for it.
func compressLetter(env string) string {
	if strings.HasPrefix(env, "SBCAST") {
		return "C"
	}
	return ""
}

func runSbcast(call *tool.Call) error {
	if len(call.Operands) != 2 {
		return tool.Fail(
			1,
			fmt.Sprintf("sbcast: error: Need two file names, have %d names", len(call.Operands)),
		)
	}
	if err := checkCompress(call, call.Opts); err != nil {
		return err
	}
	job := call.Opts.Text("jobid")
	if job == "" {
		job = call.Getenv("SLURM_JOB_ID")
	}
	if job == "" {
		return tool.Fail(
			1,
			"sbcast: error: Command only valid from within a job: name one with --jobid",
		)
	}
	nodes, err := castNodes(call, &job)
	if err != nil {
		return err
	}
	dest := call.Operands[1]
	if strings.HasSuffix(dest, "/") {
		dest += tool.BaseName(call.Operands[0])
	}
	file := &broadcast{
		job:      job,
		nodes:    nodes,
		source:   call.Operands[0],
		dest:     dest,
		force:    call.Opts.On("force"),
		preserve: call.Opts.On("preserve"),
	}
	code, err := file.sendFile(call)
	return stepExit(call, code, err)
}

// castProgram is what an agent that knows no files of sbcast would look for, in
// vain.
const castProgram = "muster-receives-a-file"

// castInput is a file with its checksum behind it.
type castInput struct {
	file io.Reader
	sum  hash.Hash
	tail []byte
	end  bool
}

func (r *castInput) Read(data []byte) (int, error) {
	if !r.end {
		n, err := r.file.Read(data)
		r.sum.Write(data[:n])
		if errors.Is(err, io.EOF) {
			r.end = true
			r.tail = r.sum.Sum(nil)
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	if len(r.tail) == 0 {
		return 0, io.EOF
	}
	n := copy(data, r.tail)
	r.tail = r.tail[n:]
	return n, nil
}

// findProgram finds a program as a shell does.
func findProgram(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(path, ":") {
		full := cmp.Or(dir, ".") + "/" + name
		if info, err := os.Stat(full); err == nil && info.Mode().IsRegular() &&
			info.Mode()&0o111 != 0 {
			return full, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, os.ErrNotExist)
}
