package clickhouse

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGrantsOfThePage: the page has the statements as the doctor prints them,
// and every table of system that our SQL names is among them.
func TestGrantsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	list := strings.ReplaceAll(strings.Join(Grants("muster", "muster", Layout{}), ";\n"), "`", "") + ";\n"
	if !strings.Contains(string(page), "```\n"+list+"```") {
		t.Errorf("docs/accounting.md does not have:\n%s", list)
	}
	named := regexp.MustCompile(`\bsystem\.[a-z_]+`)
	for _, dir := range []string{".", "../query", "../daemon", "../importer"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			text, err := os.ReadFile(dir + "/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range named.FindAllString(string(text), -1) {
				if !slices.ContainsFunc(neededGrants("muster", Layout{}), func(g grant) bool { return g.on == table }) {
					t.Errorf("%s/%s names %s, which is not granted", dir, e.Name(), table)
				}
			}
		}
	}
}
