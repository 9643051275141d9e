package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/tidy"
)

// measured gives the figures of one package made of the given files.
func measured(t *testing.T, sources map[string]string) (figures, []string) {
	t.Helper()
	files := map[string][]byte{}
	for name, src := range sources {
		files["p/"+name] = []byte(src)
	}
	tree := tidy.FromSources("example.com/m", files)
	tree.CheckWith(nil)
	out := measureTree(tree, "")
	if len(out.packages) != 1 {
		t.Fatalf("measured %d packages, want 1", len(out.packages))
	}
	return out.packages[0], out.places
}

func TestStatements(t *testing.T) {
	got, places := measured(t, map[string]string{"a.go": `package p

func doWork(first, second int) (sum int) {
	a, b, c := 1, 2, 3
	a, b, c = b, c, a // a rotation is one thought
	if a = b; a > 1 {
		return 1
	}
	if doWork(1, 2); b > 2 {
		return 2
	}
	if x := a; b > c && a > 1 && c > 2 && (b > 3 || a > 4) {
		return x
	}
	if y := b; y > 1 && a > 1 && c > 2 && b > 3 {
		return y
	}
	return c
}

func run() {}
`})
	want := figures{dir: "p", files: 1, lines: 21, multi: 1, ifAssign: 1, ifUnrelated: 2, longCond: 1, functions: 2, oneWord: 1,
		locals: 8, letters: len("first") + len("second") + len("sum") + 5, comments: 1}
	if got != want {
		t.Errorf("measured\n %+v\nwant\n %+v", got, want)
	}
	for _, place := range []string{"multi p/a.go:4", "if= p/a.go:6", "ifcall p/a.go:9", "ifcall p/a.go:12", "cond5 p/a.go:12", "oneword p/a.go:21 run"} {
		if !slices.Contains(places, place) {
			t.Errorf("no place %q in\n%s", place, strings.Join(places, "\n"))
		}
	}
}

func TestArrows(t *testing.T) {
	got, _ := measured(t, map[string]string{
		"a.go": "package p\n\nfunc top() { middle(); bottom() }\n",
		"b.go": "package p\n\nfunc middle() { var v value; v.close() }\n",
		"c.go": "package p\n\ntype value struct{}\n\nfunc (value) close() {}\n\nfunc bottom() { middle() }\n",
	})
	// a->b, a->c, b->c and c->b: one of the last two runs upward in any order.
	if got.arrows != 4 || got.upward != 1 {
		t.Errorf("arrows %d, upward %d, want 4 and 1", got.arrows, got.upward)
	}
	if got.largest != "value" || got.methods != 1 {
		t.Errorf("largest type %s with %d methods, want value with 1", got.largest, got.methods)
	}
}

// TestOrderIsBest compares the greedy order with all orders of small graphs.
func TestOrderIsBest(t *testing.T) {
	const n = 4
	pairs := []arrow{}
	for i := range n {
		for j := range n {
			if i != j {
				pairs = append(pairs, arrow{i, j})
			}
		}
	}
	worse := 0
	for set := range 1 << len(pairs) {
		arrows := map[arrow]bool{}
		for i, a := range pairs {
			if set>>i&1 == 1 {
				arrows[a] = true
			}
		}
		got := upwardIn(orderFiles(n, arrows), arrows)
		best := fewestUpward(n, arrows)
		if got < best {
			t.Fatalf("%d upward arrows, below the least possible %d: the count is wrong", got, best)
		}
		if got > best {
			worse++
		}
	}
	if worse*100 > 1<<len(pairs) {
		t.Errorf("the greedy order is not the best for %d of %d graphs, more than 1 %%", worse, 1<<len(pairs))
	}
}

func upwardIn(place []int, arrows map[arrow]bool) int {
	n := 0
	for a := range arrows {
		if place[a.from] > place[a.to] {
			n++
		}
	}
	return n
}

func fewestUpward(n int, arrows map[arrow]bool) int {
	best := len(arrows)
	place := make([]int, n)
	for i := range place {
		place[i] = i
	}
	var permute func(k int)
	permute = func(k int) {
		if k == n {
			best = min(best, upwardIn(place, arrows))
			return
		}
		for i := k; i < n; i++ {
			place[k], place[i] = place[i], place[k]
			permute(k + 1)
			place[k], place[i] = place[i], place[k]
		}
	}
	permute(0)
	return best
}

func TestComments(t *testing.T) {
	got, _ := measured(t, map[string]string{"a.go": `// Package p counts.
package p

// x is kept because readers hold it.
//
//muster:global x
/* It must
   stay small. */
var x int
`})
	if got.comments != 4 || got.reasons != 2 {
		t.Errorf("%d comment lines, %d of them reasons, want 4 and 2", got.comments, got.reasons)
	}
}

func TestWords(t *testing.T) {
	for name, want := range map[string]string{"run": "run", "readGPUs": "read GPUs", "GPUCount": "GPU Count", "a_b": "a b", "parseURLOnce": "parse URL Once", "N": "N"} {
		if got := strings.Join(words(name), " "); got != want {
			t.Errorf("words(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestSubjects(t *testing.T) {
	got := measureSubjects([]string{"cli: print one line", "a; b", strings.Repeat("x", 73), strings.Repeat("ü", 72)})
	if want := "commit subjects: 4, over 72 columns 25 %, with \";\" 25 %\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
