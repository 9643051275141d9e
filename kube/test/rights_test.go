package test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// granted is everything that the chart's service account may do, by namespace and then by
// resource. What is allowed everywhere is under the empty namespace.
var granted = map[string]map[string]string{
	"": {
		"pods":                   "get list watch patch delete",
		"pods/binding":           "create",
		"pods/status":            "patch",
		"nodes":                  "list watch",
		"namespaces":             "list watch",
		"persistentvolumes":      "list watch",
		"persistentvolumeclaims": "list watch",
		"priorityclasses":        "list watch",
		"events":                 "create patch",
		"resourceclaims":         "list watch update",
		"resourceclaims/status":  "update",
		"deviceclasses":          "list watch",
		"genericnodes":           "list create patch delete",
		"genericnodes/status":    "patch",
		// Whoever is authenticated may ask what he may do.
		"selfsubjectreviews":       "create",
		"selfsubjectaccessreviews": "create",
		"selfsubjectrulesreviews":  "create",
	},
	system: {"leases": "create", "leases muster-kube": "get update"},
}

// TestRights asks the API server, as the service account under which muster-kube runs in
// all these tests, for each verb of each resource that there is.
func TestRights(t *testing.T) {
	l := need(t)
	config, err := clientcmd.BuildConfigFromFlags("", l.robot)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	robot, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := l.kube.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	may := func(namespace, group, resource, object, verb string) bool {
		t.Helper()
		asked++
		name, sub, _ := strings.Cut(resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: group,
					Resource: name, Subresource: sub, Name: object, Verb: verb},
			}}
		answer, err := robot.AuthorizationV1().SelfSubjectAccessReviews().
			Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Allowed
	}
	verbs := strings.Fields("get list watch create update patch delete deletecollection " +
		"bind escalate impersonate approve sign use attest")
	met := map[string]map[string]bool{"": {}, system: {}}
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group = "" // the core's, which has a version only
		}
		for _, resource := range list.APIResources {
			for _, verb := range verbs {
				// events.k8s.io and the core have a resource events each; the program uses that of the core.
				everywhere := group != "events.k8s.io" &&
					slices.Contains(strings.Fields(granted[""][resource.Name]), verb)
				inSystem := everywhere || slices.Contains(strings.Fields(granted[system][resource.Name]), verb)
				if got := may("", group, resource.Name, "", verb); got != everywhere {
					t.Errorf("%s %s of %q everywhere: %v, want %v", verb, resource.Name, group, got, everywhere)
				}
				if got := may(system, group, resource.Name, "", verb); got != inSystem {
					t.Errorf("%s %s of %q in %s: %v, want %v", verb, resource.Name, group, system, got, inSystem)
				}
			}
			met[""][resource.Name] = true
			met[system][resource.Name] = true
		}
	}
	for _, verb := range verbs {
		want := slices.Contains(strings.Fields(granted[system]["leases muster-kube"]), verb) ||
			slices.Contains(strings.Fields(granted[system]["leases"]), verb)
		if got := may(system, "coordination.k8s.io", "leases", release, verb); got != want {
			t.Errorf("%s the lease %s: %v, want %v", verb, release, got, want)
		}
	}
	for namespace, table := range granted {
		for resource := range maps.Keys(table) {
			if name, _, _ := strings.Cut(resource, " "); !met[namespace][name] {
				t.Errorf("the server has no resource %s", name)
			}
		}
	}
	t.Logf("%d reviews", asked)
}

// TestTokenOpensNothingElse: whoever finds muster-kube's token can neither read jobs nor
// cancel them nor make further tokens, nor act under a name by a header, although all tests
// of this folder work with it.
func TestTokenOpensNothingElse(t *testing.T) {
	l := need(t)
	token, err := os.ReadFile(filepath.Join(l.dir, "muster.token"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(l.muster, "state", "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	ask := func(method, path, as string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("https://127.0.0.1:%d%s", l.port+3, path), strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+string(token))
		if as != "" {
			req.Header.Set("X-SLURM-USER-NAME", as)
		}
		rep, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer rep.Body.Close()
		text, err := io.ReadAll(rep.Body)
		if err != nil {
			t.Fatal(err)
		}
		return rep.StatusCode, string(text)
	}
	const release = "/v1/Cluster/ReleaseHold"
	if code, text := ask(http.MethodPost, release, ""); code == http.StatusForbidden || code == http.StatusUnauthorized {
		t.Errorf("%s: %d %s", release, code, text)
	}
	for _, path := range []string{"/v1/Cluster/ListJobs", "/v1/Cluster/Cancel", "/v1/Cluster/CreateUserToken", "/v1/Cluster/ListHolds"} {
		if code, text := ask(http.MethodPost, path, ""); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, text := ask(http.MethodPost, release, connector); code != http.StatusUnauthorized {
		t.Errorf("under a name: %d %s", code, text)
	}
	if code, text := ask(http.MethodGet, "/slurm/v0.0.43/jobs", ""); code == http.StatusOK && !strings.Contains(text, "may not call") {
		t.Errorf("jobs of Slurm's API: %d %s", code, text)
	}
}
