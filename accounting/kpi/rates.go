package kpi

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Rates turn use into money and carbon.
type Rates struct {
	Currency string
	Prices   []PriceList // by From
	Carbon   []Intensity // by From
	PUE      int64       // thousandths: what the site draws by what the computers draw
	Budgets  []Budget
}

// PriceList holds from its instant on, until the next.
type PriceList struct {
	From spec.Instant
	Per  []Price // by TRES
}

// Price is what one unit of a TRES costs in an hour; memory's unit is a GiB.
type Price struct {
	TRES  string
	Micro int64 // millionths of the currency
}

// Intensity is what a kWh emits, from its instant on.
type Intensity struct {
	From  spec.Instant
	Milli int64 // thousandths of a gram of CO2e
}

// Budget is what an account, with all below it, may spend.
type Budget struct {
	Account    string
	Start, End spec.Instant // half open
	Micro      int64        // millionths of the currency
	Warn       []int64      // percentages at which a warning is due, ascending
	Enforce    bool         // jobs that it does not pay for do not start
}

// CostScale is what one unit of the currency is in the exact sums: prices are
// millionths for an hour, times microseconds, and memory is counted in 1024ths.
const CostScale = 1_000_000 * 3_600_000_000 * 1024

// ErrRate tells a price, an intensity or a budget that cannot be read.
var ErrRate = errors.New("cannot be read")

func bad(line, format string, args ...any) error {
	return fmt.Errorf("%q %w: %s", line, ErrRate, fmt.Sprintf(format, args...))
}

// ParsePrices reads "2026-01-01 cpu=0.012 mem=0.002 gres/gpu=1.50": from that
// day on (UTC), for each unit and hour, memory by the GiB.
func ParsePrices(line string) (PriceList, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return PriceList{}, bad(
			line,
			"write the day from which it holds, then TRES=PRICE, as in 2026-01-01 cpu=0.012 gres/gpu=1.50",
		)
	}
	from, err := day(fields[0])
	if err != nil {
		return PriceList{}, bad(line, "%v", err)
	}
	list := PriceList{From: from}
	for _, part := range fields[1:] {
		name, price, ok := strings.Cut(part, "=")
		micro, err := decimal(price, 1_000_000)
		switch {
		case !ok || err != nil:
			return PriceList{}, bad(
				line,
				"%s is not TRES=PRICE with a price like 1.50 of at most six decimals",
				part,
			)
		case !priceable(name):
			return PriceList{}, bad(
				line,
				"%s has no price: it is one of cpu, mem, node, billing, gres/NAME, license/NAME",
				name,
			)
		case slices.ContainsFunc(list.Per, func(p Price) bool { return p.TRES == name }):
			return PriceList{}, bad(line, "%s stands twice", name)
		}
		list.Per = append(list.Per, Price{name, micro})
	}
	slices.SortFunc(list.Per, func(a, b Price) int { return strings.Compare(a.TRES, b.TRES) })
	return list, nil
}

func priceable(name string) bool {
	for _, prefix := range [...]string{"gres/", "license/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest != ""
		}
	}
	return slices.Contains([]string{"cpu", "mem", "node", "billing"}, name)
}

// ParseIntensity reads "2026-01-01 380": grams of CO2e for a kWh from that day
// on.
func ParseIntensity(line string) (Intensity, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return Intensity{}, bad(
			line,
			"write the day from which it holds and the grams of CO2e for a kWh, as in 2026-01-01 380",
		)
	}
	from, err := day(fields[0])
	if err != nil {
		return Intensity{}, bad(line, "%v", err)
	}
	milli, err := decimal(fields[1], 1000)
	if err != nil {
		return Intensity{}, bad(line, "%s is no number of grams", fields[1])
	}
	return Intensity{from, milli}, nil
}

