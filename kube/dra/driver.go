// Package dra is the node program of Muster's DRA driver: it publishes the GPUs of a
// node to Kubernetes under the UUIDs of the ledger, and gives a pod exactly the devices
// that the ledger has for it.
//
// The devices come from the agent of the node, and so does the ledger's word: for each
// claim, kubelet has this program prepare the devices of its allocation, and this
// program asks the agent, which asks the controller that leads. A claim that names a
// device that is not of its pod's hold is refused, whoever wrote the allocation. What
// was prepared is on disk before kubelet hears of it, so that a restart changes nothing
// for pods that run.
package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
	"github.com/musterhpc/muster/spec"
)

// Agent is the agent of this node.
type Agent interface {
	Devices(ctx context.Context) (podapi.Node, error)
	Holds(ctx context.Context) ([]podapi.Hold, error)
	SetPods(ctx context.Context, pods []podapi.Pod) error
}

// Config is what a driver needs.
type Config struct {
	Kube      kubernetes.Interface
	Agent     Agent
	Node      string // name of the Node in Kubernetes
	PluginDir string // this program's own folder, with its socket and what it remembers
	// Registry is the folder in which kubelet looks for plug-ins.
	Registry string
	CDIDir   string   // of the specs of claims
	CDIRead  []string // further folders with specs of the vendor
	// CDIVendor is the kind of the vendor's CDI devices, such as nvidia.com/gpu.
	CDIVendor string
	Log       *slog.Logger
	Now       func() time.Time
}

// How often the agent is asked for devices and informed about pods: an agent that was
// restarted knows no pods, and a device may be lost or partitioned at any time.
const (
	devicesEvery = 15 * time.Second
	podsEvery    = 10 * time.Second
)

// Driver implements kubeletplugin.DRAPlugin.
type Driver struct {
	cfg   Config
	specs *specs
	file  string // of the checkpoint
	fatal chan error

	mu     sync.Mutex
	node   *podapi.Node // nil: the agent has not been asked yet
	saved  *checkpoint
	change chan struct{} // has room for one mark: the pods are not as the agent knows them
	// published tells that the devices have been given to Kubernetes' API server at least once.
	published bool
	// trouble is why the devices are not what they should be; nil: all is well.
	trouble error
}

// ErrRefused is wrapped by what keeps a claim from ever being prepared as it is.
var ErrRefused = errors.New("refused")

// New reads what an earlier run has left.
func New(cfg Config) (*Driver, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	specs, err := newSpecs(cfg.CDIDir, cfg.CDIRead, cfg.CDIVendor)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg:    cfg,
		specs:  specs,
		file:   filepath.Join(cfg.PluginDir, "checkpoint.json"),
		fatal:  make(chan error, 1),
		change: make(chan struct{}, 1),
	}
	if d.saved, err = readCheckpoint(d.file); err != nil {
		return nil, err
	}
	if err := d.specs.sweep(d.saved.Claims); err != nil {
		return nil, err
	}
	// /var/run is empty after a reboot; pods that are to start again need their specs.
	for uid, p := range d.saved.Claims {
		if err := d.specs.write(uid, p.Devices); err != nil {
			return nil, fmt.Errorf("the CDI spec of claim %s: %w", p.Claim, err)
		}
	}
	d.mark()
	return d, nil
}

func (d *Driver) mark() {
	select {
	case d.change <- struct{}{}:
	default:
	}
}

// Ready tells whether pods can be given devices, or why not.
func (d *Driver) Ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trouble != nil {
		return d.trouble
	}
	if !d.published {
		return errors.New("the devices of the node are not known yet")
	}
	return nil
}

// Run serves kubelet until the context ends.
func (d *Driver) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(claims.Driver),
		kubeletplugin.KubeClient(d.cfg.Kube),
		kubeletplugin.NodeName(d.cfg.Node),
		kubeletplugin.PluginDataDirectoryPath(d.cfg.PluginDir),
		kubeletplugin.RegistrarDirectoryPath(d.cfg.Registry),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { d.tellPods(ctx) })
	return d.publish(ctx, helper)
}

