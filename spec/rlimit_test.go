package spec

import (
	"errors"
	"slices"
	"testing"
)

func TestParseLimitNames(t *testing.T) {
	for text, want := range map[string][]string{
		"ALL":                       LimitNames(),
		"none":                      nil,
		"CORE":                      {"CORE"},
		"RLIMIT_NOFILE, stack,CORE": {"NOFILE", "STACK", "CORE"},
		"CORE,CORE":                 {"CORE"},
	} {
		got, err := ParseLimitNames(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, name := range map[string]string{
		"FOO": "FOO", "NONE,CORE": "NONE", "CORE,ALL": "ALL", "": "", "CORE,": "", "RLIMIT_": "RLIMIT_",
	} {
		var bad *LimitNameError
		if _, err := ParseLimitNames(text); !errors.As(err, &bad) || bad.Name != name {
			t.Errorf("%q: %v, want the name %q refused", text, err, name)
		}
	}
}
