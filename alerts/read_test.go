package alerts_test

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

type generatedRule struct {
	Record, Alert, Expr, For string
	KeepFiring               string `yaml:"keep_firing_for"`
	Labels, Annotations      map[string]string
}

type generatedGroup struct {
	Name, Interval string
	Rules          []generatedRule
}

func readRules(t *testing.T, data []byte) []generatedGroup {
	t.Helper()
	var file struct{ Groups []generatedGroup }
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Groups
}
