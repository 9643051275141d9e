package hostlist

import (
	"cmp"
	"slices"
)

// sorted is a host taken apart for comparison.
type sorted struct {
	host   string
	prefix string
	n      uint64
	class  int // padding: the width of the padded series it belongs to, 1 for none, 0 for no number
}

// sortHosts orders names in place: prefix in natural order, names without a
// number first, then by padding, then by number.
//
// An unpadded number such as 100 belongs to the padded series 001..100 if
// its prefix has one; otherwise a fold would tear that series apart.
func sortHosts(hosts []string) []string {
	items := make([]sorted, len(hosts))
	groups := make(map[string]int) // prefix -> bit set of padded widths
	for i, h := range hosts {
		at := len(h)
		for at > 0 && len(h)-at < maxDigits && isDigit(h[at-1]) {
			at--
		}
		items[i] = sorted{host: h, prefix: h[:at]}
		if at == len(h) {
			continue
		}
		items[i].n, _ = parseNumber(h[at:])
		items[i].class = 1
		if width := len(h) - at; width > 1 && h[at] == '0' {
			items[i].class = width
			groups[h[:at]] |= 1 << width
		}
	}
	for i := range items {
		it := &items[i]
		if it.class != 1 {
			continue
		}
		if widths := groups[it.prefix]; widths != 0 {
			for w := countDigits(it.n); w > 1; w-- {
				if widths&(1<<w) != 0 {
					it.class = w
					break
				}
			}
		}
	}
	slices.SortFunc(items, compare)
	for i := range items {
		hosts[i] = items[i].host
	}
	return hosts
}

func compare(a, b sorted) int {
	if a.prefix != b.prefix {
		if c := natural(a.prefix, b.prefix); c != 0 {
			return c
		}
		return cmp.Compare(a.prefix, b.prefix)
	}
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.n, b.n), cmp.Compare(a.host, b.host))
}

// natural compares text byte by byte and runs of digits by value: r9n < r10n.
func natural(a, b string) int {
	for a != "" && b != "" {
		if isDigit(a[0]) && isDigit(b[0]) {
			x, y := digits(a), digits(b)
			if c := cmp.Or(cmp.Compare(len(trim(x)), len(trim(y))), cmp.Compare(trim(x), trim(y))); c != 0 {
				return c
			}
			a, b = a[len(x):], b[len(y):]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(text string) string {
	i := 0
	for i < len(text) && isDigit(text[i]) {
		i++
	}
	return text[:i]
}

func trim(text string) string {
	for len(text) > 1 && text[0] == '0' {
		text = text[1:]
	}
	return text
}
