package slurm

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxLine bounds a line of a command's output.
const maxLine = 8 << 20

// records reads scontrol's one-line records: each a map of its words. A value
// may hold spaces: it ends where the next Key= begins.
func records(r io.Reader) ([]map[string]string, error) {
	var out []map[string]string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		rec, key := map[string]string{}, ""
		for _, f := range fields {
			k, v, ok := strings.Cut(f, "=")
			if ok && wordKey(k) {
				key = k
				rec[key] = v
			} else if key != "" {
				rec[key] += " " + f
			}
		}
		if len(rec) > 0 {
			out = append(out, rec)
		}
	}
	return out, sc.Err()
}

func wordKey(k string) bool {
	if k == "" || k[0] < 'A' || k[0] > 'Z' {
		return false
	}
	for i := 0; i < len(k); i++ {
		switch c := k[i]; {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == ':':
		default:
			return false
		}
	}
	return true
}

func readPartitions(r io.Reader) ([]string, error) {
	recs, err := records(r)
	var out []string
	for _, rec := range recs {
		if name := rec["PartitionName"]; name != "" {
			out = append(out, name)
		}
	}
	return out, err
}

// stamp reads scontrol's local time.
func stamp(s string) int64 {
	t, err := time.ParseInLocation("2006-01-02T15:04:05", s, time.Local)
	if err != nil {
		return 0
	}
	return t.Unix()
}

func readReservations(r io.Reader) ([]Reservation, error) {
	recs, err := records(r)
	var out []Reservation
	for _, rec := range recs {
		if name := rec["ReservationName"]; name != "" {
			out = append(
				out,
				Reservation{
					Name:      name,
					State:     rec["State"],
					Nodes:     unset(rec["Nodes"]),
					Partition: unset(rec["PartitionName"]),
					Flags:     rec["Flags"],
					Users: unset(
						rec["Users"],
					),
					Accounts: unset(rec["Accounts"]),
					Start:    stamp(rec["StartTime"]),
					End:      stamp(rec["EndTime"]),
					NodeCount: parseCount(
						rec["NodeCnt"],
					),
					Cores:    parseCount(rec["CoreCnt"]),
					Licenses: countsOf(rec["Licenses"]),
				},
			)
		}
	}
	return out, err
}

func unset(s string) string {
	if s == "(null)" {
		return ""
	}
	return s
}

func readLicenses(r io.Reader) ([]License, error) {
	recs, err := records(r)
	var out []License
	for _, rec := range recs {
		if name := rec["LicenseName"]; name != "" {
			out = append(
				out,
				License{
					Name:     name,
					Total:    parseCount(rec["Total"]),
					Used:     parseCount(rec["Used"]),
					Reserved: parseCount(rec["Reserved"]),
				},
			)
		}
	}
	return out, err
}

// readShares reads sshare -a -P -n -l with the columns of shareColumns.
func readShares(r io.Reader) ([]Share, error) {
	var out []Share
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		col := strings.Split(sc.Text(), "|")
		if len(col) < 8 {
			continue
		}
		s := Share{
			Account:      strings.TrimSpace(col[0]),
			User:         strings.TrimSpace(col[1]),
			RawShares:    parseCount(col[2]),
			SharesParent: col[2] == "parent",
			NormShares: float(
				col[3],
			),
			RawUsage:     float(col[4]),
			NormUsage:    float(col[5]),
			FairShare:    float(col[6]),
			HasFairShare: col[6] != "",
			EffectUsage:  float(col[7]),
		}
		out = append(out, s)
	}
	return out, sc.Err()
}

const shareColumns = "Account,User,RawShares,NormShares,RawUsage,NormUsage,FairShare,EffectvUsage"

func float(s string) float64 {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return 0
	}
	return f
}

var (
	diagLine = regexp.MustCompile(`^\s*([A-Za-z][^:]*):\s+(\S.*)$`)
	diagCall = regexp.MustCompile(
		`^\s*(\S+)\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)`,
	)
	inParens = regexp.MustCompile(`\((\d+)\)\s*$`)
	leading  = regexp.MustCompile(`^-?\d+`)
)

// readDiag reads sdiag: numbers under "Section/Name", with a time's seconds
// since 1970 where it prints a date.
func readDiag(r io.Reader) (Sched, error) {
	out := Sched{Numbers: map[string]int64{}}
	section := ""
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		line := strings.TrimRight(sc.Text(), " ")
		if m := diagCall.FindStringSubmatch(line); m != nil {
			calls := Calls{Name: m[1], Count: uint64(parseCount(m[2])), Micro: uint64(parseCount(m[3]))}
			if strings.HasSuffix(section, "by user") {
				out.Users = append(out.Users, calls)
			} else if strings.HasSuffix(section, "by message type") {
				out.RPCs = append(out.RPCs, calls)
			}
			continue
		}
		switch m := diagLine.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "Data since"):
			if m := inParens.FindStringSubmatch(line); m != nil {
				out.Numbers["Data since"] = parseCount(m[1])
			}
		case m != nil:
			key := m[1]
			if line[0] == '\t' || line[0] == ' ' {
				key = section + "/" + key
			}
			if d := inParens.FindStringSubmatch(m[2]); d != nil {
				out.Numbers[key] = parseCount(d[1])
			} else if n := leading.FindString(m[2]); n != "" {
				out.Numbers[key] = parseCount(n)
			}
		case line != "" && line[0] != '*' && line[0] != '\t' && line[0] != ' ':
			section, _, _ = strings.Cut(strings.TrimSuffix(line, ":"), " (")
		}
	}
	if err := sc.Err(); err != nil {
		return out, err
	}
	if _, ok := out.Numbers["Server thread count"]; !ok {
		return out, fmt.Errorf("%w: sdiag shows no server thread count", errShape)
	}
	return out, nil
}
