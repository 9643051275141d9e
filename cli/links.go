package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

func linksCommand() *tool.Command {
	return &tool.Command{
		Name: "links", Summary: "create links to muster under the names of the commands", Usage: []string{"FOLDER"},
		About: "Creates links sbatch, srun, squeue and so on to muster in a folder, which is made if it is not there, and which scripts find if it is in PATH. sbatch becomes a link to muster-sbatch, if that is in the same folder as muster; it does the same and starts faster.\n\n" +
			"Existing links to muster are renewed. If another file has one of the names, for example a command of Slurm, it is reported and nothing is changed.",
		Example: []tool.Example{
			{Line: "muster links /usr/local/bin", What: "makes them for everybody"},
			{Line: "muster links bin", What: "makes them beside what was just built"},
		},
		Run: func(call *tool.Call) error {
			if len(call.Operands) != 1 {
				return &opt.UsageError{
					Command: "muster links",
					Text:    "name the folder that gets the links",
				}
			}
			self, err := os.Executable()
			if err == nil {
				err = makeLinks(call.Operands[0], self)
			}
			if err != nil {
				return call.Errorf("%v", err)
			}
			return nil
		},
	}
}

// takenError tells names that are not muster's to take.
type takenError struct {
	dir   string
	names []string
}

func (e *takenError) Error() string {
	return e.dir + " has commands that are no links to muster (" + strings.Join(e.names, ", ") +
		"): choose a folder of its own, before that one in PATH, or move them away"
}

// makeLinks links each command of Slurm's in a folder to a muster, all or none.
func makeLinks(dir, muster string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	taken := &takenError{dir: dir}
	links := map[string]string{}
	for _, entry := range commandEntries() {
		if !entry.Make().Slurm {
			continue
		}
		to := muster
		small := filepath.Join(filepath.Dir(muster), "muster-"+entry.Name)
		if _, err := os.Stat(small); err == nil {
			to = small
		}
		path := filepath.Join(dir, entry.Name)
		if filepath.Dir(to) == dir {
			to = filepath.Base(to) // the folder may move
		}
		links[path] = to
		now, err := os.Readlink(path)
		ours := filepath.Base(now) == "muster" || filepath.Base(now) == "muster-"+entry.Name
		if !errors.Is(err, fs.ErrNotExist) && (err != nil || !ours) {
			taken.names = append(taken.names, entry.Name)
		}
	}
	if len(taken.names) > 0 {
		return taken
	}
	for path, to := range links {
		fresh := path + ".new"
		if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(to, fresh); err != nil {
			return err
		}
		if err := os.Rename(fresh, path); err != nil {
			return err
		}
	}
	return nil
}
