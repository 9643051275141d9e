package claims

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
)

// source is what an API server has, as informers know it.
type source struct {
	claims  map[string]*resourceapi.ResourceClaim
	classes map[string]*resourceapi.DeviceClass
}

func (s source) Claim(_, name string) (*resourceapi.ResourceClaim, error) {
	if c := s.claims[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceclaims"}, name)
}

func (s source) Class(name string) (*resourceapi.DeviceClass, error) {
	if c := s.classes[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "deviceclasses"}, name)
}

func class(name string, labels map[string]string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func claim(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "web", UID: "uid-" + "x"},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

func ask(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, Count: count}}
}

func pod(claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "web", UID: "u"}}
	for _, name := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
	return p
}

func world() source {
	s := source{claims: map[string]*resourceapi.ResourceClaim{}, classes: map[string]*resourceapi.DeviceClass{
		"any":  class("any", map[string]string{TypeLabel: ""}),
		"h100": class("h100", map[string]string{TypeLabel: "h100"}),
		"mig":  class("mig", map[string]string{TypeLabel: "1g.10gb"}),
		"nic":  class("nic", nil),
	}}
	all := ask("r", "any", 0)
	all.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	chosen := ask("r", "any", 1)
	chosen.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "true"}}}
	tied := claim("tied", ask("r", "any", 2))
	tied.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{}}
	for _, c := range []*resourceapi.ResourceClaim{
		claim("two", ask("r", "any", 2)), claim("one", ask("r", "h100", 1)), claim("part", ask("r", "mig", 1)),
		claim("nics", ask("r", "nic", 2)), claim("mixed", ask("r", "any", 1), ask("n", "nic", 1)),
		claim("all", all), claim("chosen", chosen), tied, claim("unknown", ask("r", "nothing", 1)),
		claim("either", resourceapi.DeviceRequest{Name: "r", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "h100", Count: 1}}}),
	} {
		s.claims[c.Name] = c
	}
	return s
}

// TestOf: counts and types are read, claims of others passed over, and what the ledger
// cannot give is refused by name.
func TestOf(t *testing.T) {
	s := world()
	template := pod()
	made := "template"
	template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: &made}}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		gpus int64
		typ  string
		err  error
		says string
	}{
		"none":               {pod(), 0, "", nil, ""},
		"two":                {pod("two"), 2, "", nil, ""},
		"a type":             {pod("one"), 1, "h100", nil, ""},
		"a part":             {pod("part"), 1, "1g.10gb", nil, ""},
		"beside others'":     {pod("two", "nics"), 2, "", nil, ""},
		"others'":            {pod("nics"), 0, "", nil, ""},
		"two types":          {pod("one", "part"), 0, "", ErrUnsupported, "several types"},
		"mixed":              {pod("mixed"), 0, "", ErrUnsupported, "two claims"},
		"all":                {pod("all"), 0, "", ErrUnsupported, "allocationMode All"},
		"chosen":             {pod("chosen"), 0, "", ErrUnsupported, "a selector"},
		"tied":               {pod("tied"), 0, "", ErrUnsupported, "constraints"},
		"either":             {pod("either"), 0, "", ErrUnsupported, "firstAvailable"},
		"no class":           {pod("unknown"), 0, "", ErrNotYet, "DeviceClass nothing"},
		"no claim":           {pod("missing"), 0, "", ErrNotYet, "missing"},
		"of a template":      {template, 0, "", ErrNotYet, "gpus"},
		"several and a type": {pod("two", "one"), 0, "", ErrUnsupported, "several types"},
	} {
		want, err := Of(c.pod, s)
		if want.GPUs != c.gpus || want.Type != c.typ || !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, want, err)
		}
	}
}

// TestGive: claims get the ledger's devices in their order, and doing it again after a
// crash anywhere changes nothing.
func TestGive(t *testing.T) {
	s := world()
	second := claim("second", ask("r", "any", 1))
	second.UID = "uid-second"
	kube := fake.NewClientset(s.claims["two"], second)
	s.claims["second"] = second
	p := pod("two", "second")
	give := func(uuids ...string) error {
		t.Helper()
		for _, name := range []string{"two", "second"} {
			c, err := kube.ResourceV1().ResourceClaims("web").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.claims[name] = c
		}
		want, err := Of(p, s)
		if err != nil {
			t.Fatal(err)
		}
		return Give(t.Context(), kube, p, &want, "n1", uuids)
	}
	uuids := []string{"GPU-aa", "GPU-bb", "GPU-cc"}
	devices := func(name string) string {
		c, err := kube.ResourceV1().ResourceClaims("web").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Status.Allocation == nil {
			return ""
		}
		if len(c.Status.ReservedFor) != 1 || c.Status.ReservedFor[0].UID != "u" || len(c.Finalizers) != 1 ||
			c.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchFields[0].Values[0] != "n1" {
			t.Errorf("%s: %+v", name, c)
		}
		var out []string
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != Driver || r.Pool != "n1" || r.Request != "r" {
				t.Errorf("%+v", r)
			}
			out = append(out, r.Device)
		}
		return strings.Join(out, " ")
	}
	if err := give(uuids[:2]...); err == nil || !strings.Contains(err.Error(), "more devices than the ledger gave") {
		t.Errorf("too few devices: %v", err)
	}
	// The first claim was written, then the program died: the rest follows.
	if one, two := devices("two"), devices("second"); one != "gpu-aa gpu-bb" || two != "" {
		t.Fatalf("%q, %q", one, two)
	}
	for range 2 {
		if err := give(uuids...); err != nil {
			t.Fatal(err)
		}
		if one, two := devices("two"), devices("second"); one != "gpu-aa gpu-bb" || two != "gpu-cc" {
			t.Errorf("%q, %q", one, two)
		}
	}
	if err := give("GPU-aa", "GPU-dd", "GPU-cc"); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "GPU-bb") {
		t.Errorf("other devices than the ledger's: %v", err)
	}
	// A claim that another pod uses is not taken from it.
	p = pod("two")
	p.UID = "another"
	want, err := Of(p, s)
	if err == nil {
		err = Give(t.Context(), kube, p, &want, "n1", uuids)
	}
	if !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "another pod") {
		t.Errorf("another pod's claim: %v", err)
	}
}
