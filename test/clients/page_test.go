package clients

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestPage holds docs/clients.md to the table.
func TestPage(t *testing.T) {
	const path = "../../docs/clients.md"
	want := page()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says: UPDATE_GOLDEN=1 go test -run TestPage ./test/clients", path)
	}
}

func page() string {
	var b strings.Builder
	b.WriteString("# Client programs\n\n<!-- Written by UPDATE_GOLDEN=1 go test -run TestPage ./test/clients from its table. -->\n\n" +
		"Programs that run Slurm's commands, and what is proved of each. `make test-clients` runs these command lines against\n" +
		"a cluster of two nodes, all clients side by side, and reads the answers with the patterns that the programs use. The\n" +
		"programs themselves are not part of the test; launchers of training start a program that gathers data over TCP. In the lines, `{name}` is what an earlier answer gave.\n\n" +
		"| client | behaviour of | what it is | steps | open |\n|---|---|---|---|---|\n")
	for _, c := range clients() {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s |\n", c.name, c.version, c.what, len(c.steps), c.open)
	}
	for _, c := range clients() {
		fmt.Fprintf(&b, "\n## %s\n\n", c.name)
		for _, s := range c.steps {
			does := s.does
			if s.waits {
				does += ", until the answer is as expected"
			}
			fmt.Fprintf(&b, "* %s: `` %s ``\n", does, s.line)
		}
	}
	return b.String()
}
