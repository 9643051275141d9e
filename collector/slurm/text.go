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
func records(output io.Reader) ([]map[string]string, error) {
	var out []map[string]string
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		record, key := map[string]string{}, ""
		for _, assignment := range fields {
			name, value, ok := strings.Cut(assignment, "=")
			if ok && wordKey(name) {
				key = name
				record[key] = value
			} else if key != "" {
				record[key] += " " + assignment
			}
		}
		if len(record) > 0 {
			out = append(out, record)
		}
	}
	return out, scanner.Err()
}

func wordKey(key string) bool {
	if key == "" || key[0] < 'A' || key[0] > 'Z' {
		return false
	}
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == ':':
		default:
			return false
		}
	}
	return true
}

func readPartitions(output io.Reader) ([]string, error) {
	partitions, err := records(output)
	var out []string
	for _, record := range partitions {
		if name := record["PartitionName"]; name != "" {
			out = append(out, name)
		}
	}
	return out, err
}

// stamp reads scontrol's local time.
func stamp(text string) int64 {
	t, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.Local)
	if err != nil {
		return 0
	}
	return t.Unix()
}

func readReservations(output io.Reader) ([]Reservation, error) {
	recs, err := records(output)
	var reservations []Reservation
	for _, record := range recs {
		if name := record["ReservationName"]; name != "" {
			reservations = append(
				reservations,
				Reservation{
					Name:      name,
					State:     record["State"],
					Nodes:     unset(record["Nodes"]),
					Partition: unset(record["PartitionName"]),
					Flags:     record["Flags"],
					Users: unset(
						record["Users"],
					),
					Accounts: unset(record["Accounts"]),
					Start:    stamp(record["StartTime"]),
					End:      stamp(record["EndTime"]),
					NodeCount: parseCount(
						record["NodeCnt"],
					),
					Cores:    parseCount(record["CoreCnt"]),
					Licenses: countsOf(record["Licenses"]),
				},
			)
		}
	}
	return reservations, err
}

func unset(text string) string {
	if text == "(null)" {
		return ""
	}
	return text
}

func readLicenses(output io.Reader) ([]License, error) {
	licences, err := records(output)
	var licenses []License
	for _, record := range licences {
		if name := record["LicenseName"]; name != "" {
			licenses = append(
				licenses,
				License{
					Name:     name,
					Total:    parseCount(record["Total"]),
					Used:     parseCount(record["Used"]),
					Reserved: parseCount(record["Reserved"]),
				},
			)
		}
	}
	return licenses, err
}

// readShares reads sshare -a -P -n -l with the columns of shareColumns.
func readShares(output io.Reader) ([]Share, error) {
	var shares []Share
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		column := strings.Split(scanner.Text(), "|")
		if len(column) < 8 {
			continue
		}
		share := Share{
			Account:      strings.TrimSpace(column[0]),
			User:         strings.TrimSpace(column[1]),
			RawShares:    parseCount(column[2]),
			SharesParent: column[2] == "parent",
			NormShares: float(
				column[3],
			),
			RawUsage:     float(column[4]),
			NormUsage:    float(column[5]),
			FairShare:    float(column[6]),
			HasFairShare: column[6] != "",
			EffectUsage:  float(column[7]),
		}
		shares = append(shares, share)
	}
	return shares, scanner.Err()
}

const shareColumns = "Account,User,RawShares,NormShares,RawUsage,NormUsage,FairShare,EffectvUsage"

func float(text string) float64 {
	parsed, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0
	}
	return parsed
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
func readDiag(output io.Reader) (Sched, error) {
	sched := Sched{Numbers: map[string]int64{}}
	section := ""
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		line := strings.TrimRight(scanner.Text(), " ")
		if match := diagCall.FindStringSubmatch(line); match != nil {
			calls := Calls{
				Name:  match[1],
				Count: uint64(parseCount(match[2])),
				Micro: uint64(parseCount(match[3])),
			}
			if strings.HasSuffix(section, "by user") {
				sched.Users = append(sched.Users, calls)
			} else if strings.HasSuffix(section, "by message type") {
				sched.RPCs = append(sched.RPCs, calls)
			}
			continue
		}
		switch match := diagLine.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "Data since"):
			if interval := inParens.FindStringSubmatch(line); interval != nil {
				sched.Numbers["Data since"] = parseCount(interval[1])
			}
		case match != nil:
			key := match[1]
			if line[0] == '\t' || line[0] == ' ' {
				key = section + "/" + key
			}
			if detail := inParens.FindStringSubmatch(match[2]); detail != nil {
				sched.Numbers[key] = parseCount(detail[1])
			} else if digits := leading.FindString(match[2]); digits != "" {
				sched.Numbers[key] = parseCount(digits)
			}
		case line != "" && line[0] != '*' && line[0] != '\t' && line[0] != ' ':
			section, _, _ = strings.Cut(strings.TrimSuffix(line, ":"), " (")
		}
	}
	if err := scanner.Err(); err != nil {
		return sched, err
	}
	if _, ok := sched.Numbers["Server thread count"]; !ok {
		return sched, fmt.Errorf("%w: sdiag shows no server thread count", errShape)
	}
	return sched, nil
}
