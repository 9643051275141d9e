package alerts

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// FuzzSettings: a settings file is refused with problems of one line each, or what is made of it
// can be written and read again. Only what the file can change is rendered: all rules take a
// tenth of a second, and with the counters of fuzzing several.
func FuzzSettings(f *testing.F) {
	example, err := os.ReadFile("example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	if _, err := Parse("example.yaml", example, "/etc"); err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add("slack: {webhook_url_file: s/hook, channel: '#a'}\n" +
		"thresholds: {MusterAgentDown: {for: 9m, severity: off}}\n")
	f.Add("thresholds: {MusterHot: {}}\n")
	rules := map[string]Rule{}
	for _, rule := range All() {
		rules[rule.Name] = rule
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := Parse("a.yaml", []byte(text), "/etc")
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if strings.TrimSpace(line) == "" || strings.ContainsRune(line, 0) {
					t.Fatalf("a problem without words, or with a NUL: %q", err)
				}
			}
			return
		}
		canBeRead(t, settings.alertmanagerConfig())
		for name := range settings.Thresholds {
			canBeRead(t, settings.rule(rules[name]))
		}
	})
}

// canBeRead writes a part of the files and reads it.
func canBeRead(t *testing.T, part any) {
	t.Helper()
	data, err := toYAML(part, "head")
	if err != nil {
		t.Fatalf("it was accepted, and then: %v", err)
	}
	var back yaml.Node
	if err := yaml.Unmarshal(data, &back); err != nil {
		t.Fatalf("it was accepted, and what was written is not YAML: %v\n%s", err, data)
	}
}
