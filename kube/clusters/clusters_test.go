package clusters

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/kube/nodesets"
)

const slurmConf = `ClusterName=other
SlurmctldHost=head(10.0.0.1)
SelectType=select/cons_tres
SlurmdParameters=config_overrides
NodeName=hpc-worker-cpu-[0-3] CPUs=4 RealMemory=4000 State=CLOUD
NodeName=n[0-1] CPUs=4 RealMemory=4000
PartitionName=main Nodes=ALL Default=YES
`

func cluster(change func(*Spec)) *MusterCluster {
	c := &MusterCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "hpc", Namespace: "lab", UID: "1"},
		Spec:       Spec{Image: "muster:1", NodeSets: []NodeSet{{Name: "cpu", Nodes: "hpc-worker-cpu-*"}}},
	}
	if change != nil {
		change(&c.Spec)
	}
	return c
}

// TestConfigure: the operator's own lines replace those of the site, which are named, and
// stars stand for nodes of slurm.conf.
func TestConfigure(t *testing.T) {
	c := cluster(func(s *Spec) {
		s.Controllers.Replicas = 3
		s.Config.Muster = "controller:\n  election_timeout: 2s\n"
		s.Accounting.DSNSecret = &SecretKey{Name: "db", Key: "dsn"}
	})
	cfg, err := Configure(c, map[string]string{"slurm.conf": slurmConf, "cgroup.conf": "ConstrainCores=yes\n"})
	if err != nil {
		t.Fatal(err)
	}
	conf := cfg.Files["slurm.conf"]
	if !strings.HasPrefix(conf, "ClusterName=hpc\nSlurmctldHost=hpc-controller-0(hpc-controller-0.hpc-controllers.lab.svc)\n") ||
		strings.Count(conf, "\nSlurmctldHost=") != 3 || strings.Contains(conf, "head") || strings.Contains(conf, "other") {
		t.Error(conf)
	}
	if !strings.Contains(cfg.Notes[0], "ClusterName=other, SlurmctldHost=head(10.0.0.1)") {
		t.Error(cfg.Notes)
	}
	if cfg.Nodes["cpu"] != "hpc-worker-cpu-[0-3]" || !strings.Contains(cfg.Files["muster.yaml"], "dsn_file: /run/muster-dsn/dsn\ncontroller:\n") {
		t.Error(cfg.Nodes, cfg.Files["muster.yaml"])
	}
	again, err := Configure(c, map[string]string{"slurm.conf": slurmConf, "cgroup.conf": "ConstrainCores=no\n"})
	if err != nil || again.Hash() == cfg.Hash() {
		t.Error("another configuration has the same hash", err)
	}
}

