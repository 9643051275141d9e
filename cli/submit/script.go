package submit

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

// maxScript bounds what is read of a script; the controller's MaxScriptSize is
// smaller, and its refusal says so.
const maxScript = 12 << 20

const directiveMark = "#SBATCH"

// checkScript words Slurm's refusals of what is no batch script.
func checkScript(name string, data []byte) error {
	e := name + ": error: "
	switch {
	case len(data) == 0:
		return tool.Fail(1, e+"Batch script is empty!")
	case len(bytes.TrimSpace(data)) == 0:
		return tool.Fail(1, e+"Batch script contains only whitespace!")
	case !bytes.HasPrefix(data, []byte("#!")):
		return tool.Fail(1, e+"This does not look like a batch script.  The first",
			e+"line must start with #! followed by the path to an interpreter.", e+
				"For instance: #!/bin/sh")
	case bytes.IndexByte(data, 0) >= 0:
		return tool.Fail(1, e+"The Slurm controller does not allow scripts that", e+
			"contain a NULL character '\\0'.")
	case bytes.Contains(data, []byte("\r\n")):
		return tool.Fail(1, e+"Batch script contains DOS line breaks (\\r\\n)", e+
			"instead of expected UNIX line breaks (\\n).")
	}
	return nil
}

// wrapScript is the script that --wrap makes of a command.
func wrapScript(command string) []byte {
	return []byte("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" + command + "\n")
}

// splitDirectives gives the words of each #SBATCH line. They end where the script's
// commands begin.
func splitDirectives(script []byte) ([][]string, error) {
	var out [][]string
	for line := range bytes.Lines(script) {
		text := strings.TrimRight(string(line), "\r\n")
		if rest, ok := strings.CutPrefix(text, directiveMark); ok {
			words, err := tool.ShellWords(rest)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", directiveMark, err)
			}
			if len(words) > 0 {
				out = append(out, words)
			}
			continue
		}
		if t := strings.TrimSpace(text); t != "" && t[0] != '#' {
			break
		}
	}
	return out, nil
}

// hetDirectives are the directives of a script, those of each component of a
// heterogeneous job apart: a line "#SBATCH hetjob" stands between two.
func hetDirectives(name string, script []byte) ([][][]string, error) {
	list, err := splitDirectives(script)
	if err != nil {
		return nil, tool.Fail(1, name+": error: "+err.Error())
	}
	out := make([][][]string, 1)
	for _, words := range list {
		if (words[0] == "hetjob" || words[0] == "packjob") && len(words) == 1 {
			out = append(out, nil)
			continue
		}
		out[len(out)-1] = append(out[len(out)-1], words)
	}
	return out, nil
}

// scriptOptions applies the directives of a component.
func scriptOptions(set *opt.Set, list [][]string, into *opt.Values) error {
	own := *set
	own.Mixed = true
	for _, words := range list {
		rest, err := own.Parse(words, into, opt.FromScript)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return tool.Fail(
				255,
				fmt.Sprintf(
					"%s: error: Invalid directive found in batch script: %s",
					set.Command,
					rest[0],
				),
			)
		}
		for _, long := range [...]string{"help", "usage", "version", "wrap"} {
			if into.On(long) {
				return tool.Fail(
					1,
					fmt.Sprintf(
						"%s: error: Invalid directive found in batch script: --%s",
						set.Command,
						long,
					),
				)
			}
		}
	}
	return nil
}
