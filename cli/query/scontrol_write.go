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
func writeFile(call *tool.Call, args []string) error {
	if len(args) == 0 {
		return tool.Fail(1, "too few arguments for keyword:write (batch_script or config)")
	}
	what := pickWord([]string{"batch_script", "config"}, strings.ToLower(args[0]))
	switch {
	case what == "batch_script" && (len(args) == 2 || len(args) == 3):
		return writeScript(call, args[1], args[2:])
	case what == "config" && len(args) <= 2:
		return writeConfig(call, args[1:])
	case what == "":
		return tool.Fail(1, "invalid write argument: "+args[0]+" (batch_script or config)")
	}
	return tool.Fail(1, "write batch_script takes a job id and a file, write config a file")
}

// writeScript gets a script from accounting, which has it from the moment on when
// the job was submitted.
func writeScript(call *tool.Call, job string, to []string) error {
	if !tool.ValidJob(job) {
		return tool.Fail(1, "invalid job id: "+job)
	}
	request := &apiv1.AcctScriptQuery{Jobs: []string{job}}
	var reply apiv1.AcctScriptReply
	if err := fetch.UpToDate(call, tool.MethodAcctScripts, request, &reply, func(seq uint64) {
		request.MinSeq = seq
	}); err != nil {
		return err
	}
	list := reply.GetScripts()
	if len(list) == 0 || list[len(list)-1].GetMissing() {
		return tool.Fail(1, "job script retrieval failed: "+spec.CodeInvalidJobID.String())
	}
	file := "slurm-" + job + ".sh"
	if len(to) > 0 {
		file = to[0]
	}
	return writeTo(
		call,
		file,
		list[len(list)-1].GetData(),
		fmt.Sprintf("batch script for job %s written to %s\n", job, file),
	)
}

// writeTo writes into a file that does not exist yet, or to the standard output.
func writeTo(call *tool.Call, file string, data []byte, done string) error {
	if file == "-" {
		return call.WriteOut(data)
	}
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(call.Dir, path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return call.Errorf("%v", err)
	}
	_, err = f.Write(data)
	closeErr := f.Close()
	if err == nil {
		err = closeErr
	}
	if err != nil {
		return call.Errorf("%v", err)
	}
	return call.WriteOut([]byte(done))
}

// writeConfig writes the configuration in force as a slurm.conf that means the same.
func writeConfig(call *tool.Call, to []string) error {
	var reply apiv1.GetConfigReply
	if err := call.RPC(tool.MethodGetConfig, &apiv1.GetConfigRequest{}, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(
			1, append(refusal.Preamble("scontrol"), "slurm_load_ctl_conf error: "+refusal.Text)...,
		)
	}
	file := "slurm.conf"
	if len(to) > 0 {
		file = to[0]
	}
	if file != "-" {
		file += "." + call.Now().In(call.Loc).Format("2006-01-02T15:04:05")
	}
	return writeTo(call, file, configText(&reply), "Slurm config saved to "+file+"\n")
}

// configText writes the entries as slurm.conf has them: a key on each line, and each
// record on one line, where the key that begins it comes again.
func configText(reply *apiv1.GetConfigReply) []byte {
	var buffer []byte
	open := false
	for _, entry := range reply.GetEntries() {
		value := entry.GetValue()
		if strings.ContainsAny(value, " \t#") && !strings.HasPrefix(value, `"`) {
			value = `"` + value + `"`
		}
		switch {
		case entry.GetRecord() == "" || strings.EqualFold(entry.GetKey(), entry.GetRecord()):
			if open {
				buffer = append(buffer, '\n')
			}
			open = entry.GetRecord() != ""
		default:
			buffer = append(buffer, ' ')
		}
		buffer = append(buffer, entry.GetKey()+"="+value...)
		if !open {
			buffer = append(buffer, '\n')
		}
	}
	if open {
		buffer = append(buffer, '\n')
	}
	return buffer
}
