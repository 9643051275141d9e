package hostlist

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What a real `scontrol show hostnames / hostlist / hostlistsorted` (22.05)
// prints, but for the last group, and but for the sorted order of names of
// which only some are padded: there Slurm tears series apart.
func TestAsSlurm(t *testing.T) {
	for _, c := range []struct{ expr, names, list, sorted string }{
		{"node[1-3,7,010-012]", "node1 node2 node3 node7 node010 node011 node012", "node[1-3,7,010-012]", "node[1-3,7,010-012]"},
		{"node1,node2,node3,node10", "node1 node2 node3 node10", "node[1-3,10]", "node[1-3,10]"},
		{"node10,node2,node1,node3", "node10 node2 node1 node3", "node[10,2,1,3]", "node[1-3,10]"},
		{"h003,h002,h001", "h003 h002 h001", "h[003,002,001]", "h[001-003]"},
		{"h003,h002,h001,h002", "h003 h002 h001 h002", "h[003,002,001-002]", "h[001-002,002-003]"},
		{"n1,n1,n2,n2,foo,foo,n3", "n1 n1 n2 n2 foo foo n3", "n[1,1-2,2],foo,foo,n3", "foo,foo,n[1,1-2,2-3]"},
		{"r[1-2]n[1-4]", "r1n1 r1n2 r1n3 r1n4 r2n1 r2n2 r2n3 r2n4", "r1n[1-4],r2n[1-4]", "r1n[1-4],r2n[1-4]"},
		{"r[1-2]n[1-2],r10n1,r9n1", "r1n1 r1n2 r2n1 r2n2 r10n1 r9n1", "r1n[1-2],r2n[1-2],r10n1,r9n1", "r1n[1-2],r2n[1-2],r9n1,r10n1"},
		{"n1,,n2,", "n1 n2", "n[1-2]", "n[1-2]"},
		{"n[001-3]", "n001 n002 n003", "n[001-003]", "n[001-003]"},
		{"n9,n10,n099,n100,n09,n10", "n9 n10 n099 n100 n09 n10", "n[9-10,099-100,09-10]", "n[9,09-10,10,099-100]"},
		{"b1,a1,a2,a10,b,a", "b1 a1 a2 a10 b a", "b1,a[1-2,10],b,a", "a,a[1-2,10],b,b1"},
		{"1,2,3", "1 2 3", "[1-3]", "[1-3]"},
		{"tux2,tux1,tux2", "tux2 tux1 tux2", "tux[2,1-2]", "tux[1-2,2]"},
		{"n1,n2,a1,n3,n3,n5,n6", "n1 n2 a1 n3 n3 n5 n6", "n[1-2],a1,n[3,3,5-6]", "a1,n[1-3,3,5-6]"},
		{"n1,n3,n2,n2,n3", "n1 n3 n2 n2 n3", "n[1,3,2,2-3]", "n[1-2,2-3,3]"},
		{"c1,foo,n10,foo,n9,n1,c2-ib,c1-ib,n5", "c1 foo n10 foo n9 n1 c2-ib c1-ib n5", "c1,foo,n10,foo,n[9,1],c2-ib,c1-ib,n5", "c1,c1-ib,c2-ib,foo,foo,n[1,5,9-10]"},
		{"", "", "", ""},
		// Beyond Slurm 22.05, which refuses a suffix.
		{"n[1-3]-ib", "n1-ib n2-ib n3-ib", "n[1-3]-ib", "n1-ib,n2-ib,n3-ib"},
		{"r[1-2]n[1-2]-ib0", "r1n1-ib0 r1n2-ib0 r2n1-ib0 r2n2-ib0", "r1n[1-2]-ib0,r2n[1-2]-ib0", "r1n1-ib0,r1n2-ib0,r2n1-ib0,r2n2-ib0"},
		{"n1[0-1]", "n10 n11", "n1[0-1]", "n[10-11]"},
		{"n[098-101]", "n098 n099 n100 n101", "n[098-101]", "n[098-101]"},
		{"n[8-9],n[10-12]", "n8 n9 n10 n11 n12", "n[8-12]", "n[8-12]"},
		{"n[08-9],n[10-12]", "n08 n09 n10 n11 n12", "n[08-12]", "n[08-12]"},
		{"n[08-09],n[010-012]", "n08 n09 n010 n011 n012", "n[08-09,010-012]", "n[08-09,010-012]"},
		{"n0,n[1-2]", "n0 n1 n2", "n[0-2]", "n[0-2]"},
	} {
		l, err := Parse(c.expr)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		if got := strings.Join(l.Hosts(), " "); got != c.names {
			t.Errorf("%s: names\n got %s\nwant %s", c.expr, got, c.names)
		}
		if got := strings.Join(slices.Collect(l.All()), " "); got != c.names {
			t.Errorf("%s: All\n got %s\nwant %s", c.expr, got, c.names)
		}
		if got := l.String(); got != c.list {
			t.Errorf("%s: list\n got %s\nwant %s", c.expr, got, c.list)
		}
		if got := l.Sorted().String(); got != c.sorted {
			t.Errorf("%s: sorted\n got %s\nwant %s", c.expr, got, c.sorted)
		}
		if l.Len() != len(l.Hosts()) {
			t.Errorf("%s: Len %d of %d names", c.expr, l.Len(), len(l.Hosts()))
		}
		for _, h := range l.Hosts() {
			if !l.Contains(h) {
				t.Errorf("%s: does not contain %s", c.expr, h)
			}
		}
		for _, h := range []string{"", "n", "node", "n01x", "n4-ib", "n0001", "nosuch", "r3n1"} {
			if l.Contains(h) != slices.Contains(l.Hosts(), h) {
				t.Errorf("%s: Contains(%q) = %v", c.expr, h, l.Contains(h))
			}
		}
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct{ expr, want string }{
		{"n1 n2", `invalid host list "n1 n2": white space (separate hosts with commas only) at position 3`},
		{" n1", `invalid host list " n1": white space (separate hosts with commas only) at position 1`},
		{"n1,n2\n", `invalid host list "n1,n2\n": white space (separate hosts with commas only) at position 6`},
		{"n[1- 3]", `invalid host list "n[1- 3]": a number is missing at position 5`},
		{"n[3-1]", `invalid host list "n[3-1]": range 3-1 runs backwards at position 3`},
		{"n[1-010]", `invalid host list "n[1-010]": range 1-010 is zero padded at its end only at position 3`},
		{"n[1,,3]", `invalid host list "n[1,,3]": a number is missing at position 5`},
		{"n[]", `invalid host list "n[]": a number is missing at position 3`},
		{"n[1-3", `invalid host list "n[1-3": '[' without ']' at position 2`},
		{"n[", `invalid host list "n[": '[' without ']' at position 2`},
		{"n[1-", `invalid host list "n[1-": '[' without ']' at position 2`},
		{"n1-3]", `invalid host list "n1-3]": ']' without '[' at position 5`},
		{"n[a-c]", `invalid host list "n[a-c]": a number is missing at position 3`},
		{"n[1-2-3]", `invalid host list "n[1-2-3]": expected ',', '-' or ']', found character '-' at position 6`},
		{"n[1-99999999999]", `invalid host list "n[1-99999999999]": more than 262144 hosts at position 1`},
		{"a,n[1-262144]", `invalid host list "a,n[1-262144]": more than 262144 hosts at position 3`},
		{"n[1-1000]m[1-1000]", `invalid host list "n[1-1000]m[1-1000]": more than 262144 hosts at position 1`},
		{"n[1-9]m[1-9]m[1-9]m[1-9]m[1-9]m[1-9]m[1-9]", `invalid host list "n[1-9]m[1-9]m[1-9]m[1-9]m[1-9]m[1-9]m[1-9]": more than 262144 hosts at position 1`},
		{"n[1-9999999999999999999]", `invalid host list "n[1-9999999999999999999]": number longer than 18 digits at position 5`},
		{"n[[1]]", `invalid host list "n[[1]]": a number is missing at position 3`},
		{"n$(id)", `invalid host list "n$(id)": character '$' at position 2`},
		{"n\x00", `invalid host list "n\x00": character 0x00 at position 2`},
		{"né", `invalid host list "né": character 0xc3 at position 2`},
		{long, `invalid host list "` + long[:60] + `...": host name longer than 255 characters at position 256`},
		{long + "[1]", `invalid host list "` + long[:60] + `...": host name longer than 255 characters at position 1`},
	} {
		_, err := Parse(c.expr)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.expr, err, c.want)
		}
	}
	if l, err := Parse("n[1-262144]"); err != nil || l.Len() != MaxHosts {
		t.Errorf("the largest list: %d, %v", l.Len(), err)
	}
}

