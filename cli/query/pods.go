package query

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// Pods is muster pods.
func Pods() *tool.Command {
	return &tool.Command{
		Name: "pods", Mixed: true,
		Summary: "list the jobs that consist of Kubernetes pods, or release those whose pods are gone",
		Usage:   []string{"[--json|--yaml]", "release JOB... --why TEXT"},
		About: `A job of pods keeps its nodes until muster-kube has reported that its pods have ended. If muster-kube
is gone, for example because its Kubernetes cluster was deleted, a cancelled job stays in CG (completing). release records that
the pods of the named jobs have ended and frees the nodes. A job that has started must be cancelled before. Release it only when
its pods are certain to be gone: pods that still run would share their cores and GPUs with the next job. For operators.`,
		Options: []opt.Option{
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{
				Long: "why",
				Arg:  "<text>",
				Help: "how you know that the pods are gone; recorded with the job",
			},
		},
		Example: []tool.Example{
			{Line: "muster pods", What: "list the jobs of pods and their nodes"},
			{
				Line: "muster pods release 12 --why 'cluster k3 was deleted'",
				What: "free the nodes of a cancelled job after muster-kube was removed",
			},
		},
		Run: func(call *tool.Call) error {
			switch {
			case len(call.Operands) == 0 && !call.Opts.On("why"):
				return listPodJobs(call)
			case len(call.Operands) > 1 && call.Operands[0] == "release":
				return releasePodJobs(call)
			}
			return &opt.UsageError{
				Command: "muster pods",
				Text:    "expected no arguments, or: release JOB... --why TEXT",
			}
		},
	}
}

// readPodJobs returns the jobs whose pods are not over, by number.
func readPodJobs(call *tool.Call) ([]*apiv1.PodJob, error) {
	errEnough := errors.New("the first message tells of all jobs")
	var all *apiv1.WatchHoldsReply
	request := &apiv1.WatchHoldsRequest{Pods: true}
	err := fetch.Stream(call, tool.MethodWatchHolds, request, func(reply *apiv1.WatchHoldsReply) error {
		all = reply
		return errEnough
	})
	switch {
	case err == nil:
		return nil, call.Errorf("the controller ended the list of jobs before it began: try again")
	case !errors.Is(err, errEnough):
		return nil, err
	}
	jobs := all.GetJobs()
	slices.SortFunc(jobs, func(a, b *apiv1.PodJob) int { return int(a.GetJobId()) - int(b.GetJobId()) })
	return jobs, nil
}

func listPodJobs(call *tool.Call) error {
	jobs, err := readPodJobs(call)
	if err != nil {
		return err
	}
	if call.Opts.On("json") || call.Opts.On("yaml") {
		return render.Print(call, podJobsTree(jobs)...)
	}
	if len(jobs) == 0 {
		return call.WriteOut([]byte("No job consists of pods.\n"))
	}
	rows := [][]string{{"JOBID", "STATE", "NAMESPACE", "OWNER", "PODS", "NODES", "REASON"}}
	for _, job := range jobs {
		pods := job.GetPods()
		rows = append(rows, []string{
			fmt.Sprint(job.GetJobId()),
			podJobState(job),
			pods.GetSpace(),
			pods.GetOwner(),
			fmt.Sprint(len(pods.GetPods())),
			strings.Join(podJobNodes(job), ","),
			podJobReason(job),
		})
	}
	return call.WriteOut([]byte(render.AlignedTexts(rows)))
}

// podJobState says in one word what a job of pods does.
func podJobState(job *apiv1.PodJob) string {
	switch {
	case job.GetEnds():
		return "ending"
	case job.GetPending():
		return "pending"
	}
	return "running"
}

// podJobReason says why a job waits, or why it ends.
func podJobReason(job *apiv1.PodJob) string {
	if job.GetEnds() {
		return job.GetWhy()
	}
	return job.GetReason()
}

