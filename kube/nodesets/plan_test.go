package nodesets

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPlanKeepsJobs goes through every combination of what a node and its pod may be:
// no plan deletes a pod that may have a job, undoes a drain of others or starts a pod
// that nobody wants.
func TestPlanKeepsJobs(t *testing.T) {
	yes := []bool{false, true}
	cases := 0
	for _, known := range yes {
		for _, power := range []Power{On, Off, Asked} {
			for bits := range 1 << 8 {
				bit := func(i int) bool { return bits&(1<<i) != 0 }
				node := Node{Name: "a", Power: power, Idle: bit(0), Drained: bit(1), Ours: bit(2), Cloud: bit(3)}
				pod := Pod{Name: "a", Over: bit(4), Deleting: bit(5)}
				exists, leaving := bit(6), bit(7)
				for _, named := range yes {
					cases++
					nodes := map[string]Node{}
					if known {
						nodes["a"] = node
					}
					var pods []Pod
					if exists {
						pods = append(pods, pod)
					}
					var names []string
					if named {
						names = append(names, "a")
					}
					wanted := named && !leaving
					plan := Make(names, nodes, pods, leaving)
					where := fmt.Sprintf("known %v, %+v, exists %v, %+v, named %v, leaving %v: %+v", known, node, exists, pod, named, leaving, plan)
					has := func(list []string) bool { return slices.Contains(list, "a") }
					mayHaveJobs := known && power != Off && !pod.Over && !(node.Drained && node.Idle)
					if has(plan.Delete) && (!exists || pod.Deleting || mayHaveJobs || wanted && known && power == On && !pod.Over) {
						t.Fatal("deletes:", where)
					}
					if has(plan.Create) != (wanted && known && power == On && !exists) {
						t.Fatal("creates:", where)
					}
					if has(plan.Resume) && (!node.Ours || !wanted) {
						t.Fatal("resumes:", where)
					}
					if has(plan.Drain) && (wanted || !exists) {
						t.Fatal("drains:", where)
					}
					if has(plan.Off) && (wanted || !node.Idle || !node.Drained || !node.Cloud) {
						t.Fatal("powers down:", where)
					}
					if plan.Gone != (leaving && !exists) {
						t.Fatal("gone:", where)
					}
					// Who is to leave does: each state that nothing else changes leads on.
					if exists && !pod.Deleting && !wanted && known && power == On && !pod.Over && (!node.Drained || node.Idle) &&
						!has(plan.Drain) && !has(plan.Off) && !has(plan.Delete) {
						t.Fatal("stays:", where)
					}
				}
			}
		}
	}
	if cases != 2*3*256*2 {
		t.Errorf("%d cases", cases)
	}
}

func set(nodes string, change func(*NodeSet)) *NodeSet {
	s := &NodeSet{ObjectMeta: metav1.ObjectMeta{Name: "gpus", Namespace: "hpc"}}
	s.Spec.Nodes = nodes
	s.Spec.Controllers = []string{"ctl1:6817", "ctl2:6817"}
	s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sshd", Image: "x"}, {Name: AgentContainer, Image: "y", Args: []string{"--metrics", ":9400"}}}
	if change != nil {
		change(s)
	}
	return s
}

// TestCheck: what no pod can be made of is refused with the reason.
func TestCheck(t *testing.T) {
	for want, s := range map[string]*NodeSet{
		"":                       set("n[0-3]", nil),
		"spec.nodes":             set("n[0-", nil),
		"1 to 10000":             set("n[0-10000]", nil),
		"name of a pod":          set("N1", nil),
		"is called agent":        set("n1", func(s *NodeSet) { s.Spec.Template.Spec.Containers = s.Spec.Template.Spec.Containers[:1] }),
		"started again (Always)": set("n1", func(s *NodeSet) { s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever }),
	} {
		list, err := check(s)
		if want == "" && (err != nil || len(list) != 4) || want != "" && (!errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v", want, list, err)
		}
	}
}

// TestMakePod: the template is kept, the agent is told who it is, and nothing owns the pod.
func TestMakePod(t *testing.T) {
	s := set("n[0-3]", func(s *NodeSet) {
		s.Spec.Template.Labels = map[string]string{"team": "a"}
		s.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "gpu"}
		s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: stateVolume, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}}}}
	})
	before, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	pod := makePod(s, "n2")
	if after, err := json.Marshal(s); err != nil || string(after) != string(before) {
		t.Error("the NodeSet was changed")
	}
	c := pod.Spec.Containers[1]
	args := strings.Join(c.Args, " ")
	if pod.Name != "n2" || pod.Namespace != "hpc" || pod.Labels["team"] != "a" || pod.Labels[SetLabel] != "gpus" || len(pod.OwnerReferences) != 0 ||
		pod.Spec.Hostname != "n2" || pod.Spec.NodeSelector["pool"] != "gpu" || pod.Annotations[evictAnnotation] != "false" || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("%+v", pod)
	}
	if args != "--metrics :9400 --node n2 --controller ctl1:6817,ctl2:6817 --state-dir /var/lib/muster/agent/n2 --token-file /run/muster-enrolment/token" ||
		len(c.VolumeMounts) != 2 || len(pod.Spec.Volumes) != 2 || pod.Spec.Volumes[0].HostPath == nil ||
		pod.Spec.Volumes[1].Secret.SecretName != "n2-enrolment" || len(pod.Spec.Containers[0].VolumeMounts) != 0 {
		t.Errorf("%s %+v %+v", args, c, pod.Spec.Volumes)
	}
}
