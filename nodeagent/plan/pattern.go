package plan

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// noTaskNumber is what %a gives outside of an array, as in Slurm.
const noTaskNumber = 4294967294

// maxPad is the widest zero padding that a pattern may ask for.
const maxPad = 10

// FileFacts are what the patterns of a file name stand for.
type FileFacts struct {
	JobID     uint64 // %j
	ArrayJob  uint64 // %A; 0 outside of an array
	ArrayTask int64  // %a, %b; spec.NoTask outside of an array
	Step      int32  // %s, and with the job id %J
	Node      string // %N: the short host name
	NodeIndex uint32 // %n: the node's number within the job
	Task      uint32 // %t: the task's rank
	User      string // %u
	JobName   string // %x
	Restarts  uint32 // %r
	SLUID     string // %S; the pattern stays as it is if there is none
}

// DefaultOutput is the pattern of a batch job that names no output file.
func DefaultOutput(array bool) string {
	if array {
		return "slurm-%A_%a.out"
	}
	return "slurm-%j.out"
}

// FilePerTask tells that a pattern gives different files for different nodes
// or tasks.
func FilePerTask(pattern string) bool {
	found := false
	expand(pattern, func(letter byte, _ int) (string, bool) {
		found = found || strings.IndexByte("Nnt", letter) >= 0
		return "", true
	})
	return found
}

// ExpandFile replaces the patterns of a file name: % and a letter, with a
// number between them that pads numbers with zeros (10 digits at most). %% is
// one %, unknown letters stay as they are. A backslash anywhere switches the
// replacing off; the backslashes themselves are taken out, of two one stays.
func ExpandFile(pattern string, facts *FileFacts) string {
	return expand(pattern, facts.value)
}

func expand(pattern string, value func(letter byte, pad int) (string, bool)) string {
	if strings.IndexByte(pattern, '\\') >= 0 {
		return unescape(pattern)
	}
	var text strings.Builder
	for i := 0; i < len(pattern); {
		if pattern[i] != '%' {
			text.WriteByte(pattern[i])
			i++
			continue
		}
		j := i + 1
		for j < len(pattern) && pattern[j] >= '0' && pattern[j] <= '9' {
			j++
		}
		if j == len(pattern) {
			text.WriteString(pattern[i:])
			break
		}
		if v, ok := value(pattern[j], parsePadding(pattern[i+1:j])); ok {
			text.WriteString(v)
		} else {
			text.WriteString(pattern[i : j+1])
		}
		i = j + 1
	}
	return text.String()
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			if i == len(s) {
				break
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parsePadding reads a width; a longer one than allowed is cut, not refused.
func parsePadding(digits string) int {
	if digits == "" {
		return 0
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > maxPad {
		return maxPad
	}
	return n
}

func (f *FileFacts) value(letter byte, pad int) (string, bool) {
	num := func(n uint64) (string, bool) { return zeroPad(strconv.FormatUint(n, 10), pad), true }
	task := uint64(noTaskNumber)
	if f.ArrayTask != spec.NoTask {
		task = uint64(f.ArrayTask)
	}
	switch letter {
	case '%':
		return "%", true
	case 'A':
		if f.ArrayJob != 0 {
			return num(f.ArrayJob)
		}
		return num(f.JobID)
	case 'a':
		return num(task)
	case 'b':
		return num(task % 10)
	case 'J':
		if f.Step == StepBatch {
			return num(f.JobID) // what sbatch's users expect, and scontrol shows
		}
		return zeroPad(strconv.FormatUint(f.JobID, 10), pad) + "." +
			spec.StepID(f.Step).String(), true
	case 'j':
		return num(f.JobID)
	case 'N':
		return f.Node, true
	case 'n':
		return num(uint64(f.NodeIndex))
	case 'r':
		return num(uint64(f.Restarts))
	case 'S':
		return f.SLUID, f.SLUID != ""
	case 's':
		return zeroPad(spec.StepID(f.Step).String(), pad), true
	case 't':
		return num(uint64(f.Task))
	case 'u':
		return f.User, true
	case 'x':
		return f.JobName, true
	}
	return "", false
}

// zeroPad widens a number; names stay as they are.
func zeroPad(text string, width int) string {
	if text == "" || text[0] < '0' || text[0] > '9' || len(text) >= width {
		return text
	}
	return strings.Repeat("0", width-len(text)) + text
}
