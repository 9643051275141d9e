package whatif

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/sim/tune"
)

// memory is the file in which muster tune keeps replays. It is written whole
// after each one, so a kill at any moment leaves the ones before. Two commands
// with the same question write the same: they waste work and harm nothing.
type memory struct {
	path  string
	saved saved
}

// saved is the content of the file.
type saved struct {
	Format   int                     `json:"format"`
	Question []string                `json:"question"`
	Asked    int64                   `json:"asked"` // what "now" means, in seconds
	History  string                  `json:"history"`
	Replays  map[string]*tune.Replay `json:"replays"`
}

// stateFormat changes when a replay of an earlier release no longer counts.
const stateFormat = 1

// openMemory reads the file, if there is one.
func openMemory(path string, question []string, now time.Time) (*memory, error) {
	m := &memory{path: path}
	m.saved = saved{
		Format:   stateFormat,
		Question: question,
		Asked:    now.Unix(),
		Replays:  map[string]*tune.Replay{},
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	var old saved
	if err := json.Unmarshal(data, &old); err != nil || old.Replays == nil {
		return nil, fmt.Errorf(
			"%s is not a state file of muster tune: remove it, or name another with --state",
			path,
		)
	}
	if old.Format != stateFormat || !slices.Equal(old.Question, question) {
		return nil, fmt.Errorf(
			"%s is of another question or release: remove it, or name another file with --state",
			path,
		)
	}
	m.saved = old
	return m, nil
}

// about ties the file to a history and to this build of the program. Replays of
// another history do not count, and those by another scheduler are no comparison.
func (m *memory) about(load *replay.Workload) error {
	hash := sha256.New()
	if build, ok := debug.ReadBuildInfo(); ok {
		fmt.Fprintln(hash, build)
	}
	if err := json.NewEncoder(hash).Encode(load); err != nil {
		return fmt.Errorf("hash the history: %w", err)
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if m.saved.History != "" && m.saved.History != sum {
		return fmt.Errorf(
			"the history has changed since %s was written, or the program has: remove it to begin anew",
			m.path,
		)
	}
	m.saved.History = sum
	return nil
}

// Recall implements tune.Memory.
func (m *memory) Recall(name string) (*tune.Replay, bool) {
	r, ok := m.saved.Replays[name]
	return r, ok
}

// Keep implements tune.Memory.
func (m *memory) Keep(name string, r *tune.Replay) error {
	m.saved.Replays[name] = r
	data, err := json.Marshal(m.saved)
	if err != nil {
		return err
	}
	return durable.WriteFile(m.path, data, 0o600)
}

// remove deletes the file: the question is answered.
func (m *memory) remove() error {
	if err := os.Remove(m.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// trace reads the log of --swf for a cluster of one pool.
func (w *tuning) trace() (*replay.Workload, error) {
	file, err := os.Open(w.swf)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	buffered := bufio.NewReaderSize(file, 256<<10)
	var in io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		in, err = gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.swf, err)
		}
	}
	trace, err := replay.ReadSWF(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.swf, err)
	}
	inForce, err := tune.ParseSetting(w.inForce)
	if err != nil {
		return nil, fmt.Errorf("--in-force %q: %s", w.inForce, oneLine(err))
	}
	rule, err := replay.RuleNamed("muster")
	if err != nil {
		return nil, err
	}
	config, err := inForce.Apply(
		replay.Machine{CPUs: w.procs}.Config(replay.Settings{Priority: rule.Settings().Priority}),
	)
	if err != nil {
		return nil, err
	}
	return trace.Workload(config), nil
}
