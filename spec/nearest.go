package spec

import "strings"

// Nearest is the name that is most like a word that nobody knows: the one with the fewest letters
// added, left out, replaced or exchanged with the next. It is empty where none is like it, which
// is where more than a third of the letters differ. Of several the first is meant.
func Nearest(word string, names []string) string {
	word = strings.ToLower(word)
	best, least := "", len(word)/3+1
	for _, name := range names {
		if n := editDistance(word, strings.ToLower(name)); n < least {
			best, least = name, n
		}
	}
	return best
}

// editDistance counts the changes of single letters that make one word of another; two letters
// that have changed places are one change.
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
