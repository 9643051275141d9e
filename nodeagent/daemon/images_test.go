package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// slowImages are those of a registry that answers when it is told to.
type slowImages struct {
	w      *watch
	asked  []string
	asks   []ImageAsk
	held   []string // holders, as an earlier agent left them
	full   bool
	over   []string // what Trim was told
	given  int      // how many of the questions were given up
	answer chan error
}

func (i *slowImages) Fetch(ctx context.Context, ask ImageAsk) (*plan.Unpacked, error) {
	i.w.do(func() {
		i.asked = append(i.asked, ask.Image)
		i.asks = append(i.asks, ask)
		i.held = append(i.held, ask.Holder)
	})
	select {
	case err := <-i.answer:
		return &plan.Unpacked{Root: "/cache/1", Digest: "sha256:1", WorkDir: "/work", Env: []string{"PATH=/image/bin", "HOME=/image", "NEW=1"}}, err
	case <-ctx.Done():
		i.w.do(func() { i.given++ })
		return nil, ctx.Err()
	}
}

func (i *slowImages) ReadBundle(ctx context.Context, ask ImageAsk) (*plan.Unpacked, error) {
	return i.Fetch(ctx, ask)
}

func (i *slowImages) Holders() (out []string, err error) {
	i.w.do(func() { out = slices.Clone(i.held) })
	return out, nil
}

func (i *slowImages) IsFull() (full bool) {
	i.w.do(func() { full = i.full })
	return full
}

func (i *slowImages) Trim(over []string) (said []any, err error) {
	i.w.do(func() {
		i.over = append(i.over, over...)
		i.full = false
		i.held = slices.DeleteFunc(i.held, func(h string) bool { return slices.Contains(over, h) })
	})
	return []any{"digests", len(over)}, nil
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

// TestImagesAreHeldByRuns: runs that are over, also those of an earlier agent, give
// their images up, and a run that is here does not.
func TestImagesAreHeldByRuns(t *testing.T) {
	s := newStage(t)
	gone := key(7).String()
	images := &slowImages{w: s.watch, answer: make(chan error), held: []string{gone}}
	s.images = images
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	s.until(func() bool { return slices.Equal(images.over, []string{gone}) })

	st.orders(s.bench.order(key(1), boxed("docker://app")))
	s.until(func() bool { return len(images.asks) == 1 })
	s.do(func() { images.full = true })
	images.answer <- nil
	s.pass(spec.Second, func() bool { return !images.full })
	s.do(func() {
		ask := images.asks[0]
		if ask.Holder != key(1).String() || ask.LoginFile != "/.docker/config.json" {
			t.Errorf("asked for %+v", ask)
		}
		if slices.Contains(images.over, ask.Holder) || !slices.Contains(images.held, ask.Holder) {
			t.Errorf("a run that is here has lost its image: over %v, held %v", images.over, images.held)
		}
	})
}

// TestImageIsPinned: what a name means is told once; an order that says it is obeyed,
// and nothing is told.
func TestImageIsPinned(t *testing.T) {
	s := newStage(t)
	images := &slowImages{w: s.watch, answer: make(chan error)}
	s.images = images
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	told := func() (out []*apiv1.Report) {
		for _, r := range st.reports() {
			if r.GetImageResolved() != nil {
				out = append(out, r)
			}
		}
		return out
	}
	st.orders(s.bench.order(key(1), boxed("docker://app")))
	s.until(func() bool { return len(images.asks) == 1 })
	images.answer <- nil
	s.until(func() bool { return len(told()) == 1 })
	st.orders(s.bench.order(key(2), boxed("docker://app"), func(l *apiv1.Launch) {
		l.Job.Images = []*apiv1.PinnedImage{{Image: "docker://other", Digest: "sha256:9"}, {Image: "docker://app", Digest: "sha256:0"}}
	}))
	s.until(func() bool { return len(images.asks) == 2 })
	images.answer <- nil
	s.until(func() bool {
		return slices.ContainsFunc(s.shep.batches, func(b []plan.RunKey) bool { return slices.Contains(b, key(2)) })
	})
	s.do(func() {
		report := told()[0]
		if runKey(report.GetRun()) != key(1) || report.GetImageResolved().GetImage() != "docker://app" ||
			report.GetImageResolved().GetDigest() != "sha256:1" {
			t.Errorf("told %v", report)
		}
		if images.asks[0].Digest != "" || images.asks[1].Digest != "sha256:0" || len(told()) != 1 {
			t.Errorf("asked for %+v, told %v", images.asks, told())
		}
	})
}
