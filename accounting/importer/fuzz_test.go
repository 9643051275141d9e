package importer

import (
	"strings"
	"testing"
)

// FuzzColumns reads the first line of a dump.
func FuzzColumns(f *testing.F) {
	f.Add("JobIDRaw|Cluster|State|Start|End|AllocTRES")
	f.Add("JobID%20|-|-|Submit")
	f.Fuzz(func(t *testing.T, text string) {
		list := strings.Split(text, "|")
		out, err := parseColumns(list)
		if err == nil && len(out) != len(list) {
			t.Fatalf("%q has %d columns, %d are read", text, len(list), len(out))
		}
	})
}

// FuzzTRES reads the amounts of a dump.
func FuzzTRES(f *testing.F) {
	for _, text := range []string{"cpu=4,mem=1000M,node=1,gres/gpu=2", "billing=9223372036854775807", "mem=1.5T", "energy=x", "gpu:h100:2(S:0-1)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := parseTRES(text)
		if err != nil && err.Error() == "" {
			t.Fatalf("%q is refused without a word", text)
		}
		if n := parseGRES(text); n < 0 {
			t.Fatalf("%q are %d GPUs", text, n)
		}
		if id, ok := parseIDs(text, text); ok && id.id == 0 {
			t.Fatalf("%q is job 0", text)
		}
	})
}
