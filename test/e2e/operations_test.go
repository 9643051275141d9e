package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// step is one command of a page with what must come back.
type step struct {
	line    int
	command string
	want    []string
}

// console reads the ```console blocks of a page.
func console(t *testing.T, path string) []step {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []step
	inside := false
	for i, line := range strings.Split(string(data), "\n") {
		switch command, is := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && is:
			out = append(out, step{line: i + 1, command: command})
		case inside && len(out) > 0:
			out[len(out)-1].want = append(out[len(out)-1].want, line)
		}
	}
	return out
}

var (
	wordName = regexp.MustCompile(`\\\{([a-z]+)\\\}`)
	spaces   = regexp.MustCompile(`\s+`)
)

// pattern makes a regular expression of expected lines: … is any text, alone
// on a line any lines; {name} is a word, the same one each time.
func pattern(want []string, words map[string]string) (*regexp.Regexp, []string) {
	var names []string
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for _, line := range want {
		if line == "…" {
			b.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		text := regexp.QuoteMeta(spaces.ReplaceAllString(strings.TrimSpace(line), " "))
		text = strings.ReplaceAll(text, "…", `[^\n]*?`)
		text = wordName.ReplaceAllStringFunc(text, func(m string) string {
			name := wordName.FindStringSubmatch(m)[1]
			if word, known := words[name]; known {
				return regexp.QuoteMeta(word)
			}
			if slices.Contains(names, name) {
				return `\S+`
			}
			names = append(names, name)
			return `(\S+)`
		})
		b.WriteString(text + `\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String()), names
}

// asks tells commands that change nothing, which are asked again until the
// cluster has got there.
func asks(command string) bool {
	return slices.Contains([]string{"squeue", "sacct", "sinfo", "cat", "tail", "seff", "sdiag", "curl"}, strings.Fields(command)[0]) ||
		strings.Contains(command, " show ") || strings.HasPrefix(command, "muster ")
}

// page executes a page in a folder of its own.
func (c *cluster) page(t *testing.T, path, bins string) {
	words := map[string]string{}
	for _, s := range console(t, path) {
		command := regexp.MustCompile(`\{([a-z]+)\}`).ReplaceAllStringFunc(s.command, func(m string) string {
			if word, known := words[m[1:len(m)-1]]; known {
				return word
			}
			return m
		})
		patience := time.Second
		if asks(command) {
			patience = 90 * time.Second
		}
		if strings.Contains(command, "-o State,Timelimit") { // a limit is a minute at least
			patience = 4 * time.Minute
		}
		want, names := pattern(s.want, words)
		var got string
		for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
			cmd := exec.Command("bash", "-c", command)
			cmd.Dir = filepath.Join(c.dir, "pages")
			cmd.Env = append(os.Environ(), "PATH="+bins+":"+os.Getenv("PATH"), "MUSTER_SOCKET="+filepath.Join(c.dir, "run", "muster.sock"),
				fmt.Sprintf("METRICS=http://127.0.0.1:%d/metrics", c.port+4), "TZ=UTC")
			out, _ := cmd.CombinedOutput() // a refusal is part of a page: its text is compared
			got = plain(string(out))
			if m := want.FindStringSubmatch(got); m != nil {
				for i, name := range names {
					words[name] = m[i+1]
				}
				break
			}
			if !asks(command) || time.Since(began) > patience {
				t.Fatalf("%s:%d\n$ %s\n%s\nexpected\n%s", filepath.Base(path), s.line, command, got, strings.Join(s.want, "\n"))
			}
		}
	}
}

// plain has one space where there are several, and no empty lines.
func plain(text string) string {
	var b strings.Builder
	for _, line := range strings.Split(text, "\n") {
		if line = spaces.ReplaceAllString(strings.TrimSpace(line), " "); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// pageTools are the names that pages type.
func pageTools() []string {
	return []string{"muster", "sbatch", "squeue", "sinfo", "scancel", "scontrol", "sacct", "sacctmgr", "sdiag", "seff"}
}

// pagesLab is a lab on which pages are executed, with the folder of the commands.
func pagesLab(t *testing.T, more ...string) (c *cluster, bins string) {
	t.Helper()
	need(t)
	c = &cluster{t: t, dir: shortDir(t), port: freePorts(t)}
	c.must(append([]string{"init", "--dir", c.dir, "--cluster", "lab", "--nodes", "2", "--gpus", "4", "--gpu-type", "h100", "--port", fmt.Sprint(c.port),
		"--conf", "KillWait=2", "--conf", "AccountingStorageEnforce=limits"}, more...)...)
	c.must("up", "--dir", c.dir)
	t.Cleanup(func() { c.run("down", "--dir", c.dir, "--jobs") })
	bins = filepath.Join(c.dir, "bin")
	for _, dir := range []string{bins, filepath.Join(c.dir, "pages")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range pageTools() {
		if err := os.Symlink(bin("muster"), filepath.Join(bins, name)); err != nil {
			t.Fatal(err)
		}
	}
	return c, bins
}

// TestOperationsPages executes every page of docs/operations on a lab; the one
// that waits for a time limit and the one whose GPUs are shared on labs of their
// own, meanwhile.
func TestOperationsPages(t *testing.T) {
	t.Parallel() // it waits more than it works
	pages, err := filepath.Glob("../../docs/operations/*.md")
	if err != nil || len(pages) != 19 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	const slow, shared, dead, rebuilt, restored = "time-limit.md", "gpu-sharing.md", "dead-node.md", "recover-ledger.md", "backup.md"
	for _, stopped := range []string{rebuilt, restored} {
		t.Run(stopped, func(t *testing.T) {
			c, bins := pagesLab(t)
			t.Parallel()
			c.page(t, "../../docs/operations/"+stopped, bins)
		})
	}
	t.Run(dead, func(t *testing.T) {
		c, bins := pagesLab(t, "--conf", "SlurmdTimeout=5")
		t.Parallel()
		c.page(t, "../../docs/operations/"+dead, bins)
	})
	t.Run(shared, func(t *testing.T) {
		c, bins := pagesLab(t, "--share", "shard:8")
		t.Parallel()
		c.page(t, "../../docs/operations/"+shared, bins)
	})
	t.Run(slow, func(t *testing.T) {
		c, bins := pagesLab(t)
		t.Parallel()
		c.page(t, "../../docs/operations/"+slow, bins)
	})
	t.Run("others", func(t *testing.T) {
		c, bins := pagesLab(t)
		t.Parallel()
		for _, path := range pages {
			if name := filepath.Base(path); name != slow && name != shared && name != dead && name != rebuilt && name != restored && name != "README.md" && name != machinesPage && name != controllersPage && name != "audit.md" {
				t.Run(name, func(t *testing.T) { c.page(t, path, bins) })
			}
		}
	})
}
