package tidy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/internal/tidy"
)

func TestWords(t *testing.T) {
	breaches, err := tidy.Words(root(t))
	if err != nil {
		t.Fatal(err)
	}
	fail(t, breaches)
}

// TestWordsFinds: a file with such phrases is reported, line by line.
func TestWordsFinds(t *testing.T) {
	dir := t.TempDir()
	text := "fine\nmail is wis" + "hed for\nas few as m" + "ay be, signal %d is n" + "one\n"
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	breaches, err := tidy.Words(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(breaches) != 3 || breaches[0].Line != 2 || breaches[1].Line != 3 || breaches[2].Line != 3 {
		t.Errorf("found %v, want one in line 2 and two in line 3", breaches)
	}
}