func TestUnique(t *testing.T) {
	l, err := Parse("n[1-3],n2,b,a,n[2-5],a")
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Unique().String(); got != "a,b,n[1-5]" {
		t.Errorf("got %s", got)
	}
	if l.String() != "n[1-3,2],b,a,n[2-5],a" {
		t.Errorf("the list itself changed: %s", l)
	}
}

// hostNames draws names that fall into few series, so that ranges form,
// break, overlap, are padded differently and cross powers of ten.
func hostNames() *rapid.Generator[[]string] {
	name := rapid.Custom(func(t *rapid.T) string {
		prefix := rapid.SampledFrom([]string{"n", "n-", "r1n", "r02n", "9", "", "gpu.a"}).Draw(t, "prefix")
		number := rapid.SampledFrom([]string{"", "0", "1", "2", "3", "9", "10", "11", "01", "02", "09", "010", "099", "100", "101",
			"999999999999999999", "1000000000000000000", "1000000000000000001"}).Draw(t, "number")
		suffix := rapid.SampledFrom([]string{"", "", "", "-ib"}).Draw(t, "suffix")
		if prefix+number+suffix == "" {
			return "x"
		}
		return prefix + number + suffix
	})
	return rapid.SliceOfN(name, 0, 30)
}

func TestFoldThenExpandIsIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := hostNames().Draw(t, "hosts")
		back, err := Expand(Fold(hosts))
		if err != nil {
			t.Fatalf("Fold printed %q, which does not parse: %v", Fold(hosts), err)
		}
		if !slices.Equal(back, hosts) && len(back)+len(hosts) > 0 {
			t.Fatalf("%v -> %s -> %v", hosts, Fold(hosts), back)
		}
		// The sorted form is a permutation, and the same for every permutation.
		sorted, err := Expand(FoldSorted(hosts))
		if err != nil {
			t.Fatal(err)
		}
		a, b := slices.Sorted(slices.Values(sorted)), slices.Sorted(slices.Values(hosts))
		if !slices.Equal(a, b) {
			t.Fatalf("sorting lost or made names: %v -> %v", hosts, sorted)
		}
		shuffled := rapid.Permutation(hosts).Draw(t, "shuffled")
		if FoldSorted(shuffled) != FoldSorted(hosts) {
			t.Fatalf("%s and %s", FoldSorted(shuffled), FoldSorted(hosts))
		}
	})
}

