package tool

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

func BaseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func ReadAll(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("larger than %d bytes", most)
	}
	return data, err
}

func ReadFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, most)
}

// ParseWindow reads 1h, 7d.
func ParseWindow(text string) (ns int64, ok bool) {
	units := map[byte]int64{'m': 60, 'h': 3600, 'd': 86400, 'w': 7 * 86400}
	if len(text) < 2 {
		return 0, false
	}
	n, ok := PositiveNumber(text[:len(text)-1])
	unit := units[text[len(text)-1]]
	return n * unit * Second, ok && unit != 0
}

// ZoneName is the IANA name of the zone in which days begin.
func ZoneName(env *Env) string {
	if tz := strings.TrimPrefix(env.Getenv("TZ"), ":"); tz != "" && !strings.HasPrefix(tz, "/") {
		return tz
	}
	if name := env.Loc.String(); name != "Local" {
		return name
	}
	return localZone()
}

// localZone finds the name of this host's zone where Go only says "Local".
func localZone() string {
	if target, err := os.Readlink("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(target, "zoneinfo/"); ok {
			return name
		}
	}
	return "UTC"
}

// BadTimeText is the line that Slurm prints about a time it cannot read; the
// position is that of the first character that fits no time.
func BadTimeText(text string) string {
	position := 0
	lower := strings.ToLower(text)
	for _, word := range [...]string{"now", "today", "tomorrow", "midnight", "noon", "fika", "teatime"} {
		if strings.HasPrefix(lower, word) {
			position = len(word)
		}
	}
	for position < len(text) &&
		(text[position] >= '0' && text[position] <= '9' ||
			strings.IndexByte("-:/.+T", text[position]) >= 0) {
		position++
	}
	return fmt.Sprintf("Invalid time specification (pos=%d): %s", position, text)
}

// ParseStepID reads 12.0 or 36_4.0.
func ParseStepID(id string) (job string, step int32, ok bool) {
	job, number, _ := strings.Cut(id, ".")
	n, err := strconv.ParseUint(number, 10, 31)
	return job, int32(n), err == nil && ValidTarget(job)
}

// ValidJob tells what can name a job: 12, 36_4, 36_[1-3,7].
func ValidJob(id string) bool {
	number, task, isTask := strings.Cut(id, "_")
	if n := LeadingDigits(number); n == 0 || n != len(number) || strings.Trim(number, "0") == "" {
		return false
	}
	if !isTask || task == "*" {
		return true
	}
	_, err := format.ParseArray(task)
	return err == nil
}

const Second = int64(spec.Second)

func Itoa[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](n T) string {
	return strconv.FormatInt(int64(n), 10)
}

// SplitList splits at commas and leaves empty parts out.
func SplitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// PositiveNumber reads a whole number above zero.
func PositiveNumber(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return n, err == nil && n > 0
}

func LeadingDigits(text string) int {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

// SplitJobs splits a list of jobs at commas outside brackets: 12,36_[5-7,9].
func SplitJobs(text string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || (text[i] == ',' && depth == 0):
			if i > from {
				out = append(out, text[from:i])
			}
			from = i + 1
		case text[i] == '[':
			depth++
		case text[i] == ']' && depth > 0:
			depth--
		}
	}
	return out
}

// ValidTarget tells what can name one job, components of heterogeneous jobs
// included: 12, 36_7, 12+1.
func ValidTarget(id string) bool {
	whole, part, ok := strings.Cut(id, "+")
	if !ok {
		return ValidJob(id)
	}
	return LeadingDigits(whole) == len(whole) && ValidJob(whole) && part != "" &&
		LeadingDigits(part) == len(part)
}

// ShellWords splits a line as a shell does: blanks separate, quotes hold
// together, a backslash takes the next character as it is, and a word that
// begins with # starts a comment.
func ShellWords(line string) ([]string, error) {
	var words []string
	var word []byte
	in, quote := false, byte(0)
	// A backslash in double quotes is a character of its own, except before these.
	escapesQuoted := func(rest string) bool {
		return strings.HasPrefix(rest, `\"`) || strings.HasPrefix(rest, `\\`)
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0:
			switch {
			case c == quote:
				quote = 0
			case quote == '"' && escapesQuoted(line[i:]):
				i++
				word = append(word, line[i])
			default:
				word = append(word, c)
			}
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == '\\' && i+1 < len(line):
			i++
			word, in = append(word, line[i]), true
		case c == ' ' || c == '\t':
			if in {
				words, word, in = append(words, string(word)), nil, false
			}
		case c == '#' && !in:
			i = len(line)
		default:
			word, in = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("unmatched %c in %q", quote, line)
	}
	if in {
		words = append(words, string(word))
	}
	return words, nil
}
