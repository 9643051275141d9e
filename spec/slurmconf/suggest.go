package slurmconf

import "strings"

// nearestName finds the known name that someone who wrote this most likely meant;
// empty if none is near. The first of equally near names wins.
func nearestName(written string, known []string) string {
	if len(written) > 64 {
		return ""
	}
	best, at := "", 1+min(3, (len(written)+1)/3)
	for _, k := range known {
		if d := editDistance(strings.ToLower(written), strings.ToLower(k), at); d < at {
			best, at = k, d
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