// Parse against a slow model: expand by hand, then compare.
func TestParseAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.IntRange(0, 4).Draw(t, "terms")
		var exprs, want []string
		for range terms {
			names, expr := []string{""}, ""
			for i := range rapid.IntRange(1, 3).Draw(t, "brackets") {
				lit := rapid.SampledFrom([]string{"n", "r1", "-x", "q0"}).Draw(t, "literal")
				if i > 0 {
					lit = rapid.SampledFrom([]string{"", "n", "-x"}).Draw(t, "literal")
				}
				lo := rapid.IntRange(0, 12).Draw(t, "lo")
				hi := lo + rapid.IntRange(0, 3).Draw(t, "n")
				width := rapid.IntRange(1, 3).Draw(t, "width")
				expr += lit + "[" + pad(lo, width) + "-" + pad(hi, width) + "]"
				var next []string
				for _, name := range names {
					for n := lo; n <= hi; n++ {
						next = append(next, name+lit+pad(n, width))
					}
				}
				names = next
			}
			suffix := rapid.SampledFrom([]string{"", "-ib", "z9"}).Draw(t, "suffix")
			for i := range names {
				names[i] += suffix
			}
			exprs, want = append(exprs, expr+suffix), append(want, names...)
		}
		expr := strings.Join(exprs, ",")
		l, err := Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Hosts(); !slices.Equal(got, want) {
			t.Fatalf("%s\n got %v\nwant %v", expr, got, want)
		}
		if n, err := Count(expr); n != len(want) || err != nil {
			t.Fatalf("%s: Count %d, %v; want %d", expr, n, err, len(want))
		}
		for _, h := range want {
			if ok, err := Contains(expr, h); !ok || err != nil {
				t.Fatalf("%s does not contain %s", expr, h)
			}
		}
	})
}

func pad(n, width int) string { return string(appendNumber(nil, uint64(n), width)) }

func FuzzParse(f *testing.F) {
	for _, s := range []string{"n[1-3]", "r[1-2]n[001-4,7]-ib,x", "n[1-99999999999]", "a,,b,", "n[", "n[1-2", "[1-3]", "n[08-9],n[10-12]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		l, err := Parse(expr)
		if err != nil {
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Fatalf("error without a position: %v", err)
			}
			return
		}
		if l.Len() > MaxHosts {
			t.Fatalf("%d hosts", l.Len())
		}
		if l.Len() > 10_000 {
			return // allowed, but too slow to check often
		}
		hosts := l.Hosts()
		if len(hosts) != l.Len() {
			t.Fatalf("Len %d, %d names", l.Len(), len(hosts))
		}
		for _, again := range []string{l.String(), Fold(hosts)} {
			back, err := Expand(again)
			if err != nil || !slices.Equal(back, hosts) {
				t.Fatalf("%q -> %q -> %v, %v", expr, again, back, err)
			}
		}
		for _, h := range hosts[:min(len(hosts), 100)] {
			if CheckName(h) != nil || !l.Contains(h) {
				t.Fatalf("%q: %q: %v, contained %v", expr, h, CheckName(h), l.Contains(h))
			}
		}
	})
}