// publish keeps the ResourceSlices as the devices are.
func (d *Driver) publish(ctx context.Context, helper *kubeletplugin.Helper) error {
	tick := time.NewTicker(devicesEvery)
	defer tick.Stop()
	var shown *podapi.Node
	for {
		node, err := d.look(ctx)
		if err == nil && (shown == nil || !reflect.DeepEqual(*shown, node)) {
			err = helper.PublishResources(ctx, resources(&node, claims.Pool(d.cfg.Node)))
			if err == nil {
				shown = &node
				d.cfg.Log.Info("devices published", "devices", len(node.Devices), "node", node.Name)
			}
		}
		d.note(shown != nil, err)
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.fatal:
			return err
		case <-tick.C:
		}
	}
}

// note remembers how publishing goes, and says when that changes.
func (d *Driver) note(published bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil && (d.trouble == nil || d.trouble.Error() != err.Error()):
		d.cfg.Log.Warn("the devices of the node cannot be told now", "error", err)
	case err == nil && d.trouble != nil:
		d.cfg.Log.Info("the devices of the node are told again")
	}
	d.published = published
	d.trouble = err
}

// look asks the agent for the devices.
func (d *Driver) look(ctx context.Context) (podapi.Node, error) {
	node, err := d.cfg.Agent.Devices(ctx)
	if err != nil {
		return node, err
	}
	d.mu.Lock()
	d.node = &node
	d.mu.Unlock()
	return node, nil
}

// tellPods keeps the agent informed of who has which device.
func (d *Driver) tellPods(ctx context.Context) {
	tick := time.NewTicker(podsEvery)
	defer tick.Stop()
	for {
		d.mu.Lock()
		pods := d.saved.pods()
		d.mu.Unlock()
		if err := d.cfg.Agent.SetPods(ctx, pods); err != nil && ctx.Err() == nil {
			d.cfg.Log.Warn("the metrics of GPUs do not know the pods now", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.change:
		}
	}
}

// HandleError implements kubeletplugin.DRAPlugin.
func (d *Driver) HandleError(_ context.Context, err error, what string) {
	var dropped *resourceslice.DroppedFieldsError
	switch {
	case errors.As(err, &dropped):
		d.cfg.Log.Warn("the API server keeps only a part of what the devices are; Kubernetes 1.36 and later keep all", "error", err)
	case errors.Is(err, kubeletplugin.ErrRecoverable):
		d.cfg.Log.Warn(what, "error", err)
	default:
		d.cfg.Log.Error(what, "error", err)
		select {
		case d.fatal <- fmt.Errorf("%s: %w", what, err):
		default:
		}
	}
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin. A device that does not answer is
// taken from the ResourceSlices, and the ledger drains it.
func (d *Driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) PrepareResourceClaims(
	ctx context.Context,
	list []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := make(map[types.UID]kubeletplugin.PrepareResult, len(list))
	ask := &question{driver: d}
	for _, claim := range list {
		devices, err := d.prepare(ctx, claim, ask)
		if err != nil {
			d.cfg.Log.Warn("claim not prepared", "claim", claim.Namespace+"/"+claim.Name, "error", err)
		}
		out[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return out, nil
}

// question asks the agent once for all claims of a call.
type question struct {
	driver *Driver
	asked  bool
	holds  []podapi.Hold
	err    error
}

func (q *question) hold(ctx context.Context, pod types.UID) (*podapi.Hold, error) {
	if !q.asked {
		q.holds, q.err = q.driver.cfg.Agent.Holds(ctx)
		q.asked = true
	}
	if q.err != nil {
		return nil, q.err
	}
	at := slices.IndexFunc(q.holds, func(h podapi.Hold) bool { return h.UID == string(pod) })
	if at < 0 {
		return nil, nil
	}
	return &q.holds[at], nil
}

// results are what an allocation says of this driver's devices.
func results(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim.Status.Allocation == nil {
		return nil
	}
	var out []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver == claims.Driver {
			out = append(out, r)
		}
	}
	return out
}

func (d *Driver) prepare(
	ctx context.Context,
	claim *resourceapi.ResourceClaim,
	ask *question,
) ([]kubeletplugin.Device, error) {
	want := results(claim)
	pod, err := onlyPod(claim)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	before := d.saved.Claims[claim.UID]
	d.mu.Unlock()
	if before != nil && before.same(want) {
		// Kubelet has lost the answer, or was restarted. What runs is not asked about again.
		if err := d.specs.write(claim.UID, before.Devices); err != nil {
			return nil, err
		}
		return d.answer(before), nil
	}
	node, err := d.devices(ctx, want)
	if err != nil {
		return nil, err
	}
	hold, err := ask.hold(ctx, pod.UID)
	if err != nil {
		return nil, fmt.Errorf("the ledger cannot be asked what pod %s/%s may have: %w", claim.Namespace, pod.Name, err)
	}
	made := &prepared{
		Claim:  types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name},
		Pod:    types.NamespacedName{Namespace: claim.Namespace, Name: pod.Name},
		PodUID: pod.UID,
		Since:  spec.Instant(d.cfg.Now().UnixNano()),
	}
	containers := d.containers(ctx, claim, pod)
	for _, r := range want {
		g, err := d.give(node, claim, hold, r)
		if err != nil {
			return nil, err
		}
		g.Containers = containers[resourceclaim.BaseRequestRef(r.Request)]
		made.Devices = append(made.Devices, g)
	}
	if err := d.specs.write(claim.UID, made.Devices); err != nil {
		return nil, fmt.Errorf("the CDI spec of the claim: %w", err)
	}
	if err := d.save(func(c *checkpoint) { c.Claims[claim.UID] = made }); err != nil {
		return nil, errors.Join(err, d.specs.remove(claim.UID))
	}
	d.cfg.Log.Info("claim prepared", "claim", made.Claim.String(), "pod", made.Pod.String(), "devices", made.uuids())
	d.mark()
	return d.answer(made), nil
}

// onlyPod is the pod that a claim is reserved for. The ledger has devices for a pod, not
// for several that share a claim.
func onlyPod(claim *resourceapi.ResourceClaim) (resourceapi.ResourceClaimConsumerReference, error) {
	who := claim.Status.ReservedFor
	if len(who) == 1 && who[0].APIGroup == "" && who[0].Resource == "pods" {
		return who[0], nil
	}
	return resourceapi.ResourceClaimConsumerReference{}, fmt.Errorf(
		"%w: claim %s/%s is reserved for %d consumers, and the ledger gives devices to one pod; "+
			"give each pod a claim of its own by resourceClaimTemplateName", ErrRefused, claim.Namespace, claim.Name, len(who))
}

// devices is the node with all devices of an allocation; it looks again if one is missing.
func (d *Driver) devices(ctx context.Context, want []resourceapi.DeviceRequestAllocationResult) (*podapi.Node, error) {
	d.mu.Lock()
	node := d.node
	d.mu.Unlock()
	has := func(r resourceapi.DeviceRequestAllocationResult) bool {
		_, _, ok := known(node, r.Device)
		return ok
	}
	if node == nil || !allOf(want, has) {
		fresh, err := d.look(ctx)
		if err != nil {
			return nil, err
		}
		node = &fresh
	}
	return node, nil
}

func allOf[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !is(x) })
}