// TestConfigureRefuses: what no controller could start with is refused before any is
// touched, with the file, the line and the name.
func TestConfigureRefuses(t *testing.T) {
	for want, x := range map[string]struct {
		change func(*Spec)
		files  map[string]string
	}{
		"no slurm.conf":       {files: map[string]string{}},
		"slurm.conf:":         {files: map[string]string{"slurm.conf": slurmConf + "NodeNam=x\nPartitionName=p Nodes=nobody\n"}},
		"muster.yaml:":        {change: func(s *Spec) { s.Config.Muster = "ledgers: {}\n" }},
		"node n7 of nodeSets": {change: func(s *Spec) { s.NodeSets = []NodeSet{{Name: "a", Nodes: "n[1,7]"}} }},
		"node n1 is in nodeSets a and b": {change: func(s *Spec) {
			s.NodeSets = []NodeSet{{Name: "a", Nodes: "n[0-1]"}, {Name: "b", Nodes: "n1"}}
		}},
		"gpu-* names no node": {change: func(s *Spec) { s.NodeSets = []NodeSet{{Name: "a", Nodes: "gpu-*"}} }},
	} {
		files := x.files
		if files == nil {
			files = map[string]string{"slurm.conf": slurmConf}
		}
		_, err := Configure(cluster(x.change), files)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func find(t *testing.T, list []Object, kind, name string, into any) {
	t.Helper()
	for _, o := range list {
		if o.Object.GetKind() == kind && o.Object.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object.Object, into, true); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no %s %s", kind, name)
}

// TestMake: what a cluster with every part consists of, and that the site's fields of pods
// are laid over without taking anything away.
func TestMake(t *testing.T) {
	c := cluster(func(s *Spec) {
		s.Controllers.Replicas = 3
		s.Login = &Login{HostKeysSecret: "keys", Replicas: 2}
		s.TokenSecret = &TokenSecret{Name: "tokens", Key: "hpc", User: "root"}
		s.NodeSets[0].Pod = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": "gpu"},
			HostNetwork:  true,
			Containers: []corev1.Container{
				{Name: "agent", VolumeMounts: []corev1.VolumeMount{{Name: "home", MountPath: "/home"}}},
				{Name: "sssd", Image: "sssd"},
			},
			Volumes: []corev1.Volume{{Name: "home", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/home"}}}},
		}}
		s.Controllers.Pod = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{PriorityClassName: "high"}}
	})
	cfg, err := Configure(c, map[string]string{"slurm.conf": slurmConf})
	if err != nil {
		t.Fatal(err)
	}
	list, err := Make(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list {
		names = append(names, o.Object.GetKind()+" "+o.Object.GetName())
		if o.Object.GetNamespace() != "lab" || o.Object.GetLabels()[ClusterLabel] != "hpc" || o.Object.Object["status"] != nil {
			t.Errorf("%+v", o.Object)
		}
	}
	want := "ConfigMap hpc-config, ServiceAccount hpc-controller, RoleBinding hpc-controller, Service hpc-controllers, Service hpc-slurmrestd, " +
		"Service hpc-login, NetworkPolicy hpc-controller, PodDisruptionBudget hpc-controller, StatefulSet hpc-controller, StatefulSet hpc-login, NodeSet cpu"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	var controllers, logins appsv1.StatefulSet
	find(t, list, "StatefulSet", "hpc-controller", &controllers)
	find(t, list, "StatefulSet", "hpc-login", &logins)
	pod := controllers.Spec.Template.Spec
	if *controllers.Spec.Replicas != 3 || pod.PriorityClassName != "high" || len(pod.Containers) != 2 || pod.Containers[0].Command[0] != "musterd" ||
		controllers.Spec.Template.Annotations[ConfigAnnotation] != cfg.Hash() || pod.Affinity.PodAntiAffinity == nil {
		t.Errorf("%+v", pod)
	}
	if args := strings.Join(pod.Containers[1].Args, " "); !strings.Contains(args, "--lease hpc-controller") || !strings.Contains(args, "--token-secret tokens") {
		t.Error(args)
	}
	if agent := logins.Spec.Template.Spec.Containers[1]; *logins.Spec.Replicas != 2 || !slices.Contains(agent.Args, strings.Join(addresses(c), ",")) {
		t.Errorf("%+v", agent)
	}
	var set nodesets.NodeSet
	find(t, list, "NodeSet", "cpu", &set)
	node := set.Spec.Template.Spec
	if set.Spec.Nodes != "hpc-worker-cpu-[0-3]" || len(set.Spec.Controllers) != 3 || !node.HostNetwork || len(node.Containers) != 2 ||
		node.Containers[0].Image != "muster:1" || !*node.Containers[0].SecurityContext.Privileged || node.Containers[0].VolumeMounts[0].MountPath != "/home" {
		t.Errorf("%+v", set.Spec)
	}
	was, _ := json.Marshal(list)
	again, err := Make(c, cfg)
	if same, _ := json.Marshal(again); err != nil || string(was) != string(same) {
		t.Error("the same cluster is made in another way")
	}
}

// TestMakeWitness: two controllers have a witness, which votes with them, has the site's own
// section about controllers beside it, and answers no commands.
func TestMakeWitness(t *testing.T) {
	c := cluster(func(s *Spec) {
		s.Controllers.Replicas = 2
		s.Controllers.Witness = &Witness{Pod: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{PriorityClassName: "high"}}}
		s.Config.Muster = "log:\n  level: info\ncontroller:\n  election_timeout: 2s\n"
	})
	cfg, err := Configure(c, map[string]string{"slurm.conf": slurmConf})
	if err != nil {
		t.Fatal(err)
	}
	const witness = "controller:\n  witness: hpc-witness-0(hpc-witness-0.hpc-witness.lab.svc)\n"
	if text := cfg.Files["muster.yaml"]; !strings.HasSuffix(text, "log:\n  level: info\n"+witness+"  election_timeout: 2s\n") {
		t.Error(text)
	}
	if conf := cfg.Files["slurm.conf"]; strings.Count(conf, "SlurmctldHost=") != 2 || strings.Contains(conf, "witness") {
		t.Error(conf)
	}
	c.Spec.Config.Muster = ""
	if text := musterYAML(c); !strings.HasSuffix(text, "slurm_conf: /etc/muster/slurm.conf\n"+witness) {
		t.Error(text)
	}
	list, err := Make(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	find(t, list, "StatefulSet", "hpc-witness", &set)
	pod := set.Spec.Template.Spec
	if *set.Spec.Replicas != 1 || set.Spec.ServiceName != "hpc-witness" || pod.PriorityClassName != "high" || len(pod.Containers) != 1 ||
		strings.Join(pod.Containers[0].Args, " ") != "--config /etc/muster/muster.yaml --role witness" ||
		!slices.Contains(pod.InitContainers[0].Args, "$(POD_NAME).hpc-witness.lab.svc") ||
		set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String() != "4Gi" {
		t.Errorf("%+v", set.Spec)
	}
	var budget policyv1.PodDisruptionBudget
	find(t, list, "PodDisruptionBudget", "hpc-controller", &budget)
	voters, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil || !voters.Matches(labels.Set(set.Spec.Template.Labels)) || budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%v, %v: the witness is no part of what may be away", budget.Spec, err)
	}
	var service corev1.Service
	find(t, list, "Service", "hpc-slurmrestd", &service)
	if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(set.Spec.Template.Labels)) {
		t.Error("commands are sent to the witness")
	}
}

