package main

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/cli"
)

func readAll(t *testing.T) ([]surfaceName, []note, *judge) {
	t.Helper()
	names, err := readSurface("../../" + surfaceFile)
	if err != nil {
		t.Fatal(err)
	}
	notes, err := readNotes("../../" + notesFile)
	if err != nil {
		t.Fatal(err)
	}
	j, err := newJudge("../..", notes)
	if err != nil {
		t.Fatal(err)
	}
	return names, notes, j
}

// TestEveryOptionHasAnEntry fails for an option of a command that is neither one of
// Slurm's names nor noted as Muster's own.
func TestEveryOptionHasAnEntry(t *testing.T) {
	names, notes, _ := readAll(t)
	known := map[surfaceName]bool{}
	listed := map[string]bool{} // commands whose options are listed
	for _, n := range names {
		if n.kind == "option" {
			known[surfaceName{command: n.command, name: n.name}] = true
			listed[n.command] = true
		}
	}
	for _, n := range notes {
		if n.kind == "own" {
			known[surfaceName{command: n.command, name: n.name}] = true
		}
	}
	checked := 0
	for _, c := range cli.Tables() {
		if !listed[c.Name] {
			continue
		}
		for _, o := range c.Options {
			checked++
			if !known[surfaceName{command: c.Name, name: o.Long}] {
				t.Errorf("%s --%s has no line in %s; if Slurm does not have it, note it as own in %s", c.Name, o.Long, surfaceFile, notesFile)
			}
		}
	}
	if checked < 500 {
		t.Errorf("looked at %d options, expected more than 500", checked)
	}
}

// TestNotesAreTrue fails for a note that contradicts the tables: a name that is
// known is not missing, and one that no table knows and no code sets does not work.
func TestNotesAreTrue(t *testing.T) {
	names, notes, j := readAll(t)
	listed := map[surfaceName]surfaceName{}
	for _, n := range names {
		key := n
		key.letter = ""
		if _, twice := listed[key]; twice {
			t.Errorf("%s %s %s is listed twice", n.kind, n.command, n.name)
		}
		listed[key] = n
	}
	for _, n := range notes {
		if n.kind == "own" {
			if c := j.commands[n.command]; c == nil || ofOption(c, n.surfaceName).status == missing {
				t.Errorf("%s --%s is noted as Muster's own, and %s does not have it", n.command, n.name, n.command)
			}
			continue
		}
		full, ok := listed[n.surfaceName]
		if !ok {
			t.Errorf("the note about %s %s %s is about a name that is not listed", n.kind, n.command, n.name)
			continue
		}
		told := j.fromTables(full)
		switch {
		case n.how == "":
			t.Errorf("the note about %s %s %s does not say how", n.kind, n.command, n.name)
		case told.status == n.status && told.how == n.how:
			t.Errorf("the note about %s %s %s says what the table says", n.kind, n.command, n.name)
		case told.status == refused && n.status == works:
			t.Errorf("the note about %s %s %s says that it works; the command refuses it", n.kind, n.command, n.name)
		}
	}
}

// TestPageCounts adds up the page: each name is in it once.
func TestPageCounts(t *testing.T) {
	names, _, j := readAll(t)
	var page strings.Builder
	sum := 0
	for _, s := range sections(names) {
		for _, n := range j.writeSection(&page, s) {
			sum += n
		}
	}
	if sum != len(names) {
		t.Errorf("the page counts %d names of %d", sum, len(names))
	}
	for _, n := range names {
		if !strings.Contains(page.String(), "`"+spelled(n)+"`") {
			t.Errorf("the page does not name %s %s", n.command, spelled(n))
		}
	}
}
