package main

import (
	"context"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// An sbatch that was typed elsewhere is submitted and refused as one that runs here.
func TestShell(t *testing.T) {
	s := shellService{filtered: func() bool { return false }, submit: func(_ context.Context, req *apiv1.SubmitRequest) (*apiv1.SubmitReply, error) {
		if req.GetSpec().GetMinNodes() > 4 {
			return nil, &spec.Error{Kind: spec.CodeNodeConfigUnavailable, Detail: "9 nodes asked, there are 4"}
		}
		return &apiv1.SubmitReply{JobId: 12}, nil
	}}
	for args, want := range map[string]*apiv1.TypedAnswer{
		"--wrap\x00hostname\x00":            {Out: []byte("Submitted batch job 12\n")},
		"-N\x009\x00--wrap\x00hostname\x00": {Exit: 1, Err: []byte("sbatch: error: 9 nodes asked, there are 4\nsbatch: error: Batch job submission failed: Requested node configuration is not available\n")},
		"-W\x00--wrap\x00hostname\x00":      {Home: true},
	} {
		got, err := s.Sbatch(t.Context(), &apiv1.TypedCommand{Args: []byte(args), Dir: []byte("/"), Host: []byte("h")})
		if err != nil || got.GetHome() != want.GetHome() || got.GetExit() != want.GetExit() || string(got.GetOut()) != string(want.GetOut()) || string(got.GetErr()) != string(want.GetErr()) {
			t.Errorf("%q: %v, %v, want %v", args, got, err, want)
		}
	}
}
