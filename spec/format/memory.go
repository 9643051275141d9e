package format

import (
	"strconv"
	"strings"
)

// maxAmount bounds amounts so that sums over a cluster stay in an int64.
const maxAmount = int64(1) << 50

const units = "KMGTP"

// amount reads digits and a unit letter: 4G gives 4 and 3; without a letter
// the power is def.
func amount(what, text string, def int) (n int64, power int, err error) {
	number := strings.TrimRight(text, "kKmMgGtTpPbB")
	suffix := lowerASCII(text[len(number):])
	power = def
	if suffix != "" {
		power = strings.IndexByte(lowerASCII(units), suffix[0]) + 1
		if power == 0 || (len(suffix) > 1 && suffix[1:] != "b") {
			return 0, 0, badInput(what, text, "unknown unit; use K, M, G, T or P")
		}
	}
	n, ok := parseDigits(number, maxAmount)
	switch {
	case ok:
		return n, power, nil
	case strings.ContainsRune(number, '.'):
		return 0, 0, badInput(what, text, "fractions are not possible; use a smaller unit")
	case strings.HasPrefix(number, "-"):
		return 0, 0, badInput(what, text, "it is negative")
	case number != "" && strings.Trim(number, "0123456789") == "":
		return 0, 0, badInput(what, text, "it is too large")
	}
	return 0, 0, badInput(what, text, "expected a whole number and at most one of K, M, G, T, P")
}

// ParseMemory reads an amount of memory into MiB, rounded up: 500M, 4G, 1T,
// 1024K (also with a trailing B); a plain number is MiB.
func ParseMemory(text string) (int64, error) {
	n, power, err := amount("memory size", text, 2)
	if err != nil {
		return 0, err
	}
	switch power {
	case 1:
		return (n + 1023) >> 10, nil
	case 2:
		return n, nil
	}
	for ; power > 2; power-- {
		n <<= 10
		if n >= maxAmount {
			return 0, badInput("memory size", text, "it is too large")
		}
	}
	return n, nil
}

// ParseCount reads a whole number with an optional unit that multiplies by
// powers of 1024: 10, 2K, 4G.
func ParseCount(text string) (int64, error) {
	n, power, err := amount("count", text, 0)
	if err != nil {
		return 0, err
	}
	for ; power > 0; power-- {
		n <<= 10
		if n >= maxAmount {
			return 0, badInput("count", text, "it is too large")
		}
	}
	return n, nil
}

// TRESMemory prints MiB in the largest unit that divides it: 500M, 4G, 16000M.
// This is the form of --mem, of TRES strings and of ReqMem.
func TRESMemory(mib int64) string { return Units(mib, 'M', Convert{Exact: true}) }

// Bytes prints bytes in the largest unit that divides them: 3316K, 11085.
// This is the form of sacct's MaxRSS and of usage TRES.
func Bytes(n int64) string { return Units(n, 0, Convert{Exact: true}) }

// Count prints a number in the largest unit that divides it: 2K for 2048.
func Count(n int64) string { return Bytes(n) }

// Convert says how [Units] may change the unit.
type Convert struct {
	To       byte // print in this unit (--units=G): K, M, G, T, P
	Keep     bool // print in the unit it is in (--noconvert)
	Exact    bool // leave a unit only if nothing is lost
	Decimal  bool // divide by 1000, not 1024
	Fraction bool // always two digits after the point, as sacct's disk columns: 0.01M
}

// Units prints n, given in unit from (0 for none, else one of KMGTP), as Slurm
// prints amounts: 0 has no unit, whole numbers have no point, others two
// digits after it.
func Units(n int64, from byte, convert Convert) string {
	at := strings.IndexByte(units, from) // -1 for no unit
	if n == 0 && !convert.Fraction {
		return "0"
	}
	div := int64(1024)
	if convert.Decimal {
		div = 1000
	}
	value := float64(n) // divisions by 1024 are exact, and what is printed decides nothing
	switch to := strings.IndexByte(units, convert.To); {
	case convert.Keep:
	case to >= 0:
		for ; at < to; at++ {
			value /= float64(div)
		}
		for ; at > to; at-- {
			value *= float64(div)
		}
	case convert.Exact:
		for ; n != 0 && n%div == 0 && at < len(units)-1; at++ {
			n /= div
		}
		value = float64(n)
		if at < 0 {
			return strconv.FormatInt(n, 10)
		}
		return strconv.FormatInt(n, 10) + units[at:at+1]
	default:
		for ; (value >= float64(div) || value <= -float64(div)) && at < len(units)-1; at++ {
			value /= float64(div)
		}
	}
	precision := 2
	if value == float64(int64(value)) && !convert.Fraction {
		precision = 0
	}
	buffer := strconv.AppendFloat(nil, value, 'f', precision, 64)
	if at >= 0 {
		buffer = append(buffer, units[at])
	}
	return string(buffer)
}
