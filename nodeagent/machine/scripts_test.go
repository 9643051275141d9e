package machine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// TestNodeScripts: the programs of a pattern run from z to a, with nothing but
// their environment, until one fails or takes too long; what they leave behind
// holds nobody up.
func TestNodeScripts(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		return path
	}
	for _, name := range []string{"p-10", "p-20", "p-a"} {
		put(name, "echo $0 $SLURM_JOB_ID $HOME >>$OUT\n")
	}
	bad := put("bad", "echo one; echo the disk is full >&2; exit 3\n")
	slow := put("slow", "sleep 60\n")
	leaves := put("leaves", "sleep 3 &\nexit 0\n")
	out := filepath.Join(dir, "out")
	env := []string{"SLURM_JOB_ID=7", "OUT=" + out}
	for _, c := range []struct {
		conf slurmconf.Agent
		want string
	}{
		{slurmconf.Agent{Prolog: []string{filepath.Join(dir, "p-*")}}, ""},
		{slurmconf.Agent{Prolog: []string{bad, filepath.Join(dir, "p-*")}}, "Prolog error: " + bad + ": exit status 3: the disk is full"},
		{slurmconf.Agent{Prolog: []string{slow}, PrologTimeout: 100 * spec.Millisecond}, "Prolog error: " + slow + ": it was ended after 100ms"},
		{slurmconf.Agent{Prolog: []string{leaves}, Serial: true}, ""},
		{slurmconf.Agent{Prolog: []string{dir + "/none"}}, "Prolog error: " + dir + "/none does not exist"},
	} {
		got := ""
		if err := NewNodeScripts(&c.conf, "n1").Prolog(t.Context(), env, nil); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.conf.Prolog, got, c.want)
		}
	}
	data, err := os.ReadFile(out)
	if want := strings.ReplaceAll("D/p-a 7\nD/p-20 7\nD/p-10 7\n", "D", dir); err != nil || string(data) != want {
		t.Errorf("%v %q, want %q", err, data, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := NewNodeScripts(&slurmconf.Agent{Epilog: []string{slow}}, "n1").Epilog(ctx, env); err == nil || !strings.HasPrefix(err.Error(), "Epilog error: ") {
		t.Errorf("an epilog that was ended: %v", err)
	}
	named := put("named", "echo it is $SLURMD_NODENAME\nexit 1\n")
	for _, c := range []struct {
		check slurmconf.Check
		want  string
	}{
		{slurmconf.Check{Program: bad}, "Health check: " + bad + ": exit status 3: the disk is full"},
		{slurmconf.Check{Program: bad, Once: true}, ""},
		{slurmconf.Check{Program: named}, "Health check: " + named + ": exit status 1: it is n1"},
		{slurmconf.Check{Program: put("well", "exit 0\n")}, ""},
		{slurmconf.Check{}, ""},
	} {
		got := ""
		if err := NewNodeScripts(&slurmconf.Agent{Check: c.check}, "n1").Epilog(t.Context(), env); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("after a job with %+v: %q, want %q", c.check, got, c.want)
		}
	}
}
