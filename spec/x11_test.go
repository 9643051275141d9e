package spec

import "testing"

func TestX11Reaches(t *testing.T) {
	for _, tc := range []struct {
		text string
		want string // of three nodes
	}{
		{"", "..."}, {"all", "yyy"}, {"batch", "y.."}, {"first", "y.."}, {"last", "..y"},
	} {
		x, err := ParseX11(tc.text)
		if err != nil {
			t.Errorf("%q: %v", tc.text, err)
		}
		got := ""
		for i := range 3 {
			if x.Reaches(i, 3) {
				got += "y"
			} else {
				got += "."
			}
		}
		if got != tc.want {
			t.Errorf("--x11=%s reaches %s, want %s", tc.text, got, tc.want)
		}
	}
	if _, err := ParseX11("some"); err == nil {
		t.Error("--x11=some is taken")
	}
}
