package spec

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// TRES is a vector of trackable resources in integers. The four that every
// job has are fields; all others (gres/gpu, gres/gpu:h100, license/x, bb/x)
// stand in Other, sorted by name, each name once, none zero unless a limit.
type TRES struct {
	CPU     int64       `cbor:"1,keyasint,omitempty"`
	Mem     int64       `cbor:"2,keyasint,omitempty"` // MiB
	Node    int64       `cbor:"3,keyasint,omitempty"`
	Billing int64       `cbor:"4,keyasint,omitempty"`
	Energy  int64       `cbor:"5,keyasint,omitempty"` // joules
	Other   []TRESCount `cbor:"6,keyasint,omitempty"`
}

// TRESCount is one named entry of a vector.
type TRESCount struct {
	Name string `cbor:"1,keyasint"`
	N    int64  `cbor:"2,keyasint"`
}

// Get returns the amount of one TRES by its Slurm name; absent is 0.
func (t TRES) Get(name string) int64 {
	switch name {
	case "cpu":
		return t.CPU
	case "mem":
		return t.Mem
	case "node":
		return t.Node
	case "billing":
		return t.Billing
	case "energy":
		return t.Energy
	}
	i := sort.Search(len(t.Other), func(i int) bool { return t.Other[i].Name >= name })
	if i < len(t.Other) && t.Other[i].Name == name {
		return t.Other[i].N
	}
	return 0
}

// With returns a copy of t with one amount replaced; 0 removes a named entry.
func (t TRES) With(name string, n int64) TRES {
	switch name {
	case "cpu":
		t.CPU = n
	case "mem":
		t.Mem = n
	case "node":
		t.Node = n
	case "billing":
		t.Billing = n
	case "energy":
		t.Energy = n
	default:
		t.Other = withCount(t.Other, name, n)
	}
	return t
}

func withCount(old []TRESCount, name string, n int64) []TRESCount {
	i := sort.Search(len(old), func(i int) bool { return old[i].Name >= name })
	found := i < len(old) && old[i].Name == name
	counts := make([]TRESCount, 0, len(old)+1)
	counts = append(counts, old[:i]...)
	if n != 0 {
		counts = append(counts, TRESCount{Name: name, N: n})
	}
	if found {
		i++
	}
	counts = append(counts, old[i:]...)
	if len(counts) == 0 {
		return nil
	}
	return counts
}

// Add returns t + u.
func (t TRES) Add(u TRES) TRES { return t.combineWith(u, 1) }

// Sub returns t - u; an amount may become negative.
func (t TRES) Sub(u TRES) TRES { return t.combineWith(u, -1) }

func (t TRES) combineWith(u TRES, sign int64) TRES {
	t.CPU += sign * u.CPU
	t.Mem += sign * u.Mem
	t.Node += sign * u.Node
	t.Billing += sign * u.Billing
	t.Energy += sign * u.Energy
	if len(u.Other) > 0 {
		t.Other = mergeCounts(t.Other, u.Other, sign)
	}
	return t
}

