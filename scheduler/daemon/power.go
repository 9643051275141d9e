package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Programs run the site's programs that power nodes down and up. A program is
// started once for each durable step and never again: a controller that dies
// between the two leaves it to ResumeTimeout to find that nothing came up.
type Programs interface {
	// Start starts a program with the nodes as its argument and does not wait.
	// resume, if not nil, is what SLURM_RESUME_FILE holds.
	Start(program, nodes string, resume []byte)
	// Fence runs a program that switches a node off, and returns when it has ended: nil means
	// that the node is off. An empty reason is not passed on.
	Fence(ctx context.Context, program, node, reason string) error
}

// waitsForBoot tells whether a job, or a component of its heterogeneous job,
// waits for nodes to boot.
func waitsForBoot(cluster *state.State, job *state.Job) bool {
	if job.Configuring() {
		return true
	}
	for _, component := range cluster.Components(job) {
		if component.Configuring() {
			return true
		}
	}
	return false
}

// startReady starts a job whose nodes are all up, with its other components.
func (h *hub) startReady(cluster *state.State, job *state.Job) {
	if job == nil || waitsForBoot(cluster, job) {
		return
	}
	all := cluster.Components(job)
	if all == nil {
		all = []*state.Job{job}
	}
	for _, component := range all {
		h.orderLaunch(cluster, component.UID, "")
		if component.State == spec.Suspended {
			h.orderSignal(component, "")
		}
	}
}

// runPowerStep runs what is to be run for a step in the power of nodes.
func (h *hub) runPowerStep(cluster *state.State, e *event.NodePowered) {
	power := cluster.Config.Power
	run := h.c.deps.Programs
	nodes := hostlist.Fold(e.Nodes)
	if power == nil || run == nil {
		return
	}
	switch {
	case e.Failed:
		h.c.deps.Logger.Warn("nodes did not come up", "nodes", nodes)
		if power.ResumeFail != "" {
			run.Start(power.ResumeFail, nodes, nil)
		}
	case e.To == event.PoweringDown && power.Suspend != "":
		run.Start(power.Suspend, nodes, nil)
	case e.To == event.PoweringUp && power.Resume != "":
		// An agent that is there in spite of all shows that by connecting again.
		for _, name := range e.Nodes {
			if conn := h.connOf(name); conn != nil {
				conn.sayGoodbye("the node is being powered up: register again")
			}
		}
		run.Start(power.Resume, nodes, resumeFile(cluster, e.Nodes))
	}
}

// resumeJob is a job of SLURM_RESUME_FILE.
type resumeJob struct {
	Extra         *string `json:"extra"`
	JobID         uint32  `json:"job_id"`
	Features      *string `json:"features"`
	NodesAlloc    string  `json:"nodes_alloc"`
	NodesResume   string  `json:"nodes_resume"`
	OverSubscribe string  `json:"oversubscribe"`
	Partition     string  `json:"partition"`
	Reservation   *string `json:"reservation"`
}

// resumeFile says for which jobs nodes are powered up.
func resumeFile(cluster *state.State, nodes []string) []byte {
	out := struct {
		All  string      `json:"all_nodes_resume"`
		Jobs []resumeJob `json:"jobs"`
	}{hostlist.Fold(nodes), []resumeJob{}}
	wanted, seen := map[string]bool{}, map[spec.JobUID]bool{}
	for _, name := range nodes {
		wanted[name] = true
	}
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	for _, name := range nodes {
		node := cluster.Node(name)
		if node == nil {
			continue
		}
		for _, uid := range node.Jobs {
			job := cluster.Job(uid)
			if seen[uid] {
				continue
			}
			seen[uid] = true
			var resume []string
			for _, a := range job.Alloc.NodeNames() {
				if wanted[a] {
					resume = append(resume, a)
				}
			}
			over := "OK"
			if job.Alloc.Whole {
				over = "NO"
			}
			out.Jobs = append(
				out.Jobs,
				resumeJob{
					JobID:      uint32(job.ID),
					Features:   text(job.Spec.Place.Constraint),
					NodesAlloc: hostlist.Fold(job.Alloc.NodeNames()),
					NodesResume: hostlist.Fold(
						resume,
					),
					OverSubscribe: over,
					Partition:     job.Alloc.Partition,
					Reservation:   text(job.Alloc.Reservation),
				},
			)
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(fmt.Sprintf("what nodes are resumed for: %v", err)) // strings and numbers only
	}
	return data
}

// orderReboot tells a node's agent to reboot it.
func (h *hub) orderReboot(node *state.Node) {
	if node == nil || node.Reboot == nil {
		return
	}
	if conn := h.connOf(node.Spec.Name); conn != nil {
		conn.queueOrder(
			&apiv1.Order{
				Kind: &apiv1.Order_Reboot{
					Reboot: &apiv1.Reboot{Seq: uint64(node.Reboot.At), Reason: node.Reboot.Reason},
				},
			},
		)
	}
}
