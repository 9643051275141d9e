package daemon

import (
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

func withSpaces(cfg *Config) {
	cfg.Node.Space = &plan.Space{Base: "/local", Dirs: []string{"/tmp", "/dev/shm"}, Init: "/etc/init.sh"}
}

// TestSpaceIsVacatedBeforeTheNodeIsGivenBack: the end of the script is told at
// once, that the node is free only when the private folders are gone; no program
// has to run for that.
func TestSpaceIsVacatedBeforeTheNodeIsGivenBack(t *testing.T) {
	cfg := testConfig()
	withSpaces(&cfg)
	b := newBenchWith(t, cfg)
	b.welcome()
	k := key(1)
	fx := b.launch(k)
	if len(fx.Launch) != 1 || fx.Launch[0].Space == nil || fx.Launch[0].Space.Base != "/local" {
		t.Fatalf("%+v", fx.Launch)
	}
	for _, want := range []string{"SLURM_JOB_ID=1001", "SLURM_JOB_USER=alice", "SLURMD_NODENAME=n1"} {
		if !slices.Contains(fx.Launch[0].Space.InitEnv, want) {
			t.Errorf("InitScript lacks %s: it has %q", want, fx.Launch[0].Space.InitEnv)
		}
	}
	b.answer(k, plan.Accepted, 0)
	b.started(k)
	b.wantSent()
	fx = b.exit(k)
	if len(fx.Clean) != 1 || fx.Clean[0].Key != k || fx.Clean[0].Env != nil {
		t.Fatalf("after the end: %+v", fx)
	}
	b.wantSent("1 1.1.batch ended")
	b.cleaned(k, "")
	b.wantSent("2 1.1.batch done 0:0")
}

// TestSpacesOfSharedDevices: the server through which a job shares a GPU is seen
// in its private folders.
func TestSpacesOfSharedDevices(t *testing.T) {
	j := &plan.Job{Key: key(1), Spec: &spec.JobSpec{}, Here: spec.NodeAlloc{Shares: []spec.GPUShare{{Name: "mps", Index: 2, N: 10, Of: 100}}}}
	n := &plan.Node{Space: &plan.Space{Base: "/local", Dirs: []string{"/tmp"}}}
	for each, want := range map[bool]string{false: "/tmp/nvidia-mps", true: "/tmp/nvidia-mps-2"} {
		n.MPSEach = each
		rs, _ := plan.Batch(j, n)
		if got := strings.Join(rs.Space.Through, " "); got != want {
			t.Errorf("seen: %q, want %q", got, want)
		}
	}
	if len(n.Space.Through) != 0 {
		t.Errorf("one job has changed what all jobs have: %q", n.Space.Through)
	}
}

// TestSpacesAreSwept: what is left of attempts that nobody wants here is removed
// once the controller has said what it wants, and nothing of a job that lives or
// is desired.
func TestSpacesAreSwept(t *testing.T) {
	s := newStage(t)
	s.configure = withSpaces
	s.shep.mounts = true
	living, desired, gone := key(1), key(2), key(3)
	s.shep.alive[living.StepOf(0)] = true
	s.shep.spaces = []plan.RunKey{living, desired, gone}
	s.start()
	st := s.stream(1)
	s.sync()
	s.do(func() {
		if len(s.shep.vacated) != 0 {
			t.Errorf("removed before the controller has spoken: %v", s.shep.vacated)
		}
	})
	st.welcome(testCluster, desired)
	s.until(func() bool { return len(s.shep.vacated) > 0 })
	s.pass(spec.Second, func() bool { return s.shep.lists > 4 })
	s.do(func() {
		if !slices.Equal(s.shep.vacated, []plan.RunKey{gone}) {
			t.Errorf("removed: %v, want %v alone", s.shep.vacated, gone)
		}
	})
}

// TestNodeThatCannotMakeSpaces says so with each heartbeat, and takes no jobs.
func TestNodeThatCannotMakeSpaces(t *testing.T) {
	for _, c := range []struct {
		mounts bool
		unable string
		said   string
	}{{true, "", ""}, {false, "", "may not make mount namespaces"}, {true, "BasePath is bad", "BasePath is bad"}} {
		s := newStage(t)
		s.configure = func(cfg *Config) { withSpaces(cfg); cfg.Unable = c.unable }
		s.shep.mounts = c.mounts
		s.start()
		st := s.stream(1)
		st.welcome(testCluster)
		var beats []*apiv1.Heartbeat
		s.pass(spec.Second, func() bool {
			beats = nil
			for _, m := range st.said {
				if b := m.GetHeartbeat(); b != nil {
					beats = append(beats, b)
				}
			}
			return len(beats) > 1
		})
		for _, b := range beats {
			if (b.GetUnready() == "") != (c.said == "") || !strings.Contains(b.GetUnready(), c.said) {
				t.Errorf("mounts %v: unready %q, want %q", c.mounts, b.GetUnready(), c.said)
			}
		}
	}
}
