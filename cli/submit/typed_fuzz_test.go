package submit

import (
	"context"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// FuzzTyped: whatever was typed, the controller submits one job at most, and says
// what became of it.
func FuzzTyped(f *testing.F) {
	f.Add([]byte("--wrap\x00true\x00"), []byte("PATH=/bin\x00"), []byte(""))
	f.Add([]byte("-N2\x00:\x00-n3\x00s.sh\x00"), []byte("SBATCH_ACCOUNT=x\x00"), []byte("#!/bin/sh\n#SBATCH -J 'a b'\n#SBATCH hetjob\n#SBATCH -t 5\n"))
	f.Add([]byte("--array=1-4%2\x00--gres=gpu:1\x00s.sh\x00"), []byte("=\x00\x00"), []byte("#!/bin/sh\n"))
	f.Fuzz(func(t *testing.T, args, environ, script []byte) {
		jobs := 0
		submit := func(context.Context, *apiv1.SubmitRequest) (*apiv1.SubmitReply, error) {
			jobs++
			return &apiv1.SubmitReply{JobId: 7, Uid: 8}, nil
		}
		in := &apiv1.TypedCommand{Args: args, Environment: environ, Dir: []byte("/"), Host: []byte("h"), ScriptArg: []byte("s.sh"), ScriptPath: []byte("/s.sh"), Script: script}
		out := Typed(t.Context(), in, TypedHost{Version: "test", Submit: submit})
		switch {
		case jobs > 1, out.GetHome() && jobs > 0:
			t.Fatalf("%q submits %d jobs, home %v", args, jobs, out.GetHome())
		case !out.GetHome() && out.GetExit() != 0 && len(out.GetErr()) == 0 && len(out.GetOut()) == 0:
			t.Fatalf("%q fails with %d and no word", args, out.GetExit())
		}
	})
}
