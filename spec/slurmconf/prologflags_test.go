package slurmconf

import (
	"strings"
	"testing"
)

// TestPrologFlags: each flag has its effect, or is reported by its name with the line.
func TestPrologFlags(t *testing.T) {
	for flag, want := range map[string]struct {
		severity Severity // of its only problem
		text     string   // in it; "" = the flag has its effect
	}{
		"Alloc":              {Note, "the prolog always runs"},
		"Contain":            {},
		"DeferBatch":         {},
		"ForceRequeueOnFail": {},
		"NoHold":             {Note, "NoHold"},
		"NoInterruptOnFail":  {Warning, "a prolog ends with its job"},
		"ReportAbortedJob":   {Warning, "requeued, held"},
		"RunInJob":           {},
		"Serial":             {},
		"X11":                {},
		"Contian":            {Error, "Contian"},
	} {
		file, problems := Read(conf(minimal+"PrologFlags="+flag+"\n"), "slurm.conf")
		if want.text == "" {
			agent := &file.Agent
			if len(problems) != 0 || agent.Serial != (flag == "Serial") ||
				file.ctl.ForceRequeue != (flag == "ForceRequeueOnFail") || file.ctl.DeferBatch != (flag == "DeferBatch") ||
				agent.Contain != (flag == "Contain" || flag == "RunInJob" || flag == "X11") || file.Config.ForwardX11 != (flag == "X11") || agent.PrologInJob != (flag == "RunInJob") {
				t.Errorf("%s: %v, %+v, %v", flag, problems, agent, file.ctl.ForceRequeue)
			}
			continue
		}
		if len(problems) != 1 {
			t.Errorf("%s: %v", flag, problems)
			continue
		}
		p := problems[0]
		if p.Severity != want.severity || p.Line != 5 || !strings.Contains(p.Text, want.text) ||
			!strings.Contains(p.Text, flag) || file.Agent.Serial || file.ctl.ForceRequeue {
			t.Errorf("%s: %v", flag, p)
		}
	}
	file, problems := Read(conf(minimal+"PrologFlags=Serial,forcerequeueonfail\n"), "slurm.conf")
	if len(problems) != 0 || !file.Agent.Serial || !file.ctl.ForceRequeue {
		t.Errorf("both: %v", problems)
	}
}
