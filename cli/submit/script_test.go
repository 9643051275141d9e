package submit

import (
	"fmt"
	"strings"
	"testing"
)

func FuzzDirectives(f *testing.F) {
	f.Add("#!/bin/sh\n#SBATCH -J \"a b\" --time=5 # x\n\necho\n#SBATCH -n 2\n")
	f.Add("#!/bin/sh\n#SBATCH -J 'a\n")
	f.Add("#SBATCH \\\n#SBATCH\t--x=\"\\\"\"")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := splitDirectives([]byte(text))
		if err != nil {
			return
		}
		size := 0
		for _, words := range list {
			if len(words) == 0 {
				t.Fatal("an empty directive")
			}
			for _, word := range words {
				size += len(word)
			}
		}
		if size > len(text) || len(list) > strings.Count(text, directiveMark) {
			t.Fatalf("%q gives %q", text, list)
		}
		// What follows the first command changes nothing.
		again, err := splitDirectives([]byte(strings.TrimRight(text, "\n") + "\ncommand\n#SBATCH --late\n"))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(list) {
			t.Fatalf("%q: %q, then %q %v", text, list, again, err)
		}
	})
}

func FuzzExport(f *testing.F) {
	f.Add("ALL,A='x,y',B")
	f.Fuzz(func(t *testing.T, list string) {
		words, err := exportWords(list)
		if err != nil {
			return
		}
		size := 0
		for _, w := range words {
			if w == "" {
				t.Fatal("an empty word")
			}
			size += len(w)
		}
		if size > len(list) {
			t.Fatalf("%q gives %q", list, words)
		}
	})
}
