package hostlist

import (
	"math/rand/v2"
	"strings"
	"testing"
)

const benchHosts = 100_000

func names(b *testing.B) []string {
	hosts, err := Expand("node[000001-100000]")
	if err != nil || len(hosts) != benchHosts {
		b.Fatal(len(hosts), err)
	}
	return hosts
}

func BenchmarkExpandRange(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if hosts, _ := Expand("node[000001-100000]"); len(hosts) != benchHosts {
			b.Fatal(len(hosts))
		}
	}
}

func BenchmarkParseNames(b *testing.B) {
	expr := strings.Join(names(b), ",")
	b.ReportAllocs()
	for b.Loop() {
		if l, err := Parse(expr); l.Len() != benchHosts {
			b.Fatal(err)
		}
	}
}

// Every other host: no two names join, 50,000 ranges in one bracket.
func BenchmarkParseScattered(b *testing.B) {
	var odd []string
	for i, h := range names(b) {
		if i%2 == 0 {
			odd = append(odd, h)
		}
	}
	expr := Fold(odd)
	b.ReportAllocs()
	for b.Loop() {
		if l, err := Parse(expr); l.Len() != len(odd) {
			b.Fatal(err)
		}
	}
}

func BenchmarkFold(b *testing.B) {
	hosts := names(b)
	b.ReportAllocs()
	for b.Loop() {
		if Fold(hosts) != "node[000001-100000]" {
			b.Fatal()
		}
	}
}

func BenchmarkFoldSortedShuffled(b *testing.B) {
	hosts := names(b)
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	b.ReportAllocs()
	for b.Loop() {
		if FoldSorted(hosts) != "node[000001-100000]" {
			b.Fatal()
		}
	}
}

func BenchmarkFoldRacks(b *testing.B) {
	hosts, _ := Expand("r[1-1000]n[1-100]")
	b.ReportAllocs()
	for b.Loop() {
		if len(FoldSorted(hosts)) == 0 {
			b.Fatal()
		}
	}
}

func BenchmarkCount(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if n, _ := Count("r[1-1000]n[1-100]"); n != benchHosts {
			b.Fatal(n)
		}
	}
}

func BenchmarkContains(b *testing.B) {
	l, _ := Parse("node[000001-100000]")
	for b.Loop() {
		if !l.Contains("node099999") {
			b.Fatal()
		}
	}
}
