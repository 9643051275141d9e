package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
)

// ownConfig are commands whose --config is another file than muster.yaml.
var ownConfig = map[string]string{"alerts": "alerts.yaml"}

// TestConfigVariable: whatever reads muster.yaml reads the one of MUSTER_CONFIG, so that a command
// that looks after a ledger, for example, is never about another cluster than squeue is.
func TestConfigVariable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "of-the-variable.yaml")
	t.Setenv(conffile.PathVariable, file)
	programs := map[string]func(args []string, out, errOut io.Writer) int{"musterd": command}
	for name, run := range verbs {
		programs[name] = run
	}
	with := 0
	for name, run := range programs {
		var out bytes.Buffer
		if code := run([]string{"--help"}, &out, &out); code != 0 {
			t.Errorf("%s --help ended with %d", name, code)
		}
		_, text, has := strings.Cut(out.String(), "\n      --config ")
		if !has || ownConfig[name] != "" {
			continue
		}
		with++
		text, _, _ = strings.Cut(text, "\n")
		if !strings.Contains(text, file) {
			t.Errorf("%s does not take --config from %s: %s", name, conffile.PathVariable, text)
		}
	}
	if with < 11 {
		t.Errorf("only %d commands have --config: has the form of the help texts changed?", with)
	}
	// What is read is the file of the help text.
	for _, args := range [][]string{
		{},
		{"ledger", "verify"},
		{"ledger", "rebuild"},
		{"audit", "verify"},
		{"backup", "--to", t.TempDir()},
		{"up"},
		{"down"},
	} {
		run := command
		rest := args
		if len(args) > 0 {
			run = verbs[args[0]]
			rest = args[1:]
		}
		var errOut bytes.Buffer
		code := run(rest, io.Discard, &errOut)
		if code != 1 || !strings.Contains(errOut.String(), file) {
			t.Errorf("%q: code %d, %s", args, code, errOut.String())
		}
	}
}
