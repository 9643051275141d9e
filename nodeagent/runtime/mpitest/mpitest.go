// Package mpitest makes a real MPI program for tests.
package mpitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const source = `#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
	int rank, size, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of %d, sum %d\n", rank, size, sum);
	MPI_Finalize();
	return 0;
}
`

// Program compiles, in a folder, a program each of whose ranks prints "rank R of
// N, sum S", S being that of all ranks. mpi is mpich or openmpi; where it is not
// installed the test is skipped.
func Program(t *testing.T, dir, mpi string) string { return compileProgram(t, dir, mpi, mpi, source) }

// compileProgram compiles a program of an MPI.
func compileProgram(t *testing.T, dir, mpi, name, source string) string {
	t.Helper()
	cc, err := exec.LookPath("mpicc." + mpi)
	if err != nil {
		t.Skipf("%s is not tried: %v (deploy/deps/install.sh installs it)", mpi, err)
	}
	program := filepath.Join(dir, name)
	if err := os.WriteFile(program+".c", []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, program+".c", "-o", program).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	return program
}
