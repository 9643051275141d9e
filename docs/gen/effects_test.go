package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/test/effects"
)

// unprovedFile has the number of names without a check, by kind and command.
const unprovedFile = "docs/gen/unproved.tsv"

// TestUnprovedOnlyFalls counts the names that the page says work and that no check of
// test/effects proves. A new name needs a check, and a new check lowers the number.
func TestUnprovedOnlyFalls(t *testing.T) {
	names, _, j := readAll(t)
	byKey := map[string]section{}
	for _, s := range sections(names) {
		byKey[s.rows[0].kind+" "+s.rows[0].command] = s
	}
	rows := 0
	err := readTabs("../../"+unprovedFile, func(cells []string) error {
		rows++
		ceiling, err := strconv.Atoi(cells[2])
		if err != nil {
			return err
		}
		s, ok := byKey[cells[0]+" "+cells[1]]
		if !ok {
			t.Errorf("%s: there is no part of the page for %s %s", unprovedFile, cells[0], cells[1])
			return nil
		}
		unproved := j.unproved(s)
		switch n := len(unproved); {
		case n > ceiling:
			t.Errorf("%s: %d names have no check in %s, %d are allowed: %s", s.title, n, checksFolder, ceiling, strings.Join(unproved, " "))
		case n < ceiling:
			t.Errorf("%s: only %d names have no check now: lower the number in %s from %d", s.title, n, unprovedFile, ceiling)
		default:
			t.Logf("%s: without a check: %s", s.title, strings.Join(unproved, " "))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows < 3 {
		t.Errorf("%s has %d rows", unprovedFile, rows)
	}
}

// TestChecksAreOfThePage fails for a check of a name that the page does not say works.
func TestChecksAreOfThePage(t *testing.T) {
	names, notes, j := readAll(t)
	known := map[effects.Name]bool{}
	for _, name := range names {
		key := effects.Name{Kind: name.kind, Command: name.command, Name: name.name}
		if name.kind != "letter" {
			key.Name = strings.ToLower(key.Name)
		}
		known[key] = j.answer(name).status == works
	}
	for _, n := range notes {
		if n.kind == "own" {
			known[effects.Name{Kind: "option", Command: n.command, Name: n.name}] = true
		}
	}
	for name := range j.proved {
		if !known[name] {
			t.Errorf("a check proves %s %s %s, and the page does not say that it works", name.Kind, name.Command, name.Name)
		}
	}
}
