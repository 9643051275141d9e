package submit

import "testing"

func TestDistributions(t *testing.T) {
	for text, want := range map[string]string{"block": "block", "cyclic": "cyclic", "*": "block", "Block:Cyclic": "block:cyclic", "cyclic:fcyclic:block": "cyclic:fcyclic:block",
		"*:cyclic": "block:cyclic", "block:*:*": "block:cyclic:cyclic", "block,NoPack": "block,nopack", "nopack": "block,nopack",
		"plane=4": "plane=4", "plane": "plane=2", "unknown": "block", "arbitrary": "arbitrary"} {
		if got, err := parseDistribution(text, "2"); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "round", "block:round", "block:block:block:block", "plane=0", "plane=x", "block,both"} {
		if got, err := parseDistribution(bad, "2"); err == nil {
			t.Errorf("%q is accepted as %q", bad, got)
		}
	}
}
