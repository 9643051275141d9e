package cli

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

func sbcastCommand() *command {
	return &command{
		name: "sbcast", slurm: true, ownVerbose: true,
		summary: "copy a file to the nodes of a job",
		usage:   []string{"[OPTIONS] SOURCE DESTINATION"},
		about: `It copies a file of this host to all nodes of the job that it is called in, or of --jobid. The file is written by the job's
user on each node, as a step of the job that holds nothing; it gets its name when all of it has arrived and its checksum is
right. A DESTINATION that ends with / is a folder. Files of any size are sent as they are, without compression, and are not
removed when the job ends.`,
		options: sbcastOptions(),
		exits:   []variable{{"1", "the file is not on all nodes: what each of the others says is printed"}},
		example: []example{
			{"sbcast --preserve model.bin /tmp/model.bin", "in a batch script: each of the job's nodes has the file"},
			{"sbcast -f -j 12 -w n[1-2] a.out /tmp/", "copies it to two nodes of job 12, over one that is there"},
		},
		run: runSbcast,
	}
}

const oneStream = "the file is sent as one stream to each node"

func sbcastOptions() []opt.Option {
	const noLibraries = "libraries are not looked for: copy them by their names"
	return []opt.Option{
		compressOption("SBCAST_COMPRESS"),
		{Long: "exclude", Arg: "<path>", Env: "SBCAST_EXCLUDE", Refused: noLibraries},
		{Long: "force", Short: "f", Env: "SBCAST_FORCE", Help: "replace a file that is there"},
		{Long: "jobid", Short: "j", Arg: "<job>", Help: "the job, or the step, to whose nodes it is copied"},
		{Long: "no-allocation", Short: "Z", Refused: "whatever runs on a node is in the ledger"},
		{Long: "nodelist", Short: "w", Arg: "<hostlist>", Help: "only to these nodes of the job"},
		{Long: "preserve", Short: "p", Env: "SBCAST_PRESERVE", Help: "with its permissions and times"},
		{Long: "send-libs", Arg: "yes|no", Maybe: true, Env: "SBCAST_SEND_LIBS", Refused: noLibraries},
		{Long: "size", Short: "s", Arg: "<bytes>", Env: "SBCAST_SIZE", Help: "how much is sent at once", Always: oneStream},
		{Long: "timeout", Short: "t", Arg: "<seconds>", Env: "SBCAST_TIMEOUT", Help: "how long nodes may take to answer", Always: "it waits as long as the nodes need"},
		{Long: "treewidth", Short: "F", Arg: "<number>", Env: "SBCAST_TREE_WIDTH SBCAST_FANOUT", Help: "how messages are fanned out", Always: oneStream},
	}
}

// compressOption is that of sbcast and srun --bcast.
func compressOption(env string) opt.Option {
	return opt.Option{Long: "compress", Short: compressLetter(env), Arg: "library", Maybe: true, Env: env, Help: "none: a file is copied as it is, and no other way is known"}
}

// compressLetter is the short name that only sbcast has for it.
func compressLetter(env string) string {
	if strings.HasPrefix(env, "SBCAST") {
		return "C"
	}
	return ""
}

// checkCompress refuses what would be another way than none.
func (c *call) checkCompress(opts *opt.Values) error {
	if v, ok := opts.Get("compress"); ok && !strings.EqualFold(v.Text, "none") {
		return c.errorf("--compress=%s is not supported in this release: files are copied as they are, with --compress=none", v.Text)
	}
	return nil
}

func runSbcast(c *call) error {
	if len(c.args) != 2 {
		return fail(1, fmt.Sprintf("sbcast: error: Need two file names, have %d names", len(c.args)))
	}
	if err := c.checkCompress(c.opts); err != nil {
		return err
	}
	job := c.opts.Text("jobid")
	if job == "" {
		job = c.Getenv("SLURM_JOB_ID")
	}
	if job == "" {
		return fail(1, "sbcast: error: Command only valid from within a job: name one with --jobid")
	}
	nodes, err := c.castNodes(&job)
	if err != nil {
		return err
	}
	dest := c.args[1]
	if strings.HasSuffix(dest, "/") {
		dest += baseName(c.args[0])
	}
	code, err := c.cast(job, nodes, c.args[0], dest, c.opts.On("force"), c.opts.On("preserve"))
	return c.stepExit(code, err)
}

