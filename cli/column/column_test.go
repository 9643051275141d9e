package column

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLetters(t *testing.T) {
	before, got, err := Letters("%.18i %.9P|%j^^^%20N%R.")
	want := []Token{{"i", 18, true, " ", false}, {"P", 9, true, "|", false}, {"j", 0, false, "^^^", false}, {"N", 20, false, "", false}, {"R", 0, false, ".", false}}
	if err != nil || before != "" || !reflect.DeepEqual(got, want) {
		t.Fatalf("%q %+v %v", before, got, err)
	}
	if before, got, err = Letters("x%all"); err != nil || before != "x" || got[0].Field != "all" {
		t.Errorf("%q %+v %v", before, got, err)
	}
	if before, got, err = Letters("plain"); before != "plain" || got != nil || err != nil {
		t.Errorf("%q %+v %v", before, got, err)
	}
	for _, bad := range []string{"%", "%.5", "%i%", "%99999999999i"} {
		if _, _, err := Letters(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestNames(t *testing.T) {
	got, err := Names("JobID,Name:14,Reason:.24,Account:\x1f,NodeList:0 ,CPUs:5|")
	want := []Token{{"JobID", 20, false, "", false}, {"Name", 14, false, "", false}, {"Reason", 24, true, "", false}, {"Account", 0, false, "\x1f", false},
		{"NodeList", 0, false, " ", false}, {"CPUs", 5, false, "|", false}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err := Names("jobid,,name,"); err != nil || len(got) != 2 {
		t.Errorf("empty names between commas: %+v %v", got, err)
	}
	for _, bad := range []string{"", ",", ":5", "a:99999999999"} {
		if _, err := Names(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		t    Token
		text string
		want string
	}{
		{Token{Width: 8, Right: true}, "gpu-small", "gpu-smal"},
		{Token{Width: 8, Right: true, Suffix: " "}, "a", "       a "},
		{Token{Width: 3}, "a", "a  "},
		{Token{Suffix: "|"}, "anything", "anything|"},
		{Token{Width: 2}, "äöü", "äö"},
	} {
		if got := string(c.t.Append(nil, c.text)); got != c.want {
			t.Errorf("%+v %q: %q, want %q", c.t, c.text, got, c.want)
		}
	}
}

func TestFields(t *testing.T) {
	fields := []Field{{"JobID", -12}, {"State", 10}, {"ExitCode", 8}}
	var b []byte
	s := Style{}
	b = s.Header(b, fields)
	b = s.Row(b, fields, []string{"8", "CANCELLED by 0", "0:0"})
	want := "JobID             State ExitCode \n------------ ---------- -------- \n8            CANCELLED+      0:0 \n"
	if string(b) != want {
		t.Errorf("got\n%swant\n%s", b, want)
	}
	p := Style{Parsable: true, Trailing: true, Delim: ","}
	if got := string(p.Row(p.Header(nil, fields), fields, []string{"8", "CANCELLED by 0", "0:0"})); got != "JobID,State,ExitCode,\n8,CANCELLED by 0,0:0,\n" {
		t.Errorf("got %q", got)
	}
	if got := (Style{NoHeader: true}).Header(nil, fields); len(got) != 0 {
		t.Errorf("header %q", got)
	}
}

func FuzzFormats(f *testing.F) {
	f.Add("%.18i %.9P %.8j", "JobID:10,Name:.5x", "gpu-small")
	f.Fuzz(func(t *testing.T, letters, names, text string) {
		if !utf8.ValidString(letters + names + text) {
			return
		}
		if before, tokens, err := Letters(letters); err == nil {
			n := len(before)
			for _, tok := range tokens {
				if tok.Width < 1<<10 {
					b := tok.Append(nil, text)
					if tok.Width > 0 && utf8.RuneCount(b) != tok.Width+utf8.RuneCountInString(tok.Suffix) {
						t.Fatalf("%+v: %d characters", tok, utf8.RuneCount(b))
					}
				}
				n += len(tok.Suffix) + len(tok.Field)
			}
			if n > len(letters) {
				t.Fatalf("%q became longer", letters)
			}
		}
		if tokens, err := Names(names); err == nil && len(tokens) != strings.Count(names, ",")+1 {
			t.Fatalf("%q: %d columns", names, len(tokens))
		}
	})
}

// TestWhole: a token that is not cut grows with its text, and is padded as the others.
func TestWhole(t *testing.T) {
	token := Token{Width: 9, Right: true, Whole: true}
	for text, want := range map[string]string{"1-02:04:00": "1-02:04:00", "5:00": "     5:00"} {
		if got := string(token.Append(nil, text)); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