// TestTranslate: the fields of ACK's chart mean the same, and those that have no effect are
// named with the reason.
func TestTranslate(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "slurmcluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s := &SlurmCluster{}
	if err := yaml.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	c, notes, err := Translate(s, "muster:1")
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "demo" || c.Spec.Config.ConfigMap != "slurm-config" || c.Spec.Image != "muster:1" || *c.Spec.TokenSecret != (TokenSecret{ackTokenSecret, "demo", "root"}) {
		t.Errorf("%+v", c.Spec)
	}
	cpu := c.Spec.NodeSets[0]
	if cpu.Name != "demo-worker-cpu" || cpu.Nodes != "demo-worker-cpu-*" || cpu.Pod.Spec.NodeSelector["pool"] != "cpu" ||
		!*cpu.Pod.Spec.SetHostnameAsFQDN || cpu.Pod.Spec.Containers[0].Resources.Limits.Cpu().String() != "4" {
		t.Errorf("%+v", cpu)
	}
	if c.Spec.Controllers.Pod.Spec.Tolerations[0].Key != "head" {
		t.Errorf("%+v", c.Spec.Controllers.Pod)
	}
	want := []string{"spec.deleteSelfBeforeSuspend", "spec.mungeConfigs", "spec.slurmdbdConfigs", "spec.slurmrestdConfigs",
		"spec.slurmConfigs.slurmConfigPathInPod", "spec.headNodeConfig.image", "spec.workerNodesConfig.workerGroups[0].gpuDriver",
		"spec.workerNodesConfig.workerGroups[0].image", "spec.workerNodesConfig.workerGroups[0].replicas"}
	for i, note := range notes {
		if i >= len(want) || !strings.HasPrefix(note, want[i]+" is ignored") {
			t.Errorf("%q", note)
		}
	}
	if len(notes) != len(want) || !strings.Contains(notes[1], "certificates of their own") {
		t.Errorf("%q", notes)
	}
	s.Spec["slurmConfigs"] = map[string]any{"createConfigsByConfigMap": false}
	if _, _, err := Translate(s, "muster:1"); err == nil || !strings.Contains(err.Error(), "createConfigsByConfigMap") {
		t.Error(err)
	}
	s.Spec["slurmConfigs"] = map[string]any{"createConfigsByConfigMap": true, "configMapName": "slurm-config"}
	s.Spec["headNodeConfig"] = map[string]any{"tolerations": "all"}
	if _, _, err := Translate(s, "muster:1"); err == nil || !strings.Contains(err.Error(), "spec.headNodeConfig") {
		t.Error(err)
	}
}

