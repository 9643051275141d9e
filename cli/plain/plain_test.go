package plain

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"train":                  "train",
		"Größe µ 訓練":             "Größe µ 訓練",
		"\x1b[2Jgone":            "?[2Jgone",
		"a\nforged line":         "a?forged line",
		"\x1b]0;title\x07":       "?]0;title?",
		"a\u009b2J":              "a?2J",
		"a\x9b2J":                "a?2J",
		"x\u202etxt.exe\u2066":   "x?txt.exe?",
		"tab\tand\rreturn\x7f\b": "tab?and?return??",
	} {
		if got := Cell(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// FuzzWriter: whatever is written, in whatever pieces, nothing that acts on a
// terminal comes out, and it is the same as for one piece.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\n\xc2\x9b訓\xe8\xa8"), 3)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		var pieces, whole bytes.Buffer
		w := NewWriter(&pieces)
		piece = max(1, piece%16)
		for from := 0; from < len(data); from += piece {
			part := data[from:min(from+piece, len(data))]
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		one := NewWriter(&whole)
		if _, err := one.Write(data); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Writer{w, one} {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		text := pieces.String()
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Fatalf("%q becomes %q", data, text)
		}
		if utf8.Valid(data) && whole.String() != text {
			t.Fatalf("%q in pieces of %d becomes %q, as a whole %q", data, piece, text, whole.String())
		}
		if strings.IndexFunc(text, unicode.IsControl) < 0 && Cell(text) != text {
			t.Fatalf("%q is not left alone", text)
		}
	})
}

// TestExact: a document is passed on to the byte.
func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		var out bytes.Buffer
		w := NewWriter(&out)
		w.Exact()
		if _, err := w.Write(data); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("%q becomes %q, %v", data, out.Bytes(), err)
		}
	})
}
