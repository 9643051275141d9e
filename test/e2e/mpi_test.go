package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/runtime/mpitest"
)

// TestStepsMPI: the launchers of Open MPI and MPICH, found by the links that a
// site makes, start their daemons by way of srun on one node and on two, in
// salloc and in a batch script; MPICH's programs are also started by srun.
func TestStepsMPI(t *testing.T) {
	c := start(t)
	links := filepath.Join(c.dir, "links")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	c.must("links", links)
	t.Setenv("PATH", links+":"+os.Getenv("PATH"))
	for _, name := range []string{"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle"} {
		t.Setenv(name, "1")
	}
	// Both nodes are this machine: ranks of different nodes would take the same
	// names of shared memory.
	t.Setenv("OMPI_MCA_btl", "self,tcp")
	ranks := func(t *testing.T, text string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "rank ") {
				got = append(got, strings.TrimSuffix(line, "\n"))
			}
		}
		slices.Sort(got)
		if want := "rank 0 of 4, sum 6 rank 1 of 4, sum 6 rank 2 of 4, sum 6 rank 3 of 4, sum 6"; strings.Join(got, " ") != want {
			t.Errorf("its ranks wrote %q in %q", got, text)
		}
	}
	for _, mpi := range []string{"openmpi", "mpich"} {
		t.Run(mpi, func(t *testing.T) {
			program := mpitest.Program(t, c.dir, mpi)
			ranks(t, c.must("salloc", "-N", "1", "-n", "4", "mpirun."+mpi, program))
			script, out := program+".sh", program+".out"
			if err := os.WriteFile(script, []byte("#!/bin/sh\nmpirun."+mpi+" "+program+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			c.must("sbatch", "-W", "-N", "2", "-n", "4", "-o", out, script)
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			ranks(t, string(data))
			if mpi == "mpich" {
				ranks(t, c.must("salloc", "-N", "2", "-n", "4", "mpirun.mpich", program))
				ranks(t, c.must("srun", "-N", "2", "-n", "4", program))
			}
		})
	}
}
