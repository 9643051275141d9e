package chart

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// readCRD reads a resource's definition as the API server does.
func readCRD(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v1 := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(v1)
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, out, nil); err != nil {
		t.Fatal(err)
	}
	out.Status.StoredVersions = []string{v1.Spec.Versions[0].Name} // as the API server sets it
	return out
}

// TestCRDs: the definitions of all charts are ones that an API server takes, with rules
// whose cost is bounded.
func TestCRDs(t *testing.T) {
	files, err := filepath.Glob("../../deploy/helm/*/crds/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		if wrong := crdvalidation.ValidateCustomResourceDefinition(t.Context(), readCRD(t, file)); len(wrong) > 0 {
			t.Errorf("%s: %v", file, wrong.ToAggregate())
		}
	}
}

// newValidator makes a function that says what the API server has against an object.
func newValidator(t *testing.T, file string) func(text string) string {
	t.Helper()
	crd := readCRD(t, file)
	schema := crd.Spec.Validation // of the only version
	if schema == nil {
		schema = crd.Spec.Versions[0].Schema
	}
	validator, _, err := validation.NewSchemaValidator(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return func(text string) string {
		t.Helper()
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		wrong := validation.ValidateCustomResource(nil, object, validator)
		byRule, _ := rules.Validate(t.Context(), nil, structural, object, nil, math.MaxInt)
		var out []string
		for _, e := range append(wrong, byRule...) {
			out = append(out, e.Error())
		}
		return strings.Join(out, "\n")
	}
}

// TestNodeSetRules: the API server's own validators take a good NodeSet and refuse the
// others with words that help.
func TestNodeSetRules(t *testing.T) {
	check := newValidator(t, nodesFolder+"/crds/nodesets.yaml")
	good := "apiVersion: musterhpc.github.io/v1alpha1\nkind: NodeSet\nmetadata: {name: x, namespace: hpc}\nspec:\n" +
		"  nodes: n[0-3]\n  controllers: ['ctl:6817']\n  template: {spec: {containers: [{name: agent, image: x}]}}\n"
	if wrong := check(good); wrong != "" {
		t.Errorf("a good NodeSet: %s", wrong)
	}
	for _, c := range []struct{ old, bad, want string }{
		{"name: agent", "name: other", "must be called agent"},
		{"[{name: agent, image: x}]", "[{name: agent}, {name: agent}]", "must be called agent"},
		{"'ctl:6817'", "'https://ctl:6817'", "HOST:PORT"},
		{"'ctl:6817'", "'ctl:6817', 'ctl:6817'", "named twice"},
		{"controllers: ['ctl:6817']", "controllers: []", "spec.controllers"},
		{"n[0-3]", "N1", "spec.nodes"},
		{"spec: {containers", "spec: {restartPolicy: Never, containers", "restartPolicy"},
		{"  template: {spec: {containers: [{name: agent, image: x}]}}\n", "", "template: Required value"},
	} {
		text := strings.Replace(good, c.old, c.bad, 1)
		if wrong := check(text); text == good || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: %q, want %q", c.bad, wrong, c.want)
		}
	}
}