// give checks one device of an allocation and says what its container gets.
func (d *Driver) give(
	node *podapi.Node,
	claim *resourceapi.ResourceClaim,
	hold *podapi.Hold,
	r resourceapi.DeviceRequestAllocationResult,
) (given, error) {
	name := claim.Namespace + "/" + claim.Name
	found, mig, ok := known(node, r.Device)
	switch {
	case r.Pool != claims.Pool(d.cfg.Node):
		return given{}, fmt.Errorf("%w: claim %s has device %s of pool %s, and this node is %s", ErrRefused, name, r.Device, r.Pool, d.cfg.Node)
	case !ok:
		return given{}, fmt.Errorf("%w: claim %s has device %s, which node %s does not have", ErrRefused, name, r.Device, d.cfg.Node)
	case found.Lost:
		return given{}, fmt.Errorf("claim %s has device %s, which does not answer", name, found.UUID)
	case hold == nil:
		return given{}, fmt.Errorf("%w: claim %s has device %s, and the ledger has nothing for its pod on node %s: "+
			"its namespace has no label musterhpc.github.io/colocate=true, and its schedulerName is not muster", ErrRefused, name, found.UUID, node.Name)
	case !slices.Contains(hold.GPUs, found.UUID):
		return given{}, fmt.Errorf("%w: claim %s has device %s, and the ledger gave pod %s/%s %s; delete the pod, so that its claim is allocated anew",
			ErrRefused, name, found.UUID, hold.Namespace, hold.Pod, listed(hold.GPUs))
	case found.Files != nil && mig && d.specs.vendorDevice(found.UUID) == "":
		return given{}, fmt.Errorf("claim %s has MIG instance %s, whose device files only the vendor's CDI spec names: "+
			"run nvidia-ctk cdi generate on node %s", name, found.UUID, d.cfg.Node)
	}
	d.mu.Lock()
	uid, other := d.saved.holder(r.Device)
	d.mu.Unlock()
	if other != nil && uid != claim.UID {
		return given{}, fmt.Errorf("claim %s has device %s, which claim %s of pod %s has not given back yet", name, found.UUID, other.Claim, other.Pod)
	}
	g := given{Request: r.Request, Device: r.Device, UUID: found.UUID, Env: envName(&found)}
	g.CDI = []string{cdiKind + "=" + cdiDevice(claim.UID, r.Device)}
	if vendor := d.specs.vendorDevice(found.UUID); vendor != "" {
		g.CDI = append(g.CDI, vendor)
	} else {
		g.Files = filesOf(&found)
	}
	return g, nil
}

