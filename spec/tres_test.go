package spec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var tresNames = []string{"cpu", "mem", "node", "billing", "energy", "gres/gpu", "gres/gpu:a100", "gres/gpu:h100", "license/matlab", "bb/x"}

// vector draws a vector with its model, a plain map without zeros.
func vector(t *rapid.T, label string) (TRES, map[string]int64) {
	model := make(map[string]int64)
	var v TRES
	for range rapid.IntRange(0, 8).Draw(t, label+" entries") {
		name := rapid.SampledFrom(tresNames).Draw(t, "name")
		n := rapid.Int64Range(-5, 5).Draw(t, "n")
		v = v.With(name, n)
		model[name] = n
		if n == 0 {
			delete(model, name)
		}
	}
	return v, model
}

func sameVector(t *rapid.T, what string, v TRES, model map[string]int64) {
	t.Helper()
	if !v.Valid() {
		t.Fatalf("%s: %v is not valid", what, v)
	}
	for _, name := range append(tresNames, "gres/none", "zzz") {
		if v.Get(name) != model[name] {
			t.Fatalf("%s: %s is %d, want %d", what, name, v.Get(name), model[name])
		}
	}
	all := make(map[string]int64)
	for _, c := range v.All() {
		if _, twice := all[c.Name]; twice || c.N == 0 {
			t.Fatalf("%s: All lists %v", what, v.All())
		}
		all[c.Name] = c.N
	}
	if !maps.Equal(all, model) {
		t.Fatalf("%s: All gives %v, want %v", what, all, model)
	}
	if v.IsZero() != (len(model) == 0) {
		t.Fatalf("%s: IsZero is %v for %v", what, v.IsZero(), model)
	}
}

// TestVectors compares the algebra with plain maps, and that no operation
// changes what it was given.
func TestVectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, ma := vector(t, "a")
		b, mb := vector(t, "b")
		k := rapid.Int64Range(-3, 3).Draw(t, "k")
		sameVector(t, "With", a, ma)
		combined := func(sign int64) map[string]int64 {
			out := maps.Clone(ma)
			for name, n := range mb {
				if out[name] += sign * n; out[name] == 0 {
					delete(out, name)
				}
			}
			return out
		}
		sameVector(t, "Add", a.Add(b), combined(1))
		sameVector(t, "Sub", a.Sub(b), combined(-1))
		if k != 0 {
			scaled := make(map[string]int64)
			for name, n := range ma {
				scaled[name] = n * k
			}
			sameVector(t, "Scale", a.Scale(k), scaled)
		}
		if a.Equal(b) != maps.Equal(ma, mb) || !a.Equal(a) {
			t.Fatalf("Equal(%v, %v) is %v", a, b, a.Equal(b))
		}
		if !a.Add(b).Sub(b).Equal(a) || !a.Add(b).Equal(b.Add(a)) {
			t.Fatal("addition does not commute or subtraction does not undo it")
		}
		sameVector(t, "a, afterwards", a, ma)
		sameVector(t, "b, afterwards", b, mb)
	})
}

func TestVectorsForgetZeros(t *testing.T) {
	dirty := TRES{Other: []TRESCount{{"gres/gpu", 0}}}
	if dirty.Valid() || !dirty.Add(dirty).IsZero() || !(TRES{}).Sub(dirty).IsZero() {
		t.Error("a zero entry survives a sum")
	}
	for _, v := range []TRES{{Other: []TRESCount{{"b", 1}, {"a", 1}}}, {Other: []TRESCount{{"a", 1}, {"a", 1}}}} {
		if v.Valid() {
			t.Errorf("%v passes as valid", v.Other)
		}
	}
}

func TestVectorText(t *testing.T) {
	v := TRES{CPU: 4, Mem: 8192, Node: 1, Billing: 7, Energy: 9}.With("gres/gpu:h100", 2).With("gres/gpu", 2)
	if got, want := v.String(), "cpu=4,mem=8G,energy=9,node=1,billing=7,gres/gpu=2,gres/gpu:h100=2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for mib, want := range map[int64]string{1: "1M", 1000: "1000M", 1024: "1G", 1536: "1536M", 1 << 20: "1T", 1 << 30: "1P", 1 << 40: "1024P"} {
		if got := (TRES{Mem: mib}).String(); got != "mem="+want {
			t.Errorf("%d MiB: %s, want %s", mib, got, want)
		}
	}
	if got := (TRES{}).String(); got != "" {
		t.Errorf("nothing prints as %q", got)
	}
}

