// Package test runs muster-kube between real servers of Kubernetes and a real
// cluster of Muster, all on this machine. Only the kubelets are missing: a goroutine
// says that pods run, and takes those away that are to go.
package test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
)

const serverVersion = "v1.36.3"

// lab is everything that runs: Kubernetes and Muster.
type lab struct {
	dir      string // of everything
	bin      string // of Muster's programs
	kubeBin  string
	api      string // address of the API server
	kubectls string // kubeconfig of the administrator
	robot    string // kubeconfig of muster-kube's service account
	kube     *kubernetes.Clientset
	muster   string // folder of the Muster cluster
	port     int    // first of Muster's ports

	apiServer *process
	startAPI  func() error // starts apiServer, also again

	mu    sync.Mutex
	procs []*process
	copy  *process // muster-kube
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// process is a program that this test started.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	over chan struct{}
}

// the is the lab that all tests share; nil: they are skipped.
var the *lab

func TestMain(m *testing.M) {
	if os.Getenv("MUSTER_TEST_KUBE") == "" {
		fmt.Println("SKIPPED: the servers of Kubernetes are started by `make test-kube` only")
		os.Exit(m.Run())
	}
	l, err := startLab()
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "the lab did not start:", err)
	} else {
		the = l
		code = m.Run()
	}
	l.end(code != 0)
	os.Exit(code)
}

func need(t *testing.T) *lab {
	t.Helper()
	if the == nil {
		t.Skip("run make test-kube")
	}
	return the
}

func startLab() (*lab, error) {
	l := &lab{}
	wd, err := os.Getwd()
	if err != nil {
		return l, err
	}
	root := filepath.Join(wd, "..", "..")
	l.bin = filepath.Join(root, "bin")
	out, err := exec.Command(filepath.Join(root, "test", "kube", "servers.sh"), "--have").Output()
	if err != nil {
		return l, fmt.Errorf("%w: run make test-kube", err)
	}
	l.kubeBin = strings.TrimSpace(string(out))
	if l.dir, err = os.MkdirTemp("", "kube"); err != nil {
		return l, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	if err := l.startServers(); err != nil {
		return l, err
	}
	for _, name := range []string{"node1", "node2"} {
		if err := l.addNode(ctx, name); err != nil {
			return l, err
		}
	}
	l.done.Go(func() { l.kubelets(ctx) })
	if err := l.startMuster(); err != nil {
		return l, err
	}
	return l, l.install(ctx)
}

// ports are free ones in a row.
func ports(n int) (int, error) {
next:
	for start := 23000 + os.Getpid()%20000; start < 60000; start += 50 {
		for p := start; p < start+n; p++ {
			s, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				continue next
			}
			s.Close()
		}
		return start, nil
	}
	return 0, fmt.Errorf("no %d free ports in a row", n)
}

