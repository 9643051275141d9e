package shepherd

import (
	"slices"
	"testing"
)

// What a TaskProlog says is done line by line, and what it does not say stays.
func TestObey(t *testing.T) {
	env := []string{"A=1", "B=2", "C=3"}
	for said, want := range map[string]struct {
		env     []string
		printed string
	}{
		"":                                     {env, ""},
		"export D=4\nexport A=x=y z\n":         {[]string{"B=2", "C=3", "D=4", "A=x=y z"}, ""},
		"unset B\nunset NONE\nexport E=":       {[]string{"A=1", "C=3", "E="}, ""},
		"  print  two  words\nprint\necho A=9": {env, " two  words\n\n"},
		"export\nexport =1\nexport A B=1\nprintx y\nEXPORT Q=1\n# export R=1": {env, ""},
		"export B=5\nunset B\nexport B=6":                                     {[]string{"A=1", "C=3", "B=6"}, ""},
	} {
		got, printed := obeyProlog([]byte(said), env)
		if !slices.Equal(got, want.env) || string(printed) != want.printed {
			t.Errorf("%q: %q, %q, want %q, %q", said, got, printed, want.env, want.printed)
		}
	}
	if !slices.Equal(env, []string{"A=1", "B=2", "C=3"}) {
		t.Error("the environment that was given has changed")
	}
}
