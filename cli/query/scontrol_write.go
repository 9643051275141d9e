package query

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// writeFile is scontrol write: a job's script, or the configuration in force.
func writeFile(c *tool.Call, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for keyword:write (batch_script or config)")
	}
	what := pickWord([]string{"batch_script", "config"}, strings.ToLower(args[0]))
	switch {
	case what == "batch_script" && (len(args) == 2 || len(args) == 3):
		return writeScript(c, args[1], args[2:])
	case what == "config" && len(args) <= 2:
		return writeConfig(c, args[1:])
	case what == "":
		return tool.Fail(1, "invalid write argument: "+args[0]+" (batch_script or config)")
	}
	return tool.Fail(1, "write batch_script takes a job id and a file, write config a file")
}

// writeScript gets a script from accounting, which has it from the moment on when
// the job was submitted.
func writeScript(c *tool.Call, job string, to []string) error {
	if !tool.ValidJob(job) {
		return tool.Fail(1, "invalid job id: "+job)
	}
	req := &apiv1.AcctScriptQuery{Jobs: []string{job}}
	var rep apiv1.AcctScriptReply
	if err := fetch.UpToDate(c, tool.MethodAcctScripts, req, &rep, func(seq uint64) { req.MinSeq = seq }); err != nil {
		return err
	}
	list := rep.GetScripts()
	if len(list) == 0 || list[len(list)-1].GetMissing() {
		return tool.Fail(1, "job script retrieval failed: "+spec.CodeInvalidJobID.String())
	}
	file := "slurm-" + job + ".sh"
	if len(to) > 0 {
		file = to[0]
	}
	return writeTo(c, file, list[len(list)-1].GetData(), fmt.Sprintf("batch script for job %s written to %s\n", job, file))
}

// writeTo writes into a file that does not exist yet, or to the standard output.
func writeTo(c *tool.Call, file string, data []byte, done string) error {
	if file == "-" {
		return c.WriteOut(data)
	}
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return c.Errorf("%v", err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return c.Errorf("%v", err)
	}
	return c.WriteOut([]byte(done))
}

// writeConfig writes the configuration in force as a slurm.conf that means the same.
func writeConfig(c *tool.Call, to []string) error {
	var rep apiv1.GetConfigReply
	if err := c.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &rep); err != nil {
		r := tool.ExplainError(err)
		return tool.Fail(1, append(r.Preamble("scontrol"), "slurm_load_ctl_conf error: "+r.Text)...)
	}
	file := "slurm.conf." + c.Now().In(c.Loc).Format("20060102150405")
	if len(to) > 0 {
		file = to[0]
	}
	return writeTo(c, file, configText(&rep), "Slurm config saved to "+file+"\n")
}

// configText writes the entries as slurm.conf has them: a key on each line, and each
// record on one line, where the key that begins it comes again.
func configText(rep *apiv1.GetConfigReply) []byte {
	var b []byte
	open := false
	for _, e := range rep.GetEntries() {
		value := e.GetValue()
		if strings.ContainsAny(value, " \t#") && !strings.HasPrefix(value, `"`) {
			value = `"` + value + `"`
		}
		switch {
		case e.GetRecord() == "" || strings.EqualFold(e.GetKey(), e.GetRecord()):
			if open {
				b = append(b, '\n')
			}
			open = e.GetRecord() != ""
		default:
			b = append(b, ' ')
		}
		b = append(b, e.GetKey()+"="+value...)
		if !open {
			b = append(b, '\n')
		}
	}
	if open {
		b = append(b, '\n')
	}
	return b
}
