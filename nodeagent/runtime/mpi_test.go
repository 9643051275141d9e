package runtime_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/pmi"
	"github.com/musterhpc/muster/nodeagent/runtime/mpitest"
)

// compiled is a real MPI program, of MPICH.
func compiled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return mpitest.Program(t, dir, "mpich")
}

// mpiStep is a node's part of a step that runs an MPI program.
func (l *lab) mpiStep(program string, node, nodes uint32, ranks []uint32, mapping string, size uint32) plan.RunSpec {
	sp := l.step(len(ranks), "")
	sp.Tasks.Argv = []string{program}
	sp.Tasks.PMI = &plan.PMI{Job: fmt.Sprintf("%d.0", 4711), Size: size, Node: node, Nodes: nodes, Mapping: mapping, Ranks: ranks}
	for i, r := range ranks {
		t := &sp.Tasks.List[i]
		t.Rank, t.Env = r, []string{fmt.Sprintf("PMI_RANK=%d", r), fmt.Sprintf("PMI_SIZE=%d", size)}
	}
	return sp
}

// A real MPI program finds its other ranks over our PMI, on one node and over
// two, whose fences meet in the step's client.
func TestMPI(t *testing.T) {
	program := compiled(t)
	l := newLab(t)
	sp := l.mpiStep(program, 0, 1, []uint32{0, 1, 2, 3}, pmi.Mapping([]uint32{0, 0, 0, 0}), 4)
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	for r := range 4 {
		if got, want := v.all(fmt.Sprintf("%d.1", r)), fmt.Sprintf("rank %d of 4, sum 6\n", r); got != want {
			t.Errorf("rank %d wrote %q, want %q; it complained %q, %q", r, got, want, v.all(fmt.Sprintf("%d.2", r)), v.notices)
		}
	}
	other := newLab(t)
	mapping := pmi.Mapping([]uint32{0, 1, 0, 1})
	nodes := []*lab{l, other}
	var views []*viewer
	for i, n := range nodes {
		sp := n.mpiStep(program, uint32(i), 2, []uint32{uint32(i), uint32(i + 2)}, mapping, 4)
		n.launch(sp)
		views = append(views, newViewer(t).attach(n, sp.Key))
	}
	for done := false; !done; {
		// Each fence of the two nodes, until both are over.
		var parts [][]byte
		var number uint64
		for _, v := range views {
			v.await(func() bool { return len(v.fences) > 0 || v.end != nil })
			v.mu.Lock()
			if len(v.fences) > 0 {
				parts, number = append(parts, v.fences[0].Data), v.fences[0].Number
				v.fences = v.fences[1:]
			}
			v.mu.Unlock()
		}
		if done = len(parts) < 2; done {
			break
		}
		all, err := pmi.Merge(parts)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range views {
			if err := v.step.Merged(context.Background(), plan.Fence{Number: number, Data: all}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for r := range 4 {
		if got, want := views[r%2].all(fmt.Sprintf("%d.1", r)), fmt.Sprintf("rank %d of 4, sum 6\n", r); got != want {
			t.Errorf("over two nodes rank %d wrote %q, want %q; %q", r, got, want, views[r%2].notices)
		}
	}
}

// A program that gives up ends the whole step, also what had not begun yet, and
// says why.
func TestMPIAbort(t *testing.T) {
	l := newLab(t)
	const tasks = 60
	ranks := make([]uint32, tasks)
	for i := range ranks {
		ranks[i] = uint32(i)
	}
	sp := l.mpiStep("/bin/sh", 0, 1, ranks, pmi.Mapping(make([]uint32, tasks)), tasks)
	sp.Tasks.Argv = []string{"bash", "-c", `test $PMI_RANK = 0 && printf 'cmd=init pmi_version=1 pmi_subversion=1\ncmd=abort exitcode=7 error_msg=no_way\n' >&$PMI_FD; sleep 1000`}
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.all("0.1")
	if len(v.exits) != tasks || len(v.notices) != 1 {
		t.Errorf("%d ends, %q", len(v.exits), v.notices)
	}
	for _, x := range v.exits {
		if x.Signal != 9 {
			t.Errorf("%+v", x)
		}
	}
}
