package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
)

func linksCommand() *command {
	return &command{
		name: "links", summary: "let the commands answer under their own names", usage: []string{"FOLDER"},
		about: "Makes links sbatch, srun, squeue and so on to muster in a folder, which must exist: scripts find them when it is in PATH. sbatch becomes a link to muster-sbatch where that lies beside muster; it does the same and starts faster.\n\n" +
			"A link of muster's that is there already is renewed. If anything else has one of the names, a real Slurm's commands say, it is named and nothing is done.",
		example: []example{{"muster links /usr/local/bin", "makes them for everybody"}, {"muster links bin", "makes them beside what was just built"}},
		run: func(c *call) error {
			if len(c.args) != 1 {
				return &opt.UsageError{Command: "muster links", Text: "name the folder that gets the links"}
			}
			self, err := os.Executable()
			if err == nil {
				err = makeLinks(c.args[0], self)
			}
			if err != nil {
				return c.errorf("%v", err)
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
	return e.dir + " has commands that are no links to muster (" + strings.Join(e.names, ", ") + "): choose a folder of its own, before that one in PATH, or move them away"
}

// makeLinks links each command of Slurm's in a folder to a muster, all or none.
func makeLinks(dir, muster string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.ReadDir(dir); err != nil {
		return err
	}
	taken := &takenError{dir: dir}
	links := map[string]string{}
	for _, e := range commands() {
		if !e.make().slurm {
			continue
		}
		to := muster
		small := filepath.Join(filepath.Dir(muster), "muster-"+e.name)
		if _, err := os.Stat(small); err == nil {
			to = small
		}
		path := filepath.Join(dir, e.name)
		if filepath.Dir(to) == dir {
			to = filepath.Base(to) // the folder may move
		}
		links[path] = to
		now, err := os.Readlink(path)
		ours := filepath.Base(now) == "muster" || filepath.Base(now) == "muster-"+e.name
		if !errors.Is(err, fs.ErrNotExist) && (err != nil || !ours) {
			taken.names = append(taken.names, e.name)
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
