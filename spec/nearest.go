package spec

import "strings"

// maxNearestWord is the longest word that Nearest compares.
const maxNearestWord = 64

// Nearest is the known name that a misspelt word most likely stands for: one that differs by at
// most a third of its letters, and by at most three. It is empty if no name is so near.
func Nearest(word string, names []string) string {
	return NearestWithin(word, names, min(3, (len(word)+1)/3))
}

// NearestWithin is the name that differs from a word by the fewest letters, and by at most so
// many. It is empty if no name is so near, or shares no letter with the word. The first of equally
// near names wins, and case is ignored.
func NearestWithin(word string, names []string, letters int) string {
	if len(word) > maxNearestWord {
		return ""
	}
	word = strings.ToLower(word)
	best := ""
	limit := letters + 1
	for _, name := range names {
		n := editDistance(word, strings.ToLower(name), limit)
		if n < limit && n < len(name) {
			best = name
			limit = n
		}
	}
	return best
}

// editDistance counts the letters to insert, delete, change or swap to get from a
// to b; anything from limit up is limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before := make([]int, len(b)+1)
	above := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return min(above[len(b)], limit)
}
