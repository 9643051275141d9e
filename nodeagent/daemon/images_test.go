package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
)

// slowImages are those of a registry that answers when it is told to.
type slowImages struct {
	w      *watch
	asked  []string
	given  int // how many of the questions were given up
	answer chan error
}

func (i *slowImages) Fetch(ctx context.Context, image string) (*plan.Unpacked, error) {
	i.w.do(func() { i.asked = append(i.asked, image) })
	select {
	case err := <-i.answer:
		return &plan.Unpacked{Root: "/cache/1", Digest: "sha256:1", WorkDir: "/work", Env: []string{"PATH=/image/bin", "HOME=/image", "NEW=1"}}, err
	case <-ctx.Done():
		i.w.do(func() { i.given++ })
		return nil, ctx.Err()
	}
}

func boxed(image string, keep ...string) func(*apiv1.Launch) {
	return func(l *apiv1.Launch) {
		l.Job.Spec.Container = &apiv1.Container{Image: image, Keep: keep}
	}
}

// TestImageComesBeforeTheRun: the shepherd is asked when the image is here, with
// its files, work directory and environment, and other runs do not wait for that.
func TestImageComesBeforeTheRun(t *testing.T) {
	s := newStage(t)
	images := &slowImages{w: s.watch, answer: make(chan error)}
	s.images = images
	var launched []plan.RunSpec
	s.shep.launch = func(runs []plan.RunSpec) error { launched = append(launched, runs...); return nil }
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	box, plain, own := key(1), key(2), key(3)
	st.orders(s.bench.order(box, boxed("docker://app", "HOME")))
	s.until(func() bool { return len(images.asked) == 1 })
	st.orders(s.bench.order(plain), s.bench.order(own, boxed("/folder")))
	s.until(func() bool { return len(launched) == 2 })
	s.do(func() {
		if launched[0].Container != nil || launched[1].Container.Root != "/folder" || launched[1].Container.WorkDir != "/" {
			t.Errorf("launched %+v", launched)
		}
	})
	images.answer <- nil
	s.until(func() bool { return len(launched) == 3 })
	s.do(func() {
		got := launched[2]
		if got.Key != box || got.Container.Root != "/cache/1" || got.Container.WorkDir != "/work" {
			t.Errorf("launched %+v", got.Container)
		}
		for _, want := range []string{"PATH=/image/bin", "HOME=/", "NEW=1", "SLURM_CONTAINER=docker://app", "MUSTER_CONTAINER_DIGEST=sha256:1"} {
			if !slices.Contains(got.Env, want) {
				t.Errorf("the environment lacks %s: %q", want, got.Env)
			}
		}
		if slices.Contains(got.Env, "HOME=/image") {
			t.Error("the image has replaced what is to be kept")
		}
	})
}

// TestImageThatCannotBeHad ends the job, with the reason; one that is cancelled
// meanwhile is never started.
func TestImageThatCannotBeHad(t *testing.T) {
	s := newStage(t)
	images := &slowImages{w: s.watch, answer: make(chan error)}
	s.images = images
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	bad, cancelled := key(1), key(2)
	st.orders(s.bench.order(bad, boxed("docker://app")))
	s.until(func() bool { return len(images.asked) == 1 })
	images.answer <- errors.New("manifest unknown")
	done := func(k plan.RunKey) (e *apiv1.RunEnded) {
		for _, r := range st.reports() {
			if runKey(r.GetRun()) == k && r.GetNodeDone() != nil {
				e = r.GetNodeDone().GetBatch()
			}
		}
		return e
	}
	s.until(func() bool { return done(bad) != nil })
	s.do(func() {
		if e := done(bad); e.GetExitCode() != 1 || !strings.Contains(e.GetDetail(), "manifest unknown") {
			t.Errorf("reported %v", e)
		}
	})
	st.orders(s.bench.order(cancelled, boxed("docker://app")))
	s.until(func() bool { return len(images.asked) == 2 })
	st.orders(terminateOrder(cancelled, ""))
	s.until(func() bool { return images.given == 1 && done(cancelled) != nil })
	s.do(func() {
		if e := done(cancelled); e.GetExitSignal() != sigTerm || len(s.shep.batches) != 0 {
			t.Errorf("reported %v, launched %v", e, s.shep.batches)
		}
	})
}

// TestNoImagesWithoutRoot: a node that cannot mount images says so.
func TestNoImagesWithoutRoot(t *testing.T) {
	s := newStage(t)
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	st.orders(s.bench.order(key(1), boxed("docker://app")))
	s.until(func() bool {
		return slices.ContainsFunc(st.reports(), func(r *apiv1.Report) bool {
			return strings.Contains(r.GetNodeDone().GetBatch().GetDetail(), "its agent is not root")
		})
	})
}