// ParseBudget reads "ml 2026-01-01 2027-01-01 120000 warn=80,95 enforce": the
// account, the first day and the day after the last, the amount, at which
// percentages a warning is due (80 and 95 if nothing is said), and that it is
// enforced.
func ParseBudget(line string) (Budget, error) {
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return Budget{}, bad(line, "write ACCOUNT FIRST-DAY END-DAY AMOUNT [warn=80,95] [enforce]")
	}
	budget := Budget{Account: fields[0], Warn: []int64{80, 95}}
	var err error
	budget.Start, err = day(fields[1])
	if err == nil {
		budget.End, err = day(fields[2])
	}
	if err != nil {
		return Budget{}, bad(line, "%v", err)
	}
	if budget.End <= budget.Start {
		return Budget{}, bad(line, "it ends before it begins")
	}
	budget.Micro, err = decimal(fields[3], 1_000_000)
	if err != nil || budget.Micro == 0 {
		return Budget{}, bad(line, "%s is no amount", fields[3])
	}
	for _, word := range fields[4:] {
		list, ok := strings.CutPrefix(word, "warn=")
		switch {
		case word == "enforce":
			budget.Enforce = true
			continue
		case !ok:
			return Budget{}, bad(line, "%s is neither warn=PERCENT,PERCENT nor enforce", word)
		}
		budget.Warn = nil
		for _, p := range strings.Split(list, ",") {
			n, err := strconv.ParseInt(strings.TrimSuffix(p, "%"), 10, 64)
			if err != nil || n < 1 || n > 1000 {
				return Budget{}, bad(line, "%s is no percentage", p)
			}
			budget.Warn = append(budget.Warn, n)
		}
		slices.Sort(budget.Warn)
	}
	return budget, nil
}

// ParseRates reads all of them; an empty pue is 1.
func ParseRates(currency, pue string, prices, carbon, budgets []string) (Rates, error) {
	rates := Rates{Currency: currency, PUE: 1000}
	if pue != "" {
		var err error
		rates.PUE, err = decimal(pue, 1000)
		if err != nil || rates.PUE < 1000 {
			return rates, bad(pue, "a PUE is a number of at least 1, such as 1.4")
		}
	}
	var err error
	rates.Prices, err = each(prices, ParsePrices, func(p PriceList) spec.Instant { return p.From })
	if err != nil {
		return rates, err
	}
	rates.Carbon, err = each(carbon, ParseIntensity, func(i Intensity) spec.Instant {
		return i.From
	})
	if err != nil {
		return rates, err
	}
	for _, line := range budgets {
		budget, err := ParseBudget(line)
		if err != nil {
			return rates, err
		}
		for _, o := range rates.Budgets {
			if o.Account == budget.Account && o.Start < budget.End && budget.Start < o.End {
				return rates, bad(line, "%s has another budget at the same time", budget.Account)
			}
		}
		rates.Budgets = append(rates.Budgets, budget)
	}
	return rates, nil
}

// each parses lines and sorts what they say by the day from which it holds.
func each[T any](
	lines []string,
	parse func(string) (T, error),
	from func(T) spec.Instant,
) ([]T, error) {
	var out []T
	for _, line := range lines {
		v, err := parse(line)
		if err != nil {
			return nil, err
		}
		for _, o := range out {
			if from(o) == from(v) {
				return nil, bad(line, "another one begins on the same day")
			}
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(from(a), from(b)) })
	return out, nil
}

// day reads 2026-01-31: its first instant in UTC.
func day(text string) (spec.Instant, error) {
	fail := fmt.Errorf("%s is no day: write it as in 2026-01-31", text)
	if len(text) != 10 || text[4] != '-' || text[7] != '-' {
		return 0, fail
	}
	var n [3]int64
	for i, part := range [...]string{text[:4], text[5:7], text[8:]} {
		u, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return 0, fail
		}
		n[i] = int64(u)
	}
	year := n[0]
	month := n[1]
	mday := n[2]
	if year < 1970 || year > 2200 || month < 1 || month > 12 {
		return 0, fail
	}
	if mday < 1 || mday > daysOf(year, month) {
		return 0, fail
	}
	days := mday - 1
	for before := int64(1970); before < year; before++ {
		days += 365
		if isLeap(before) {
			days++
		}
	}
	for before := int64(1); before < month; before++ {
		days += daysOf(year, before)
	}
	return spec.AtUnix(days * 86_400), nil
}

func isLeap(year int64) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

// daysOf is how many days a month has.
func daysOf(year, month int64) int64 {
	if month == 2 && isLeap(year) {
		return 29
	}
	return [...]int64{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
}

// decimal reads a number that is not negative, exactly, in parts of a unit.
func decimal(text string, scale int64) (int64, error) {
	whole, frac, _ := strings.Cut(text, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/scale/2) {
		return 0, ErrRate
	}
	out := int64(n) * scale
	for _, c := range frac {
		scale /= 10
		if c < '0' || c > '9' || (scale == 0 && c != '0') {
			return 0, ErrRate
		}
		out += int64(c-'0') * scale
	}
	return out, nil
}
