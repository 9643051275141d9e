package eligible

import "testing"

// FuzzConstraint reads --constraint expressions.
func FuzzConstraint(f *testing.F) {
	for _, text := range []string{"a&b|c", "[a|b]", "(a&b)*2", "[rack1*2&rack2*4]", "a*0", "((", "!a", "a&&b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConstraint(text)
		if err == nil && c == nil && text != "" {
			t.Fatalf("%q is nothing and no error", text)
		}
	})
}