func mergeCounts(a, b []TRESCount, sign int64) []TRESCount {
	out := make([]TRESCount, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || (len(a) > 0 && a[0].Name < b[0].Name):
			if a[0].N != 0 {
				out = append(out, a[0])
			}
			a = a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			if b[0].N != 0 {
				out = append(out, TRESCount{b[0].Name, sign * b[0].N})
			}
			b = b[1:]
		default:
			if n := a[0].N + sign*b[0].N; n != 0 {
				out = append(out, TRESCount{a[0].Name, n})
			}
			a, b = a[1:], b[1:]
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Scale returns every amount times k.
func (t TRES) Scale(k int64) TRES {
	t.CPU *= k
	t.Mem *= k
	t.Node *= k
	t.Billing *= k
	t.Energy *= k
	if len(t.Other) > 0 {
		counts := make([]TRESCount, len(t.Other))
		for i, count := range t.Other {
			counts[i] = TRESCount{count.Name, count.N * k}
		}
		t.Other = counts
	}
	return t
}

// Valid tells whether the named amounts are as every method expects them:
// sorted by name, each once, none zero.
func (t TRES) Valid() bool {
	for i, count := range t.Other {
		if count.N == 0 || (i > 0 && t.Other[i-1].Name >= count.Name) {
			return false
		}
	}
	return true
}

// IsZero tells a vector without any amount.
func (t TRES) IsZero() bool {
	return t.CPU == 0 && t.Mem == 0 && t.Node == 0 && t.Billing == 0 && t.Energy == 0 &&
		len(t.Other) == 0
}

// Equal compares two vectors.
func (t TRES) Equal(u TRES) bool { return t.Sub(u).IsZero() }

// All lists the non-zero amounts in Slurm's order: cpu, mem, energy, node,
// billing, then the named ones.
func (t TRES) All() []TRESCount {
	fixed := [...]TRESCount{
		{"cpu", t.CPU},
		{"mem", t.Mem},
		{"energy", t.Energy},
		{"node", t.Node},
		{"billing", t.Billing},
	}
	counts := make([]TRESCount, 0, len(fixed)+len(t.Other))
	for _, count := range fixed {
		if count.N != 0 {
			counts = append(counts, count)
		}
	}
	return append(counts, t.Other...)
}

// String prints the vector as Slurm does: cpu=4,mem=8G,node=1,gres/gpu=2.
func (t TRES) String() string {
	var text strings.Builder
	for i, count := range t.All() {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(count.Name)
		text.WriteByte('=')
		if count.Name == "mem" {
			text.WriteString(memText(count.N))
		} else {
			text.WriteString(strconv.FormatInt(count.N, 10))
		}
	}
	return text.String()
}

// Limits is a TRES vector of limits: only named entries limit. It is kept
// apart from TRES because in a limit 0 means "nothing allowed".
type Limits []TRESCount

// Get returns the limit for a TRES and whether there is one.
func (l Limits) Get(name string) (int64, bool) {
	for _, count := range l {
		if count.Name == name {
			return count.N, true
		}
	}
	return 0, false
}

// String prints limits as sacctmgr does.
func (l Limits) String() string {
	parts := make([]string, len(l))
	for i, count := range l {
		if count.Name == "mem" {
			parts[i] = "mem=" + memText(count.N)
		} else {
			parts[i] = fmt.Sprintf("%s=%d", count.Name, count.N)
		}
	}
	return strings.Join(parts, ",")
}

// ParseLimits reads "cpu=256,gres/gpu=8,mem=1T". An entry of -1 clears that
// limit and is kept as -1 for the caller. It reports every fault at once.
func ParseLimits(text string) (Limits, error) {
	var limits Limits
	var bad []string
	for _, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		n, err := parseAmount(name, strings.TrimSpace(value))
		switch {
		case !ok:
			bad = append(bad, fmt.Sprintf("%q: expected name=number", part))
		case !KnownTRES(name):
			bad = append(bad, fmt.Sprintf("%q: unknown TRES", name))
		case err != nil:
			bad = append(bad, fmt.Sprintf("%s=%q: %v", name, value, err))
		case slices.ContainsFunc(limits, func(c TRESCount) bool { return c.Name == name }):
			bad = append(bad, fmt.Sprintf("%q: given twice", name))
		default:
			limits = append(limits, TRESCount{name, n})
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("%w: %s", ErrBadTRES, strings.Join(bad, "; "))
	}
	sort.SliceStable(
		limits,
		func(i, j int) bool { return tresRank(limits[i].Name) < tresRank(limits[j].Name) },
	)
	return limits, nil
}

func tresRank(name string) string {
	for i, n := range [...]string{"cpu", "mem", "energy", "node", "billing"} {
		if n == name {
			return strconv.Itoa(i)
		}
	}
	return "9" + name
}

// KnownTRES tells whether a name can be a TRES.
func KnownTRES(name string) bool {
	switch name {
	case "cpu", "mem", "energy", "node", "billing", "vmem", "pages", "fs/disk":
		return true
	}
	for _, p := range [...]string{"gres/", "license/", "bb/", "ic/", "fs/"} {
		if strings.HasPrefix(name, p) && len(name) > len(p) {
			return true
		}
	}
	return false
}

func parseAmount(name, value string) (int64, error) {
	if value == "-1" {
		return -1, nil
	}
	if name == "mem" {
		return parseMem(value)
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/4 {
		return 0, fmt.Errorf("not a whole number")
	}
	return n, nil
}

// memText prints MiB as Slurm prints memory in a TRES string: the largest
// unit that divides it.
func memText(mib int64) string {
	units := "MGTP"
	u := 0
	for u < len(units)-1 && mib != 0 && mib%1024 == 0 {
		mib, u = mib/1024, u+1
	}
	return strconv.FormatInt(mib, 10) + units[u:u+1]
}

// parseMem reads 500, 500M, 8G, 1T into MiB.
func parseMem(text string) (int64, error) {
	if text == "" {
		return 0, fmt.Errorf("empty amount")
	}
	mult := int64(1)
	switch text[len(text)-1] {
	case 'K', 'k':
		n, err := strconv.ParseInt(text[:len(text)-1], 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/4 {
			return 0, fmt.Errorf("not an amount of memory")
		}
		return (n + 1023) / 1024, nil
	case 'M', 'm':
		text = text[:len(text)-1]
	case 'G', 'g':
		mult, text = 1<<10, text[:len(text)-1]
	case 'T', 't':
		mult, text = 1<<20, text[:len(text)-1]
	case 'P', 'p':
		mult, text = 1<<30, text[:len(text)-1]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/mult/4 {
		return 0, fmt.Errorf("not an amount of memory")
	}
	return n * mult, nil
}