func TestParseLimits(t *testing.T) {
	for _, tt := range []struct{ in, want, fault string }{
		{"", "", ""},
		{" , ", "", ""},
		{"cpu=256", "cpu=256", ""},
		{"gres/gpu=8, cpu=4,MEM=1T,node=2", "cpu=4,mem=1T,node=2,gres/gpu=8", ""},
		{"mem=1536M", "mem=1536M", ""},
		{"mem=0", "mem=0M", ""},
		{"mem=1G,cpu=1,mem=0", "", `"mem": given twice`},
		{"mem=1025K", "mem=2M", ""},
		{"mem=500", "mem=500M", ""},
		{"cpu=0", "cpu=0", ""},
		{"cpu=-1,gres/gpu:h100=-1", "cpu=-1,gres/gpu:h100=-1", ""},
		{"license/matlab=3,bb/x=1,fs/disk=2,billing=1,energy=7", "energy=7,billing=1,bb/x=1,fs/disk=2,license/matlab=3", ""},
		{"cpu", "", `"cpu": expected name=number`},
		{"cpus=4", "", `"cpus": unknown TRES`},
		{"gres/=4", "", `"gres/": unknown TRES`},
		{"cpu=-2", "", `cpu="-2": not a whole number`},
		{"cpu=1.5", "", `cpu="1.5": not a whole number`},
		{"cpu=", "", `cpu="": not a whole number`},
		{"cpu=9999999999999999999", "", "not a whole number"},
		{"mem=4X", "", "not an amount of memory"},
		{"mem=", "", "empty amount"},
		{"mem=9223372036854775807K", "", "not an amount of memory"},
		{"mem=9007199254740992P", "", "not an amount of memory"},
		{"nope=1,cpu=x,mem", "", `"nope": unknown TRES; cpu="x": not a whole number; "mem": expected name=number`},
	} {
		l, err := ParseLimits(tt.in)
		if tt.fault != "" {
			if !errors.Is(err, ErrBadTRES) || !strings.Contains(err.Error(), tt.fault) || l != nil {
				t.Errorf("%q: %v, %v, want %s", tt.in, l, err, tt.fault)
			}
			continue
		}
		if err != nil || l.String() != tt.want {
			t.Errorf("%q: %s, %v, want %s", tt.in, l, err, tt.want)
			continue
		}
		again, err := ParseLimits(l.String())
		if err != nil || !slices.Equal(again, l) {
			t.Errorf("%q: printed %s and read again %s (%v)", tt.in, l, again, err)
		}
	}
}

func TestLimitsGet(t *testing.T) {
	l := Limits{{"cpu", 0}, {"gres/gpu", 4}}
	for name, want := range map[string]string{"cpu": "0 true", "gres/gpu": "4 true", "mem": "0 false"} {
		n, ok := l.Get(name)
		if got := fmt.Sprint(n, ok); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// FuzzParseLimits: any text gives limits that print and read back, or an
// error that says which entry is wrong.
func FuzzParseLimits(f *testing.F) {
	for _, s := range []string{"cpu=256,gres/gpu=8,mem=1T", "mem=0", "cpu=-1", "a=b,c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLimits(s)
		if err != nil {
			if !errors.Is(err, ErrBadTRES) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := ParseLimits(l.String())
		if err != nil || !slices.Equal(again, l) {
			t.Fatalf("%q gives %v, printed %q, read again %v (%v)", s, l, l, again, err)
		}
	})
}

func TestNodeVector(t *testing.T) {
	n := NodeSpec{CPUs: 64, Mem: 1000, MemSpecLimit: 100, GRES: []GRESSpec{{Name: "gpu", Type: "h100", N: 4}, {Name: "gpu", Type: "a100", N: 2}, {Name: "nic", N: 1}}}
	if got, want := n.NodeTRES().String(), "cpu=64,mem=900M,node=1,gres/gpu=6,gres/gpu:a100=2,gres/gpu:h100=4,gres/nic=1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
