package mpitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// aborts is an MPI program whose rank 1 gives up while the others wait.
const aborts = `#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv) {
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 1)
		MPI_Abort(MPI_COMM_WORLD, 7);
	for (;;)
		pause();
}
`

// Aborting compiles, in a folder, a program of an MPI whose rank 1 gives up with
// exit code 7 while all others wait for ever.
func Aborting(t *testing.T, dir, mpi string) string {
	t.Helper()
	return compileProgram(t, dir, mpi, "aborts-"+mpi, aborts)
}

// fences is a program of PMIx alone: its ranks meet at as many fences as the
// argument says, each with data for the others, and rank 0 prints how long the
// mean of them took.
const fences = `#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
int main(int argc, char **argv) {
	pmix_proc_t me, all, other;
	pmix_value_t *v, mine;
	pmix_info_t collect;
	bool yes = true;
	struct timespec a, b;
	int count = argc > 1 ? atoi(argv[1]) : 1;
	if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
		return 1;
	PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
	if (PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &v) != PMIX_SUCCESS)
		return 2;
	uint32_t size = v->data.uint32;
	PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
	char text[256];
	memset(text, 'x', sizeof text);
	snprintf(text + 240, 16, "%u", me.rank);
	PMIX_VALUE_LOAD(&mine, text, PMIX_STRING);
	mine.type = PMIX_STRING;
	if (PMIx_Put(PMIX_GLOBAL, "address", &mine) != PMIX_SUCCESS || PMIx_Commit() != PMIX_SUCCESS)
		return 3;
	if (PMIx_Fence(&all, 1, &collect, 1) != PMIX_SUCCESS)
		return 4;
	PMIX_LOAD_PROCID(&other, me.nspace, (me.rank + 1) % size);
	if (PMIx_Get(&other, "address", NULL, 0, &v) != PMIX_SUCCESS || v->type != PMIX_STRING || strlen(v->data.string) < 241 || atoi(v->data.string + 240) != (int)other.rank)
		return 5;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < count; i++)
		if (PMIx_Fence(&all, 1, NULL, 0) != PMIX_SUCCESS)
			return 6;
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (me.rank == 0)
		printf("%u tasks, %d fences, %.3f ms each\n", size, count, ((b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6) / count);
	PMIx_Finalize(NULL, 0);
	return 0;
}
`

// Fences compiles, in a folder, a program of PMIx whose ranks meet at as many
// fences as its argument says. Where libpmix is not installed the test is skipped.
func Fences(t *testing.T, dir string) string {
	t.Helper()
	flags, err := exec.Command("pkg-config", "--cflags", "--libs", "pmix").Output()
	if err != nil {
		t.Skipf("PMIx is not tried: %v (deploy/deps/install.sh installs it)", err)
	}
	program := filepath.Join(dir, "fences")
	if err := os.WriteFile(program+".c", []byte(fences), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", "cc -o "+program+" "+program+".c "+string(flags)).CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return program
}
