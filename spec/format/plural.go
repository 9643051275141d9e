package format

import "fmt"

// Plural writes a number with what it counts: Plural(n, "job runs", "jobs run") is
// "1 job runs" or "2 jobs run".
func Plural[N int | int64 | uint32 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