// begin starts a program whose output goes to a file.
func (l *lab) begin(name string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(name), over: make(chan struct{}), log: filepath.Join(l.dir, filepath.Base(name)+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(name, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir = l.dir
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // who kills it knows
		close(p.over)
	}()
	l.mu.Lock()
	l.procs = append(l.procs, p)
	l.mu.Unlock()
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be over
	<-p.over
}

func (l *lab) startServers() error {
	base, err := ports(45)
	if err != nil {
		return err
	}
	l.port = base + 10
	at := func(name string) string { return filepath.Join(l.dir, name) }
	l.api = fmt.Sprintf("https://127.0.0.1:%d", base)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	token := rand.Text()
	// Which rights the programs make use of.
	audit := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {level: Metadata, userGroups: ['system:serviceaccounts']}\n"
	for name, data := range map[string][]byte{"audit.yaml": []byte(audit), "sa.key": text, "tokens": []byte(token + ",admin,admin,system:masters\n")} {
		if err := os.WriteFile(at(name), data, 0o600); err != nil {
			return err
		}
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", base+1)
	peer := fmt.Sprintf("http://127.0.0.1:%d", base+2)
	if _, err := l.begin("etcd", "--data-dir", at("etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--unsafe-no-fsync"); err != nil {
		return fmt.Errorf("etcd (deploy/deps/install.sh kube installs it): %w", err)
	}
	l.startAPI = func() (err error) {
		l.apiServer, err = l.begin(filepath.Join(l.kubeBin, "kube-apiserver"), "--etcd-servers="+etcd, fmt.Sprintf("--secure-port=%d", base),
			"--bind-address=127.0.0.1", "--cert-dir="+at("certs"), "--service-account-key-file="+at("sa.key"),
			"--service-account-signing-key-file="+at("sa.key"), "--service-account-issuer=https://kubernetes.default.svc",
			"--token-auth-file="+at("tokens"), "--authorization-mode=RBAC", "--allow-privileged=true",
			"--audit-log-path="+at("audit.jsonl"), "--audit-policy-file="+at("audit.yaml"), "--service-cluster-ip-range=10.0.0.0/24")
		return err
	}
	if err := l.startAPI(); err != nil {
		return err
	}
	l.kubectls = at("admin.kubeconfig")
	ca := at("certs/apiserver.crt")
	if err := until(func() error {
		if _, err := os.Stat(ca); err != nil {
			return err
		}
		if err := l.writeConfig(l.kubectls, token); err != nil {
			return err
		}
		config, err := clientcmd.BuildConfigFromFlags("", l.kubectls)
		if err != nil {
			return err
		}
		config.QPS, config.Burst = 1000, 1000
		if benching() {
			config.QPS = -1 // what makes the pods must not be what is measured
		}
		if l.kube, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
		return l.kube.RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
	}); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	// There are no kubelets whose silence the node lifecycle could note.
	if _, err := l.begin(filepath.Join(l.kubeBin, "kube-controller-manager"), "--kubeconfig="+l.kubectls, "--leader-elect=false",
		"--controllers=*,-node-lifecycle-controller", "--service-account-private-key-file="+at("sa.key"), "--root-ca-file="+ca,
		fmt.Sprintf("--secure-port=%d", base+3), "--bind-address=127.0.0.1", "--cert-dir="+at("manager")); err != nil {
		return err
	}
	// As it is shipped, kube-scheduler sends 50 requests a second at most, and so binds no
	// more pods than that, whatever the machine could do.
	requests := 50
	if benching() {
		requests = 10000
	}
	settings := fmt.Sprintf("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+
		"clientConnection: {kubeconfig: %q, qps: %d, burst: %d}\nleaderElection: {leaderElect: false}\n",
		l.kubectls, requests, 2*requests)
	if err := os.WriteFile(at("scheduler.yaml"), []byte(settings), 0o600); err != nil {
		return err
	}
	_, err = l.begin(filepath.Join(l.kubeBin, "kube-scheduler"), "--config="+at("scheduler.yaml"),
		fmt.Sprintf("--secure-port=%d", base+4), "--bind-address=127.0.0.1", "--cert-dir="+at("scheduler"))
	return err
}

// writeConfig makes a kubeconfig for whoever has a token.
func (l *lab) writeConfig(file, token string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["lab"] = &clientcmdapi.Cluster{Server: l.api, CertificateAuthority: filepath.Join(l.dir, "certs", "apiserver.crt")}
	c.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "me"}
	c.CurrentContext = "lab"
	return clientcmd.WriteToFile(*c, file)
}

func (l *lab) addNode(ctx context.Context, name string) error {
	_, err := l.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"kubernetes.io/hostname": name}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// The controller manager may write to a new Node too.
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := l.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status.Capacity = resources("6", "8000Mi", 4)
		node.Status.Capacity[corev1.ResourcePods] = quantity("110")
		node.Status.Allocatable = node.Status.Capacity
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
		if node, err = l.kube.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		node.Spec.Taints = nil // the API server taints a new node as not ready
		_, err = l.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// kubelets have bound pods run and deleted ones end.
func (l *lab) kubelets(ctx context.Context) {
	for ctx.Err() == nil {
		// A failure is a lost watch or a pod that is gone: the next list shows what is.
		_ = l.kubeletsWatch(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *lab) kubeletsWatch(ctx context.Context) error {
	pods := l.kube.CoreV1().Pods("")
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := l.serve(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if pod, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
			if err := l.serve(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lab) serve(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" || pod.Labels[benchLabel] != "" {
		return nil
	}
	pods := l.kube.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
	if pod.Status.Phase != corev1.PodPending {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// end stops everything. Logs are shown if something failed.
func (l *lab) end(failed bool) {
	if l.muster != "" {
		_, _, _ = l.run(filepath.Join(l.bin, "muster"), "down", "--dir", l.muster, "--jobs") // its log is below
	}
	if l.stop != nil {
		l.stop()
	}
	l.done.Wait()
	for i := len(l.procs) - 1; i >= 0; i-- {
		l.procs[i].kill()
	}
	if failed && l.dir != "" {
		logs, _ := filepath.Glob(filepath.Join(l.dir, "*.log"))
		for _, log := range append(logs, filepath.Join(l.muster, "run", "musterd.log")) {
			text, _ := os.ReadFile(log)
			fmt.Printf("== %s\n%s\n", log, text[max(0, len(text)-3000):])
		}
	}
	if l.dir != "" {
		_ = os.RemoveAll(l.dir) // a folder in the system's temporary one
	}
}

// until asks again until there is no error. The bound is no verdict on speed: it
// only ends a test that would never end.
func until(ask func() error) error {
	var err error
	for range 1200 {
		if err = ask(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// run runs a program to its end.
func (l *lab) run(name string, args ...string) (stdout, stderr string, err error) {
	return l.feed(nil, name, args...)
}

func (l *lab) feed(in []byte, name string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(l.muster, "run", "muster.sock"), "KUBECONFIG="+l.kubectls)
	cmd.Dir = l.dir
	var out, errs bytes.Buffer
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stdout, cmd.Stderr = io.Writer(&out), io.Writer(&errs)
	err = cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), errs.String(), err
}
