// Package jobmap writes the files from which a stock dcgm-exporter learns
// which job holds which GPU (its --hpc-job-mapping-dir): one file per GPU,
// named by its index or, for a MIG instance, "index.GPU instance", with the
// job's number, or empty.
//
// The exporter reads the folder at every scrape, so a file is never half
// written and never missing: a new job's number replaces the file at once, and
// the end of a job empties it.
package jobmap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/musterhpc/muster/nodeagent/telemetry"
)

// fileName is what the exporter takes for a mapping; other files are not ours
// and are left alone.
var fileName = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// Dir is a folder of mapping files. It has one owner.
type Dir struct {
	path    string
	written map[string]uint64 // what is known to be in each file
}

// Open makes the folder if it is missing and empties what an earlier agent
// left. The folder must be writable.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("the folder of job mappings: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("the folder of job mappings: %w", err)
	}
	dir := &Dir{path: path, written: map[string]uint64{}}
	for _, entry := range entries {
		if entry.Type().IsRegular() && fileName.MatchString(entry.Name()) {
			err = errors.Join(err, dir.emptyFile(entry.Name()))
		}
	}
	probe := filepath.Join(path, ".muster")
	if werr := os.WriteFile(probe, nil, 0o600); werr != nil {
		return nil, fmt.Errorf(
			"the folder of job mappings cannot be written: %w",
			errors.Join(err, werr),
		)
	}
	return dir, errors.Join(err, os.Remove(probe))
}

// Write brings the files up to date. What fails is tried again by the next
// Write.
func (d *Dir) Write(list []telemetry.Mapping) error {
	var errs error
	listed := make(map[string]bool, len(list))
	for _, mapping := range list {
		listed[mapping.Name] = true
		if job, ok := d.written[mapping.Name]; ok && job == mapping.Job {
			continue
		}
		var err error
		if mapping.Job == 0 {
			err = d.emptyFile(mapping.Name)
		} else {
			err = d.replaceFile(mapping.Name, mapping.Job)
		}
		if err != nil {
			delete(d.written, mapping.Name)
			errs = errors.Join(errs, err)
		}
	}
	for name, job := range d.written { // devices that are gone, MIG that was switched off
		if !listed[name] && job != 0 {
			errs = errors.Join(errs, d.emptyFile(name))
		}
	}
	return errs
}

// emptyFile leaves the file in place with nothing in it.
func (d *Dir) emptyFile(name string) error {
	file, err := os.OpenFile(filepath.Join(d.path, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	d.written[name] = 0
	return file.Close()
}

// replaceFile puts a job's number in place of the file at once.
func (d *Dir) replaceFile(name string, job uint64) error {
	temporary := filepath.Join(d.path, ".new-"+name)
	if err := os.WriteFile(temporary, []byte(strconv.FormatUint(job, 10)+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(d.path, name)); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	d.written[name] = job
	return nil
}