func listed(uuids []string) string {
	if len(uuids) == 0 {
		return "no GPU"
	}
	return strings.Join(uuids, ", ")
}

// containers tells which containers of the pod use each request of a claim. It is for
// metrics only: where the pod cannot be read, they name none.
func (d *Driver) containers(
	ctx context.Context,
	claim *resourceapi.ResourceClaim,
	ref resourceapi.ResourceClaimConsumerReference,
) map[string][]string {
	pod, err := d.cfg.Kube.CoreV1().Pods(claim.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err == nil && pod.UID != ref.UID {
		err = errors.New("another pod has its name")
	}
	if err != nil {
		d.cfg.Log.Warn("the metrics will not name the container", "pod", claim.Namespace+"/"+ref.Name, "error", err)
		return nil
	}
	out := map[string][]string{}
	for _, entry := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &entry)
		if err != nil || name == nil || *name != claim.Name {
			continue
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, request := range requestsOf(&c, entry.Name, claim) {
				out[request] = append(out[request], c.Name)
			}
		}
	}
	return out
}

// requestsOf lists the requests of a claim that a container uses.
func requestsOf(c *corev1.Container, entry string, claim *resourceapi.ResourceClaim) []string {
	var out []string
	for _, use := range c.Resources.Claims {
		switch {
		case use.Name != entry:
		case use.Request != "":
			out = append(out, use.Request)
		default:
			for _, r := range claim.Spec.Devices.Requests {
				out = append(out, r.Name)
			}
		}
	}
	return out
}

// same tells whether an allocation still has the devices that were prepared.
func (p *prepared) same(want []resourceapi.DeviceRequestAllocationResult) bool {
	if len(want) != len(p.Devices) {
		return false
	}
	for i, r := range want {
		if p.Devices[i].Device != r.Device || p.Devices[i].Request != r.Request {
			return false
		}
	}
	return true
}

func (p *prepared) uuids() string {
	var out []string
	for _, g := range p.Devices {
		out = append(out, g.UUID)
	}
	return listed(out)
}

// answer is what kubelet gets of a prepared claim.
func (d *Driver) answer(p *prepared) []kubeletplugin.Device {
	out := make([]kubeletplugin.Device, len(p.Devices))
	for i, g := range p.Devices {
		out[i] = kubeletplugin.Device{
			Requests:     []string{g.Request},
			PoolName:     claims.Pool(d.cfg.Node),
			DeviceName:   g.Device,
			CDIDeviceIDs: g.CDI,
		}
	}
	return out
}

// save changes the checkpoint and returns when that is on disk.
func (d *Driver) save(change func(*checkpoint)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := &checkpoint{Version: d.saved.Version, Claims: maps.Clone(d.saved.Claims)}
	change(next)
	if err := next.write(d.file); err != nil {
		return fmt.Errorf("what was prepared cannot be remembered: %w", err)
	}
	d.saved = next
	return nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin. The devices are free for
// Kubernetes afterwards; the ledger has them until it knows that the pod has ended.
func (d *Driver) UnprepareResourceClaims(
	_ context.Context,
	list []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	out := make(map[types.UID]error, len(list))
	for _, claim := range list {
		d.mu.Lock()
		was := d.saved.Claims[claim.UID]
		d.mu.Unlock()
		// The spec goes first: a crash in between leaves a claim that is unprepared again.
		err := d.specs.remove(claim.UID)
		if err == nil && was != nil {
			err = d.save(func(c *checkpoint) { delete(c.Claims, claim.UID) })
		}
		if err == nil && was != nil {
			d.cfg.Log.Info("claim given back", "claim", was.Claim.String(), "pod", was.Pod.String(), "devices", was.uuids())
			d.mark()
		}
		out[claim.UID] = err
	}
	return out, nil
}
