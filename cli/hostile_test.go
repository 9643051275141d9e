package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// hostile is a text that takes a screen over: it names the window, clears the screen,
// turns the direction of text around, and forges a line.
const hostile = "x\x1b]0;pwned\a\x1b[2J\u202e\u009b31m\r\nFORGED line\x7f"

// spoil puts the hostile text behind all that users choose freely.
func spoil(m protoreflect.Message) {
	free := []string{
		"comment", "admin_comment", "system_comment", "extra", "work_dir", "stdout", "stderr", "stdin",
		"reason", "description", "organization", "degraded", "command", "program", "mail_user", "issued_by",
		"JobSpec.name", "AcctRow.name", "JobInfo.comment", "wckey",
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		full := string(m.Descriptor().Name()) + "." + string(field.Name())
		switch {
		case field.IsMap():
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				spoil(value.List().Get(i).Message())
			}
		case field.Message() != nil && !field.IsList():
			spoil(value.Message())
		case field.Kind() == protoreflect.StringKind && !field.IsList() &&
			(slices.Contains(free, string(field.Name())) || slices.Contains(free, full)):
			m.Set(field, protoreflect.ValueOfString(value.String()+hostile))
		}
		return true
	})
}

// spoiled has every answer of the controller carry hostile text.
func (w *world) spoiled() {
	w.spoil = func(m proto.Message) proto.Message {
		out := proto.Clone(m)
		spoil(out.ProtoReflect())
		return out
	}
}

// acts finds what acts on a terminal or forges a line.
func acts(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		bad := strings.IndexFunc(line, func(r rune) bool {
			return r != '\t' && (unicode.IsControl(r) || r == '\u202e' || r == '\uFFFD')
		})
		if bad >= 0 || strings.HasPrefix(line, "FORGED") {
			return line
		}
	}
	return ""
}

// TestNoListingActsOnATerminal: whatever users call their jobs and write into comments,
// reasons and paths, no command prints it raw, on a terminal or into a pipe, and documents
// have it exactly.
func TestNoListingActsOnATerminal(t *testing.T) {
	lines := []string{
		"squeue -l", "squeue -O ALL", "squeue -o '%all'", "squeue -o '%j|%k|%Z|%o'", "squeue -s", "squeue --start",
		"sinfo -R", "sinfo -R -l", "sinfo -N -l", "sinfo -o '%all'", "sinfo -O ALL", "sinfo -s",
		"scontrol show job", "scontrol -o show job", "scontrol -d show job 4", "scontrol show node", "scontrol -o show node",
		"scontrol show partition", "scontrol show reservation", "scontrol show step", "scontrol show config", "scontrol show hostnames n1",
		"scontrol listjobs", "scontrol show assoc_mgr", "scontrol show licenses", "scontrol show topology",
		"sacct -l", "sacct -o ALL", "sacct -P -o ALL", "sacct -p -o JobName,Comment,WorkDir", "sacct -n -X -P --delimiter=; -o JobName",
		"sacctmgr show account", "sacctmgr -P show account format=all", "sacctmgr show qos", "sacctmgr show assoc", "sacctmgr -p show user",
		"sacctmgr show transactions", "sacctmgr dump muster",
		"sprio -l", "sprio -o '%all'", "sshare -l", "sshare -P -l", "sstat -p 4", "sdiag -a", "sreport -P user topusage",
		"scrontab -l", "strigger --get", "qstat -f", "muster events -j 4", "muster hosts", "muster tokens", "muster runs", "muster pods",
		"muster report user alice", "muster why 36 --history", "muster audit --all",
	}
	for _, line := range usual() {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	dir := t.TempDir()
	shown := 0
	for _, world := range []string{"running", "drained", "explained", "accounting"} {
		for _, tty := range []bool{false, true} {
			w := newWorld(t)
			worlds()[world](w)
			w.spoiled()
			w.tty = tty
			for _, line := range lines {
				switch strings.Fields(line)[0] {
				case "sbatch", "srun", "salloc", "sgather", "sattach", "sbcast", "qsub":
					continue // are about running programs, whose output is theirs
				}
				line = strings.ReplaceAll(line, "DIR", dir)
				got := w.shell(line)
				if strings.Contains(got.out+got.errOut, "pwned") {
					shown++
				}
				if bad := acts(got.out); bad != "" {
					t.Errorf("world %s, terminal %v, %s prints %q", world, tty, line, bad)
				}
				if bad := acts(got.errOut); bad != "" {
					t.Errorf("world %s, terminal %v, %s says %q", world, tty, line, bad)
				}
			}
		}
	}
	if shown < 30 {
		t.Errorf("the hostile text was in %d outputs: the test looks at too few", shown)
	}
	for line, world := range map[string]string{
		"squeue --json": "running", "scontrol show job --json": "running", "muster tokens --json": "running",
		"sinfo --json": "drained", "scontrol show node --json": "drained", "sacct --json": "accounting",
	} {
		for _, tty := range []bool{false, true} {
			w := newWorld(t)
			worlds()[world](w)
			w.spoiled()
			w.tty = tty
			got := w.shell(line)
			var doc any
			if err := json.Unmarshal([]byte(got.out), &doc); err != nil || !strings.Contains(got.out, `\u001b]0;pwned`) {
				t.Errorf("%s on a terminal %v: %v, or without the exact text: %.300q", line, tty, err, got.out)
			}
		}
	}
}
