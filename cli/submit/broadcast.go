package submit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// compressOption is that of sbcast and srun --bcast.
func compressOption(env string) opt.Option {
	return opt.Option{
		Long:  "compress",
		Short: compressLetter(env),
		Arg:   "library",
		Maybe: true,
		Env:   env,
		Help:  "accepted: none; files are copied uncompressed",
	}
}

// checkCompress refuses what would be another way than none.
func checkCompress(call *tool.Call, opts *opt.Values) error {
	if value, ok := opts.Get("compress"); ok && !strings.EqualFold(value.Text, "none") {
		return call.Errorf(
			"--compress=%s is not supported in this release: files are copied as they are, with --compress=none",
			value.Text,
		)
	}
	return nil
}

// castNodes are the nodes that are named, or those of a step that is; none are
// all of the job.
func castNodes(call *tool.Call, job *string) (string, error) {
	nodes := call.Opts.Text("nodelist")
	id, step, ok := tool.ParseStepID(*job)
	if !strings.Contains(*job, ".") {
		return nodes, nil
	}
	if !ok {
		return "", call.Errorf("Invalid job id %s", *job)
	}
	var made apiv1.StepCreated
	if err := call.RPC(tool.MethodAttachStep, &apiv1.AttachStepRequest{Job: id, Step: step}, &made); err != nil {
		return "", tool.Fail(
			1,
			fmt.Sprintf("sbcast: error: step %s: %s", *job, tool.ExplainError(err).Text),
		)
	}
	*job = id
	if nodes == "" {
		var names []string
		for _, node := range made.GetNodes() {
			names = append(names, node.GetName())
		}
		nodes = hostlist.Fold(names)
	}
	return nodes, nil
}

// broadcast is a file of this host that is to be copied to nodes of a job.
type broadcast struct {
	job      string
	nodes    string // empty = all nodes of the job
	source   string // here
	dest     string // on the nodes
	force    bool   // overwrite what is there
	preserve bool   // keep the modification time and the mode
}

// sendFile copies the file and returns the exit code of the step that did it.
func (b *broadcast) sendFile(call *tool.Call) (int, error) {
	file, err := os.Open(programPath(call, b.source))
	if err != nil {
		return 0, call.Errorf("Can't open `%s`: %v", b.source, errors.Unwrap(err))
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, call.Errorf("`%s` is no regular file", b.source)
	}
	step := &apiv1.StepSpec{
		Name:          "sbcast",
		Argv:          []string{castProgram},
		WorkDir:       call.Dir,
		Umask:         currentUmask(call),
		Rlimits:       call.Rlimits(),
		TasksPerNode:  1,
		External:      true,
		Nodes:         b.nodes,
		InputTask:     spec.InputAll,
		Mpi:           "none",
		KeepOnBadExit: true,
		Wait:          -1,
		Cast: &apiv1.Cast{
			Path:  programPath(call, b.dest),
			Size:  info.Size(),
			Mode:  uint32(info.Mode().Perm()),
			Force: b.force,
		},
	}
	if b.preserve {
		step.Cast.Modified = info.ModTime().UnixNano()
	} else {
		step.Cast.Mode &^= step.Umask
	}
	if b.nodes != "" {
		names, err := hostlist.Expand(b.nodes)
		if err != nil {
			return 0, call.Errorf("Invalid node list %s: %v", b.nodes, err)
		}
		step.MinNodes, step.MaxNodes = uint32(len(names)), uint32(len(names))
	}
	part := *call
	env := *call.Env
	part.Env, env.Stdin = &env, &castInput{
		file: io.LimitReader(file, info.Size()),
		sum:  sha256.New(),
	}
	return runStep(&part, []stepAsk{{job: b.job, step: step, opts: opt.New()}}, nil, false)
}

// broadcastProgram copies the program of an srun to the job's nodes first, and has the
// tasks run the copy.
func broadcastProgram(call *tool.Call, asks []stepAsk) error {
	opts := asks[0].opts
	value, ok := opts.Get("bcast")
	if !ok {
		return nil
	}
	step := asks[0].step
	switch {
	case len(asks) > 1:
		return call.Errorf(
			"--bcast is not supported for steps in several components in this release: call sbcast for each",
		)
	case len(step.GetArgv()) == 0:
		return call.Errorf(
			"--bcast is not supported with --multi-prog in this release: call sbcast for the programs",
		)
	}
	if err := checkCompress(call, opts); err != nil {
		return err
	}
	from, err := findProgram(step.GetArgv()[0], call.Getenv("PATH"))
	if err != nil {
		return call.Errorf("--bcast: %v", err)
	}
	dest := value.Text
	if dest == "" {
		dest = call.Dir + "/"
	}
	if strings.HasSuffix(dest, "/") {
		dest += fmt.Sprintf("slurm_bcast_%s.%x", asks[0].job, newTicket()[:4])
	}
	code, err := (&broadcast{job: asks[0].job, source: from, dest: dest, force: true, preserve: true}).sendFile(
		call,
	)
	if err == nil && code != 0 {
		err = call.Errorf("--bcast: %s is not on all nodes", dest)
	}
	step.Argv[0] = programPath(call, dest)
	return err
}
