package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podRuntime does what kubelet and a container runtime do for the pods of a namespace: each
// container runs in a mount, PID and host name namespace of its own, with the volumes of
// its pod, and all of them in one network of this test. The image is this machine.
type podRuntime struct {
	*lab
	t     *testing.T
	space string
	dir   string
	netns string
	hosts string
	// outside are the containers that need the API server, which is not in the test's network.
	outside []string

	mu   sync.Mutex
	pods map[string][]*exec.Cmd // by UID
}

func newPodRuntime(t *testing.T, l *lab, space string, hosts string) *podRuntime {
	t.Helper()
	r := &podRuntime{lab: l, t: t, space: space, dir: filepath.Join(l.dir, space), netns: fmt.Sprintf("kube%d", os.Getpid()),
		outside: []string{"nodes"}, pods: map[string][]*exec.Cmd{}}
	r.hosts = filepath.Join(r.dir, "hosts")
	if err := os.MkdirAll(r.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.hosts, []byte("127.0.0.1 localhost "+hosts+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"netns", "add", r.netns}, {"-n", r.netns, "link", "set", "lo", "up"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Skipf("no network of its own for the pods: ip %v: %v %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, list := range r.pods {
			end(list)
		}
		if out, err := exec.Command("ip", "netns", "del", r.netns).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	})
	return r
}

func end(list []*exec.Cmd) {
	for _, cmd := range list {
		_ = cmd.Process.Kill() // it takes its namespace with it
		_ = cmd.Wait()
	}
}

// volume is where the volume of a pod is on this machine. State of a StatefulSet's pod stays.
func (r *podRuntime) volume(pod *corev1.Pod, name string) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == name && v.PersistentVolumeClaim != nil {
			return filepath.Join(r.dir, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return filepath.Join(r.dir, pod.Name+"-"+string(pod.UID)[:6], name)
}

// serve starts the containers of pods that are bound, and ends those of pods that are gone.
func (r *podRuntime) serve() {
	ctx := context.Background()
	list, err := r.kube.CoreV1().Pods(r.space).List(ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Log(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	there := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		uid := string(pod.UID)
		there[uid] = true
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.fill(ctx, pod); err != nil {
			r.t.Logf("pod %s: %v", pod.Name, err)
			continue
		}
		if r.pods[uid] != nil {
			continue
		}
		for _, c := range pod.Spec.InitContainers {
			if out, err := r.command(pod, &c).CombinedOutput(); err != nil {
				r.t.Fatalf("pod %s: %v %s", pod.Name, err, out)
			}
		}
		for _, c := range pod.Spec.Containers {
			if c.Name == "sshd" {
				continue // this machine has none
			}
			cmd := r.command(pod, &c)
			log, err := os.OpenFile(filepath.Join(r.lab.dir, r.space+"-"+pod.Name+"-"+c.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err != nil {
				r.t.Fatal(err)
			}
			cmd.Stdout, cmd.Stderr = log, log
			err = cmd.Start()
			log.Close()
			if err != nil {
				r.t.Fatal(err)
			}
			r.pods[uid] = append(r.pods[uid], cmd)
		}
	}
	for uid, list := range r.pods {
		if !there[uid] {
			end(list)
			delete(r.pods, uid)
		}
	}
}

// fill writes what Secrets and ConfigMaps have into the volumes, now and when they change.
func (r *podRuntime) fill(ctx context.Context, pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		folder := r.volume(pod, v.Name)
		if err := os.MkdirAll(folder, 0o711); err != nil {
			return err
		}
		files, mode := map[string][]byte{}, os.FileMode(0o644)
		switch {
		case v.Secret != nil:
			secret, err := r.kube.CoreV1().Secrets(pod.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
			if err != nil && (v.Secret.Optional == nil || !*v.Secret.Optional) {
				return err
			}
			files, mode = secret.Data, os.FileMode(*v.Secret.DefaultMode)
		case v.ConfigMap != nil:
			m, err := r.kube.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for name, text := range m.Data {
				files[name] = []byte(text)
			}
		}
		for name, data := range files {
			path := filepath.Join(folder, name)
			if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
				continue
			}
			if err := os.WriteFile(path, data, mode); err != nil {
				return err
			}
		}
	}
	return nil
}

// command runs a container's program. It is started again when it fails, as kubelet does.
func (r *podRuntime) command(pod *corev1.Pod, c *corev1.Container) *exec.Cmd {
	var script strings.Builder
	fmt.Fprintf(&script, "hostname %s\nmount --bind %s /etc/hosts\n", pod.Name, r.hosts)
	for _, m := range c.VolumeMounts {
		fmt.Fprintf(&script, "mkdir -p %s\nmount --bind %s %s\n", m.MountPath, r.volume(pod, m.Name), m.MountPath)
	}
	again := slices.ContainsFunc(pod.Spec.Containers, func(x corev1.Container) bool { return x.Name == c.Name })
	if again {
		script.WriteString("while ! \"$@\"; do sleep 1; done\n")
	} else {
		script.WriteString("exec \"$@\"\n")
	}
	names := strings.NewReplacer("$(POD_NAME)", pod.Name, "$(POD_NAMESPACE)", pod.Namespace)
	args := []string{"unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script.String(), "sh"}
	if !slices.Contains(r.outside, c.Name) {
		args = append([]string{"ip", "netns", "exec", r.netns}, args...)
	}
	args = append(args, filepath.Join(r.bin, c.Command[0]))
	for _, a := range slices.Concat(c.Command[1:], c.Args) {
		args = append(args, names.Replace(a))
	}
	if c.Name == "nodes" {
		// In a pod it would be the service account's own token.
		args = append(args, "--kubeconfig", filepath.Join(r.dir, "keeper.kubeconfig"), "--namespace", pod.Namespace)
	}
	return exec.Command(args[0], args[1:]...)
}

// muster runs a command of Muster through the socket of a pod.
func (r *podRuntime) muster(pod string, args ...string) (string, error) {
	now, err := r.kube.CoreV1().Pods(r.space).Get(context.Background(), pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(r.bin, "muster"), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(r.volume(now, "run"), "muster.sock"))
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// says asks a command until its answer is the wanted one.
func (r *podRuntime) says(pod, want string, args ...string) {
	r.t.Helper()
	wait(r.t, pod+": "+strings.Join(args, " ")+" says "+want, func() (bool, string) {
		r.serve()
		out, err := r.muster(pod, args...)
		return err == nil && out == want, fmt.Sprint(out, err)
	})
}
