package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// besideMuster is the path of a program that is installed beside muster.
func besideMuster(program string) (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), program), err
}

// become replaces this process by a program beside muster.
func become(call *tool.Call, program string, args ...string) error {
	path, err := besideMuster(program)
	if err == nil {
		err = call.Exec(path, append([]string{path}, args...), call.Environ)
	}
	if err != nil {
		return call.Errorf("%s: %v", program, err)
	}
	return nil
}

func Slurmd() *tool.Command {
	return &tool.Command{
		Name: "slurmd", Slurm: true,
		Summary: "describe this machine, or run the agent of a node",
		Usage:   []string{"-C|-G|-V", "[OPTIONS]"},
		About:   "With -C, -G or -V, answers as the daemon of Slurm does. Otherwise runs muster-agent in the foreground with these options; muster-agent --help lists its own.",
		Options: []opt.Option{
			{
				Long:  "print-config",
				Short: "C",
				Help:  "print this machine as a NodeName line of slurm.conf, and since when it has been up",
			},
			{
				Long:  "print-gres",
				Short: "G",
				Help:  "print the GPUs of this machine, a line for each kind",
			},
			{
				Long:   "foreground",
				Short:  "D",
				Help:   "stay in the foreground",
				Always: "it always does",
			},
			{Long: "node", Short: "N", Arg: "<name>", Help: "name of the node in slurm.conf"},
			{Long: "conf-file", Short: "f", Arg: "<file>", Help: "slurm.conf"},
			{
				Long:  "dynamic",
				Short: "Z",
				Help:  "the node is in no slurm.conf: add it to the cluster",
			},
			{
				Long: "conf",
				Arg:  "<keys>",
				Help: "with -Z: keys of a NodeName record that say more or other than the machine",
			},
		},
		Example: []tool.Example{
			{Line: "slurmd -C", What: "prints the NodeName line of this machine"},
		},
		Run: runSlurmd,
	}
}

func runSlurmd(call *tool.Call) error {
	if call.Opts.On("print-config") || call.Opts.On("print-gres") {
		return describeMachine(call)
	}
	var args []string
	for _, o := range [...][2]string{{"node", "--node="}, {"conf-file", "--conf="}, {"conf", "--describe="}} {
		if call.Opts.On(o[0]) {
			args = append(args, o[1]+call.Opts.Text(o[0]))
		}
	}
	if call.Opts.On("dynamic") {
		args = append(args, "--dynamic")
	}
	return become(call, "muster-agent", args...)
}

// describeMachine asks the agent's program what it would register.
func describeMachine(call *tool.Call) error {
	path, err := besideMuster("muster-agent")
	if err != nil {
		return call.Errorf("%v", err)
	}
	cmd := exec.CommandContext(call.Ctx, path, "--print-config")
	cmd.Stderr = call.Stderr
	line, err := cmd.Output()
	if err != nil {
		return call.Errorf("%s: %v", path, err)
	}
	if call.Opts.On("print-gres") {
		return call.WriteOut([]byte(gresLines(string(line))))
	}
	text := string(line)
	if up, err := os.ReadFile("/proc/uptime"); err == nil {
		text += upTime(string(up))
	}
	return call.WriteOut([]byte(text))
}

// upTime writes what /proc/uptime says as slurmd -C does: UpTime=D-HH:MM:SS.
func upTime(proc string) string {
	var seconds float64
	if _, err := fmt.Sscan(proc, &seconds); err != nil {
		return ""
	}
	text := format.Duration(int64(seconds))
	if !strings.Contains(text, "-") {
		text = "0-" + text
	}
	return "UpTime=" + text + "\n"
}

// gresLines writes the Gres= of a NodeName line, a line for each kind.
func gresLines(node string) string {
	var text strings.Builder
	for word := range strings.FieldsSeq(node) {
		list, ok := strings.CutPrefix(word, "Gres=")
		if !ok {
			continue
		}
		for item := range strings.SplitSeq(list, ",") {
			parts := strings.Split(item, ":")
			line := "Gres Name=" + parts[0]
			if len(parts) == 3 {
				line += " Type=" + parts[1]
			}
			text.WriteString(line + " Count=" + parts[len(parts)-1] + "\n")
		}
	}
	return text.String()
}

func Slurmctld() *tool.Command {
	return frontDoor(
		"slurmctld",
		"run the controller in the foreground, with accounting",
		"musterd",
	)
}

func Slurmdbd() *tool.Command {
	return frontDoor(
		"slurmdbd",
		"run accounting in the foreground",
		"musterd",
		"--role",
		"accounting",
	)
}

func Slurmrestd() *tool.Command {
	return frontDoor(
		"slurmrestd",
		"print the version; the controller serves the REST API itself",
		"",
	)
}

// frontDoor is a daemon's name in Slurm: -V answers as clients expect, and without
// options the counterpart runs, which reads muster.yaml.
func frontDoor(name, summary, program string, args ...string) *tool.Command {
	return &tool.Command{
		Name: name, Slurm: true, Summary: summary,
		Usage: []string{"[-D]", "-V"},
		Options: []opt.Option{
			{
				Long:   "foreground",
				Short:  "D",
				Help:   "stay in the foreground",
				Always: "it always does",
			},
		},
		Example: []tool.Example{
			{
				Line: name + " -V",
				What: "prints the version of Slurm that Muster is compatible with",
			},
		},
		Run: func(call *tool.Call) error {
			if len(call.Operands) > 0 {
				return &opt.UsageError{Command: name, Text: "it takes no arguments: " +
					call.Operands[0]}
			}
			if program == "" {
				return call.Errorf(
					"the controller serves the REST API: set listen.rest in muster.yaml",
				)
			}
			return become(call, program, args...)
		},
	}
}
