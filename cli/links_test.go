package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLinks: every command of Slurm's has a link that leads to muster, wherever
// the folder is; made again they are the same; what is somebody else's stays.
func TestLinks(t *testing.T) {
	root := t.TempDir()
	bin, own := filepath.Join(root, "bin"), filepath.Join(root, "own")
	for _, dir := range []string{bin, own} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"muster", "muster-sbatch"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{bin, own, own} {
		if err := makeLinks(dir, filepath.Join(bin, "muster")); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"sbatch": "muster-sbatch", "srun": "muster", "squeue": "muster", "sacct": "muster"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
				t.Errorf("%s in %s leads to %q, %v", name, dir, text, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, "why")); err == nil {
			t.Error("a command that is muster's own has a link")
		}
	}
	if err := os.Rename(bin, filepath.Join(root, "moved")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(filepath.Join(root, "moved", "sbatch")); err != nil {
		t.Error(err)
	}

	slurm := filepath.Join(root, "slurm")
	if err := os.Mkdir(slurm, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(slurm, "squeue"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin/true", filepath.Join(slurm, "sinfo")); err != nil {
		t.Fatal(err)
	}
	err := makeLinks(slurm, filepath.Join(root, "moved", "muster"))
	var taken *takenError
	if !errors.As(err, &taken) || !slices.Equal(taken.names, []string{"squeue", "sinfo"}) {
		t.Errorf("%v", err)
	}
	if entries, rerr := os.ReadDir(slurm); rerr != nil || len(entries) != 2 {
		t.Errorf("%d entries, %v", len(entries), rerr)
	}
	fresh := filepath.Join(root, "new", "bin")
	if err := makeLinks(fresh, filepath.Join(root, "moved", "muster")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"squeue", "slurmd", "qsub"} {
		if _, err := os.ReadFile(filepath.Join(fresh, name)); err != nil {
			t.Errorf("the folder that was made lacks %s: %v", name, err)
		}
	}
	if err := makeLinks(filepath.Join(slurm, "squeue", "bin"), filepath.Join(root, "moved", "muster")); err == nil {
		t.Error("a folder was made in a file")
	}
}