// TestCertificate: a certificate is made once, musterd can renew it, and it is never put
// over files of another authority.
func TestCertificate(t *testing.T) {
	now := time.Now()
	secret := func() string {
		t.Helper()
		dir := t.TempDir()
		ca, err := pki.NewCA("hpc", now)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := ca.Pair()
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{pki.CACertFile: pair.Cert, pki.CAKeyFile: pair.Key} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	c := Certificate{Authority: secret(), TLS: filepath.Join(t.TempDir(), "tls"), Name: "hpc-controller-0", Hosts: []string{"hpc-controllers"}}
	// A start that ends before the certificate is written has written the authority's key.
	if err := os.MkdirAll(filepath.Join(c.TLS, pki.CACertFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if made, err := c.Prepare(now); err == nil {
		t.Error("it ended well although nothing can be written:", made)
	}
	if _, err := os.Stat(filepath.Join(c.TLS, pki.CAKeyFile)); err != nil {
		t.Error("the next start would find a certificate without the authority's key:", err)
	}
	if err := os.Remove(filepath.Join(c.TLS, pki.CACertFile)); err != nil {
		t.Fatal(err)
	}
	for i, made := range []bool{true, false} {
		if is, err := c.Prepare(now); err != nil || is != made {
			t.Errorf("start %d: %v %v", i, is, err)
		}
	}
	later := now.Add(70 * 24 * time.Hour)
	if renewed, err := pki.Dir(c.TLS).RenewController(later); err != nil || !renewed {
		t.Errorf("musterd cannot renew it: %v %v", renewed, err)
	}
	if made, err := c.Prepare(later); err != nil || made {
		t.Errorf("a renewed one is made again: %v %v", made, err)
	}
	host, err := pki.Dir(c.TLS).Host()
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.FromCertificate(host.Leaf, "hpc")
	if err != nil || id.Kind != identity.Controller || id.Node != c.Name || !slices.Contains(host.Leaf.DNSNames, "hpc-controllers") {
		t.Errorf("%+v %v %v", id, host.Leaf.DNSNames, err)
	}
	if _, err := pki.Dir(c.TLS).CA(); err != nil {
		t.Error("the controller cannot make certificates:", err)
	}
	before, err := os.ReadFile(filepath.Join(c.TLS, pki.HostFile))
	if err != nil {
		t.Fatal(err)
	}
	c.Authority = secret()
	if made, err := c.Prepare(now.Add(71 * 24 * time.Hour)); err == nil {
		t.Error("a certificate of another authority was put over the old one:", made)
	}
	if after, err := os.ReadFile(filepath.Join(c.TLS, pki.HostFile)); err != nil || string(after) != string(before) {
		t.Error("the old certificate is gone", err)
	}
}

// TestFieldsReachObjects: each field of the spec that is not a number is found in an object
// that is made.
func TestFieldsReachObjects(t *testing.T) {
	class := "class-of-controllers"
	loginClass := "class-of-logins"
	c := cluster(func(s *Spec) {
		s.ClusterName = "named"
		s.ImagePullPolicy = corev1.PullAlways
		s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull-secret"}}
		s.Controllers.Storage = Storage{Size: "11Gi", ClassName: &class}
		s.Accounting.DSNSecret = &SecretKey{Name: "dsn-secret", Key: "dsn-key"}
		s.Config.Muster = "controller:\n  election_timeout: 7s\n"
		s.Login = &Login{
			HostKeysSecret: "host-keys-secret",
			Image:          "login-image",
			ServiceType:    corev1.ServiceTypeLoadBalancer,
			Storage:        Storage{Size: "12Gi", ClassName: &loginClass},
			Pod:            &corev1.PodTemplateSpec{Spec: corev1.PodSpec{PriorityClassName: "login-priority"}},
		}
		s.Web = true
		s.NodeSets[0].Image = "node-image"
		s.TokenSecret = &TokenSecret{Name: "token-secret", Key: "token-key", User: "token-user"}
	})
	cfg, err := Configure(c, map[string]string{"slurm.conf": slurmConf})
	if err != nil {
		t.Fatal(err)
	}
	list, err := Make(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for _, o := range list {
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		made[o.Object.GetKind()+" "+o.Object.GetName()] = string(text)
	}
	for object, wants := range map[string][]string{
		"ConfigMap hpc-config": {"ClusterName=named", "election_timeout: 7s", "0.0.0.0:8443", "/run/muster-dsn/dsn-key"},
		"StatefulSet hpc-controller": {"Always", "pull-secret", "11Gi", class, "dsn-secret", `"mountPath":"/run/muster-dsn"`,
			"token-secret", "token-key", "token-user"},
		"StatefulSet hpc-login": {"Always", "pull-secret", "12Gi", loginClass, "login-image", "host-keys-secret", "login-priority"},
		"Service hpc-login":     {"LoadBalancer"},
		"Service hpc-web":       {"8443"},
		"NodeSet cpu":           {"Always", "pull-secret", "node-image"},
	} {
		for _, want := range wants {
			if !strings.Contains(made[object], want) {
				t.Errorf("%s has no %s: %s", object, want, made[object])
			}
		}
	}
}