// podJobNodes are the nodes of a job, each once, in the order of its pods.
func podJobNodes(job *apiv1.PodJob) []string {
	var nodes []string
	for _, place := range job.GetPlaces() {
		if !slices.Contains(nodes, place.GetNode()) {
			nodes = append(nodes, place.GetNode())
		}
	}
	return nodes
}

// podJobsTree is the answer as a document.
func podJobsTree(jobs []*apiv1.PodJob) tree.Object {
	list := tree.List{}
	for _, job := range jobs {
		pods, nodes := tree.List{}, tree.List{}
		for _, pod := range job.GetPods().GetPods() {
			pods = append(pods, tree.Object{
				{Key: "uid", Value: pod.GetUid()},
				{Key: "name", Value: pod.GetName()},
			})
		}
		for _, node := range podJobNodes(job) {
			nodes = append(nodes, node)
		}
		list = append(list, tree.Object{
			{Key: "job_id", Value: int64(job.GetJobId())},
			{Key: "state", Value: podJobState(job)},
			{Key: "namespace", Value: job.GetPods().GetSpace()},
			{Key: "owner", Value: job.GetPods().GetOwner()},
			{Key: "pods", Value: pods},
			{Key: "nodes", Value: nodes},
			{Key: "reason", Value: podJobReason(job)},
		})
	}
	return tree.Object{{Key: "jobs", Value: list}}
}

// releasePodJobs checks all named jobs before it releases the first.
func releasePodJobs(call *tool.Call) error {
	reason := strings.TrimSpace(call.Opts.Text("why"))
	if reason == "" {
		return &opt.UsageError{
			Command: "muster pods",
			Text:    "--why is missing: say how you know that the pods are gone",
		}
	}
	jobs, err := readPodJobs(call)
	if err != nil {
		return err
	}
	chosen, problems := choosePodJobs(jobs, call.Operands[1:])
	if len(problems) > 0 {
		return &opt.UsageError{Command: "muster pods", Text: strings.Join(problems, "\n")}
	}
	for _, job := range chosen {
		request := &apiv1.PodsOverRequest{
			Uid:     job.GetUid(),
			Attempt: job.GetAttempt(),
			Epoch:   job.GetEpoch(),
			Pod:     job.GetPods().GetPods()[0].GetUid(),
			Why:     reason,
		}
		if err := call.RPC(tool.MethodPodsOver, request, &apiv1.PodsOverReply{}); err != nil {
			return fmt.Errorf("job %d is not released: %w", job.GetJobId(), err)
		}
		line := fmt.Sprintf("Job %d is released.\n", job.GetJobId())
		if nodes := podJobNodes(job); len(nodes) > 0 {
			line = fmt.Sprintf("Job %d is released and gives back %s.\n", job.GetJobId(), strings.Join(nodes, ","))
		}
		if err := call.WriteOut([]byte(line)); err != nil {
			return err
		}
	}
	return nil
}

// choosePodJobs finds the jobs that names stand for, and says of each that cannot be
// released why not.
func choosePodJobs(jobs []*apiv1.PodJob, names []string) (chosen []*apiv1.PodJob, problems []string) {
	for _, name := range names {
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			problems = append(problems, fmt.Sprintf("invalid job %q: expected a number", name))
			continue
		}
		at := slices.IndexFunc(jobs, func(job *apiv1.PodJob) bool { return uint64(job.GetJobId()) == id })
		switch {
		case at < 0:
			problems = append(problems, fmt.Sprintf("job %d has no pods that are not over (muster pods lists those that have)", id))
		case !jobs[at].GetEnds() && !jobs[at].GetPending():
			problems = append(problems, fmt.Sprintf("job %d is running: cancel it first (scancel %d)", id, id))
		case !slices.Contains(chosen, jobs[at]):
			chosen = append(chosen, jobs[at])
		}
	}
	return chosen, problems
}
