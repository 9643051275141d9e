package grpcx_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/internal/transport/echotest"
)

// BenchmarkProcess is what a hot command costs from exec to exit: nothing at all, one framed call on bytes, one framed call with
// protobuf messages, one gRPC call. The server runs in this process.
func BenchmarkProcess(b *testing.B) {
	w := newWorld(b, &echotest.Service{}, true)
	for _, name := range []string{"bare", "raw", "framed", "grpc"} {
		program := filepath.Join(b.TempDir(), name)
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./testdata/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			b.Fatalf("build %s: %v\n%s", name, err, out)
		}
		info, err := os.Stat(program)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if out, err := exec.Command(program, w.unix, echotest.Echo).CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
			b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
		})
	}
}
