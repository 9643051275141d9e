package opt

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sample(mixed bool) *Set {
	return &Set{Command: "cmd", Mixed: mixed, Options: []Option{
		{Long: "time", Short: "t", Arg: "<t>", Env: "CMD_TIME"}, {Long: "hold", Short: "H", Env: "CMD_HOLD"}, {Long: "nodes", Short: "N", Arg: "<n>"},
		{Long: "nodelist", Arg: "<l>"}, {Long: "jobs", Short: "j", Arg: "<l>", Maybe: true}, {Long: "verbose", Short: "v"},
		{Long: "bb", Arg: "<spec>", Refused: "Muster has no burst buffers", Env: "CMD_BB"},
	}}
}

func given(v *Values) map[string]string {
	out := map[string]string{}
	for k, x := range v.given {
		out[k] = x.Text
	}
	return out
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		line  string
		mixed bool
		want  map[string]string
		args  string
	}{
		{"-t 5 -H x -H", false, map[string]string{"time": "5", "hold": ""}, "x -H"},
		{"-t5 x -H y", true, map[string]string{"time": "5", "hold": ""}, "x y"},
		{"--tim=5 --ho", true, map[string]string{"time": "5", "hold": ""}, ""},
		{"--time 5", true, map[string]string{"time": "5"}, ""},
		{"--time --hold", true, map[string]string{"time": "--hold"}, ""},
		{"-Hvt5", true, map[string]string{"hold": "", "verbose": "", "time": "5"}, ""},
		{"-Ht 5 -- -H", true, map[string]string{"hold": "", "time": "5"}, "-H"},
		{"-j4 -j", true, map[string]string{"jobs": ""}, ""},
		{"-Hj4,5", true, map[string]string{"hold": "", "jobs": "4,5"}, ""},
		{"-j 4", true, map[string]string{"jobs": ""}, "4"},
		{"--jobs=7 --jobs", true, map[string]string{"jobs": ""}, ""},
		{"--nodes 1 --nodel a", true, map[string]string{"nodes": "1", "nodelist": "a"}, ""},
		{"-", false, map[string]string{}, "-"},
	} {
		v := New()
		args, err := sample(c.mixed).Parse(strings.Fields(c.line), v, FromCommand)
		if err != nil || !reflect.DeepEqual(given(v), c.want) || strings.Join(args, " ") != c.args {
			t.Errorf("%s: %v, %q, %v", c.line, given(v), args, err)
		}
	}
}

func TestErrors(t *testing.T) {
	for line, want := range map[string]string{
		"--bogus":      "cmd: unrecognized option '--bogus'",
		"--bogus=1":    "cmd: unrecognized option '--bogus'",
		"-z":           "cmd: invalid option -- 'z'",
		"-Hz":          "cmd: invalid option -- 'z'",
		"-t":           "cmd: option requires an argument -- 't'",
		"--time":       "cmd: option '--time' requires an argument",
		"--hold=yes":   "cmd: option '--hold' doesn't allow an argument",
		"--node 1":     "cmd: option '--node' is ambiguous; possibilities: '--nodes' '--nodelist'",
		"--bb=a":       "--bb is not supported in this release: Muster has no burst buffers",
		"--time 1 -Hx": "cmd: invalid option -- 'x'",
	} {
		_, err := sample(true).Parse(strings.Fields(line), New(), FromCommand)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
		var usage *UsageError
		var refused *RefusedError
		if !errors.As(err, &usage) && !errors.As(err, &refused) {
			t.Errorf("%s: %T", line, err)
		}
	}
}

func TestPrecedence(t *testing.T) {
	s, v := sample(false), New()
	must := func(_ []string, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"CMD_TIME": "2", "CMD_HOLD": "0"}
	lookup := func(n string) (string, bool) { x, ok := env[n]; return x, ok }
	off := func(_, text string) bool { return text == "0" }
	must(s.Parse([]string{"-t1", "-N1", "-v", "-v"}, v, FromScript))
	if err := s.FromEnviron(lookup, off, v); err != nil {
		t.Fatal(err)
	}
	if x, _ := v.Get("time"); x.Text != "2" || x.From != FromEnv || v.On("hold") {
		t.Errorf("environment over script: %+v", x)
	}
	if x, _ := v.Get("verbose"); x.Count != 2 {
		t.Errorf("counted %d", x.Count)
	}
	must(s.Parse([]string{"-t3"}, v, FromCommand))
	if v.Text("time") != "3" || v.Text("nodes") != "1" {
		t.Errorf("command line over all: %v", given(v))
	}
	env["CMD_BB"] = "x"
	var refused *RefusedError
	if err := s.FromEnviron(lookup, off, v); !errors.As(err, &refused) || refused.By != "CMD_BB" {
		t.Errorf("refused variable: %v", err)
	}
}

// Whatever is typed, parsing ends in arguments or in one of the two errors.
func TestAnyLine(t *testing.T) {
	word := rapid.OneOf(rapid.SampledFrom([]string{"-t", "--time", "-j", "--jobs=3", "-Hv", "--", "x", "-", "--nodes=", "--no", "-tj", "-jt"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOf(word).Draw(t, "args")
		rest, err := sample(rapid.Bool().Draw(t, "mixed")).Parse(args, New(), FromCommand)
		var usage *UsageError
		var refused *RefusedError
		if err != nil && !errors.As(err, &usage) && !errors.As(err, &refused) {
			t.Fatalf("%q: %v", args, err)
		}
		for _, r := range rest {
			found := false
			for _, a := range args {
				found = found || a == r
			}
			if !found {
				t.Fatalf("%q is not one of %q", r, args)
			}
		}
	})
}