// castNodes are the nodes that are named, or those of a step that is; none are
// all of the job.
func (c *call) castNodes(job *string) (string, error) {
	nodes := c.opts.Text("nodelist")
	id, step, ok := stepID(*job)
	if !strings.Contains(*job, ".") {
		return nodes, nil
	}
	if !ok {
		return "", c.errorf("Invalid job id %s", *job)
	}
	var made apiv1.StepCreated
	if err := c.ask(methodAttachStep, &apiv1.AttachStepRequest{Job: id, Step: step}, &made); err != nil {
		return "", fail(1, fmt.Sprintf("sbcast: error: step %s: %s", *job, explainError(err).text))
	}
	if *job = id; nodes == "" {
		var names []string
		for _, n := range made.GetNodes() {
			names = append(names, n.GetName())
		}
		nodes = hostlist.Fold(names)
	}
	return nodes, nil
}

// cast copies a file of this host to nodes of a job.
func (c *call) cast(job, nodes, from, dest string, force, preserve bool) (int, error) {
	file, err := os.Open(c.program(from))
	if err != nil {
		return 0, c.errorf("Can't open `%s`: %v", from, errors.Unwrap(err))
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, c.errorf("`%s` is no regular file", from)
	}
	step := &apiv1.StepSpec{Name: "sbcast", Argv: []string{castProgram}, WorkDir: c.Dir, Umask: c.umask(), Rlimits: c.Rlimits(), TasksPerNode: 1, External: true, Nodes: nodes,
		InputTask: spec.InputAll, Mpi: "none", KeepOnBadExit: true, Wait: -1,
		Cast: &apiv1.Cast{Path: c.program(dest), Size: info.Size(), Mode: uint32(info.Mode().Perm()), Force: force}}
	if preserve {
		step.Cast.Modified = info.ModTime().UnixNano()
	} else {
		step.Cast.Mode &^= step.Umask
	}
	if nodes != "" {
		names, err := hostlist.Expand(nodes)
		if err != nil {
			return 0, c.errorf("Invalid node list %s: %v", nodes, err)
		}
		step.MinNodes, step.MaxNodes = uint32(len(names)), uint32(len(names))
	}
	part := *c
	env := *c.Env
	part.Env, env.Stdin = &env, &castInput{file: io.LimitReader(file, info.Size()), sum: sha256.New()}
	return part.runStep([]stepAsk{{job: job, step: step, opts: opt.New()}}, false)
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

func (r *castInput) Read(b []byte) (int, error) {
	if !r.end {
		n, err := r.file.Read(b)
		r.sum.Write(b[:n])
		if errors.Is(err, io.EOF) {
			r.end, r.tail, err = true, r.sum.Sum(nil), nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	if len(r.tail) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.tail)
	r.tail = r.tail[n:]
	return n, nil
}

// bcast copies the program of an srun to the job's nodes first, and has the
// tasks run the copy.
func (c *call) bcast(asks []stepAsk) error {
	opts := asks[0].opts
	v, ok := opts.Get("bcast")
	if !ok {
		return nil
	}
	step := asks[0].step
	switch {
	case len(asks) > 1:
		return c.errorf("--bcast is not supported for steps in several components in this release: call sbcast for each")
	case len(step.GetArgv()) == 0:
		return c.errorf("--bcast is not supported with --multi-prog in this release: call sbcast for the programs")
	}
	if err := c.checkCompress(opts); err != nil {
		return err
	}
	from, err := findProgram(step.GetArgv()[0], c.Getenv("PATH"))
	if err != nil {
		return c.errorf("--bcast: %v", err)
	}
	dest := v.Text
	if dest == "" {
		dest = c.Dir + "/"
	}
	if strings.HasSuffix(dest, "/") {
		dest += fmt.Sprintf("slurm_bcast_%s.%x", asks[0].job, ticket()[:4])
	}
	code, err := c.cast(asks[0].job, "", from, dest, true, true)
	if err == nil && code != 0 {
		err = c.errorf("--bcast: %s is not on all nodes", dest)
	}
	step.Argv[0] = c.program(dest)
	return err
}

// findProgram finds a program as a shell does.
func findProgram(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(path, ":") {
		full := cmp.Or(dir, ".") + "/" + name
		if info, err := os.Stat(full); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return full, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, os.ErrNotExist)
}
